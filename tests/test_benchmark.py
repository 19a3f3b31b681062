"""Pipelines side by side."""

import sys
import weakref
from pathlib import Path

import pytest
import spacy
import torch
from spacy.tokens import DocBin, Span

from spacy_spans import benchmark, benchmark_worker
from spacy_spans.benchmark import Conditions, Contender
from spacy_spans.errors import DataError, SettingsError

TEXTS = ["Python and Rust", "Rust or Python", "", "Nothing"]


def speed(median, lowest=None, highest=None):
    return {"median": median, "lowest": lowest or median, "highest": highest or median}


def row(name="a", f=0.5, words_per_second=None, **others):
    values = {
        "name": name,
        "words_per_second": words_per_second or speed(100.0),
        "components": {"tokenizer": 0.5, "ruler": 1.25},
        "peak_mb": 1234.5,
        "device_peak_mb": None,
        "loaded_mb": 1000.0,
        "f": f,
        "partial_f": f,
        "keep_ratio": None,
        "pareto": True,
    }
    return values | others


def make_report(*rows):
    return {
        "documents": 4,
        "words": 1_000,
        "threads": 2,
        "spans_key": "sc",
        "runs": 3,
        "pipelines": list(rows),
    }


@pytest.fixture
def pipelines(tmp_path):
    """One that finds a word, and one that writes another key."""
    for name, word, key in (("a", "Python", "sc"), ("b", "Rust", "kept")):
        nlp = spacy.blank("en")
        ruler = nlp.add_pipe("span_ruler", config={"spans_key": key})
        ruler.add_patterns([{"label": "TOOL", "pattern": word}])
        (tmp_path / name).mkdir()
        nlp.to_disk(tmp_path / name / "model-best")
    return [tmp_path / name / "model-best" for name in "ab"]


@pytest.fixture
def data(tmp_path):
    nlp = spacy.blank("en")
    docs = [nlp(text) for text in TEXTS]
    for doc in docs:
        doc.spans["sc"] = [Span(doc, t.i, t.i + 1, label="TOOL") for t in doc if t.text == "Python"]
    DocBin(docs=docs).to_disk(tmp_path / "data.spacy")
    return tmp_path / "data.spacy"


def test_pipelines_are_measured_in_turns(pipelines, data):
    contenders = benchmark.name_contenders(pipelines)
    assert [contender.name for contender in contenders] == [f"{x}/model-best" for x in "ab"]
    overrides = {"components.span_ruler.spans_key": "kept_tokens"}
    contenders[1] = Contender(pipelines[1], "c", overrides)
    report = benchmark.run_benchmark(contenders, Conditions(data, runs=3, threads=1))
    assert (report["documents"], report["words"], report["threads"]) == (4, 7, 1)
    right, silent = report["pipelines"]
    assert (right["f"], right["partial_f"]) == (1.0, 1.0)
    assert (silent["f"], silent["partial_f"], silent["overrides"]) == (None, None, overrides)
    # "Rust" stands in two of the three documents of three tokens.
    assert [row["keep_ratio"] for row in report["pipelines"]] == [None, 2 / 7]
    assert silent["pareto"] is False
    for found in report["pipelines"]:
        speeds = found["words_per_second"]
        assert 0 < speeds["lowest"] <= speeds["median"] <= speeds["highest"]
        assert list(found["components"]) == ["tokenizer", "span_ruler"]
        # All seconds are in some component.
        assert sum(found["components"].values()) == pytest.approx(7 / speeds["median"], rel=0.5)
        if sys.platform != "win32":
            assert 50 < found["loaded_mb"] <= found["peak_mb"] < 4_000
        assert found["device_peak_mb"] is None


def test_predicted_documents_are_no_memory_of_the_pipeline(pipelines, data):
    """A run lets go of each batch; only scoring, after the peak was asked for, holds them all."""
    seen = []
    n_held = []

    @spacy.Language.component("tests_watch")
    def watch(doc):
        n_held.append(sum(other() is not None for other in seen))
        seen.append(weakref.ref(doc))
        return doc

    session = benchmark_worker._Session(
        Contender(pipelines[0], "a"), Conditions(data, batch_size=1)
    )
    session.nlp.add_pipe("tests_watch")
    for ask, expected in (
        (session.warm_up, [0, 0, 0, 0]),
        (session.run, [0, 0, 0, 0]),
        (session.score, [0, 1, 2, 3]),
        (session.run, [0, 0, 0, 0]),
    ):
        seen.clear()
        n_held.clear()
        ask()
        assert n_held == expected


class FakeDevice:
    """A GPU whose work is done when it is waited for."""

    def __init__(self):
        self.pending = 0
        self.done = 0

    def synchronize(self):
        self.done += self.pending
        self.pending = 0

    def max_memory_reserved(self):
        return 3 * 2**20


def test_a_gpu_is_waited_for(pipelines, data, monkeypatch):
    """Each reading of the clock comes after all work that was asked for before."""
    session = benchmark_worker._Session(
        Contender(pipelines[0], "a"), Conditions(data, batch_size=4)
    )
    device = session.device = FakeDevice()

    @spacy.Language.component("tests_use_device")
    def use_device(doc):
        device.pending += 1
        return doc

    session.nlp.add_pipe("tests_use_device")
    monkeypatch.setattr(benchmark_worker, "default_timer", lambda: float(device.done))
    # The clock counts what the device has done.
    expected = {"tokenizer": 0.0, "span_ruler": 0.0, "tests_use_device": 4.0}
    assert session.run() == expected
    assert session.peak()["device_peak_mb"] == 3.0
    session.device = None
    assert session.run() == dict.fromkeys(expected, 0.0)
    assert session.peak()["device_peak_mb"] is None


def test_a_gpu_is_looked_at_only_when_it_is_used(monkeypatch):
    for is_there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda found=is_there: found)
        assert benchmark_worker.find_device(-1) is None
        assert benchmark_worker.find_device(0) is (torch.cuda if is_there else None)


def test_what_fails_in_a_process_is_named(pipelines, data, tmp_path):
    def run(contender, **conditions):
        benchmark.run_benchmark([contender], Conditions(data, runs=1, **conditions))

    with pytest.raises(DataError, match=r"Pipeline 'x': The data has no doc.spans\['no'\], only"):
        run(Contender(pipelines[0], "x"), spans_key="no")
    code = tmp_path / "code.py"
    code.write_text(
        "import os, spacy\n"
        "@spacy.Language.component('tests_fail')\n"
        "def fail(doc):\n"
        "    raise ZeroDivisionError('on purpose')\n"
        "@spacy.Language.component('tests_die')\n"
        "def die(doc):\n"
        "    os._exit(3)\n"
    )
    spacy.util.import_file("tests_benchmark_code", code)
    for name, message in (
        ("tests_fail", "Pipeline 'x': it cannot be run .ZeroDivisionError: on purpose"),
        ("tests_die", "process of the pipeline 'x' ended with exit code 3"),
    ):
        nlp = spacy.blank("en")
        nlp.add_pipe(name)
        nlp.to_disk(tmp_path / name)
        with pytest.raises(DataError, match=message):
            run(Contender(tmp_path / name, "x"), code=code)


@pytest.mark.parametrize(
    ("names", "conditions"),
    [([], {}), (["a", "a"], {}), (["a"], {"runs": 0}), (["a"], {"batch_size": 0})],
)
def test_settings_out_of_range_stop_at_once(names, conditions):
    contenders = [Contender(Path("none"), name) for name in names]
    with pytest.raises(SettingsError, match="Expected"):
        benchmark.run_benchmark(contenders, Conditions(Path("none"), **conditions))


def test_names_are_as_short_as_can_be():
    def names(*paths):
        return [found.name for found in benchmark.name_contenders([Path(path) for path in paths])]

    assert names("x/a", "y/b") == ["a", "b"]
    assert names("x/a/best", "y/b/best") == ["a/best", "b/best"]
    assert names("en_core") == ["en_core"]
    assert names() == []
    # Twice the same: refused when measured.
    assert names("x/a", "x/a") == ["x/a", "x/a"]


@pytest.mark.parametrize(
    ("rows", "front"),
    [
        ([], []),
        ([row()], [True]),
        ([row(f=None)], [False]),
        # Faster and worse, slower and better: both are a choice.
        ([row(f=0.4, words_per_second=speed(200)), row(f=0.5)], [True, True]),
        ([row(f=0.4), row(f=0.5)], [False, True]),
        ([row(words_per_second=speed(200)), row()], [True, False]),
        ([row(), row()], [True, True]),
        # Speeds that cannot be told apart: the better one wins.
        (
            [
                row(f=0.4, words_per_second=speed(110, 100, 120)),
                row(f=0.5, words_per_second=speed(105, 90, 110)),
            ],
            [False, True],
        ),
        ([row(f=None, words_per_second=speed(900)), row(f=0.1)], [False, True]),
    ],
)
def test_the_front(rows, front):
    assert benchmark.pareto_front(rows) == front


def test_tables():
    silent = row("b\x1b", f=None, peak_mb=None, pareto=False, components={"tokenizer": 2.0})
    silent["keep_ratio"] = 0.256
    text = benchmark.format_benchmark(make_report(row("a", words_per_second=speed(99, 9)), silent))
    lines = [line.split() for line in text.splitlines()]
    assert ["a", "99", "9", "99", "1,234", "50.0", "50.0", "-", "best"] in lines
    assert [r"b\x1b", "100", "100", "100", "-", "-", "-", "25.6"] in lines
    assert ["a", "0.50", "1.25"] in lines
    assert [r"b\x1b", "2.00", "-"] in lines
    assert "4 documents, 1,000 words, 3 runs in turns after one that is not counted" in text
    assert "GPU" not in text
    text = benchmark.format_benchmark(make_report(row("a", device_peak_mb=2e4), silent))
    assert "GPU MB" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["a", "100", "100", "100", "1,234", "20,000", "50.0", "50.0", "-", "best"] in lines
    assert [r"b\x1b", "100", "100", "100", "-", "-", "-", "-", "25.6"] in lines


def test_plots(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib (extra viz) is not installed")
    report = make_report(row("$a_"), row("b", f=0.4, pareto=False), row("c", f=None))
    benchmark.plot_benchmark(report, tmp_path / "plot.tmp", "png")
    assert (tmp_path / "plot.tmp").read_bytes().startswith(b"\x89PNG")
    benchmark.plot_benchmark(make_report(), tmp_path / "empty.svg")
    assert (tmp_path / "empty.svg").read_text().rstrip().endswith("</svg>")


def test_a_setting_can_be_varied():
    contenders = [Contender(Path("x"), "x", {"a": 1}), Contender(Path("y"), "y")]
    varied = benchmark.vary_setting(contenders, "b.c = 0.5, null,text")
    assert [(found.name, found.overrides) for found in varied] == [
        ("x c=0.5", {"a": 1, "b.c": 0.5}),
        ("x c=null", {"a": 1, "b.c": None}),
        ("x c=text", {"a": 1, "b.c": "text"}),
        ("y c=0.5", {"b.c": 0.5}),
        ("y c=null", {"b.c": None}),
        ("y c=text", {"b.c": "text"}),
    ]
    for wrong in ("b.c", "b.c=", "=1", "b.c=1,1", "b.c=1,,2"):
        with pytest.raises(SettingsError, match=r"Expected SETTING=VALUE,VALUE"):
            benchmark.vary_setting(contenders, wrong)
