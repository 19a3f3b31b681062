"""`python -m spacy spans render` as a user calls it."""

import json
import re

import pytest
import spacy
from spacy.cli._util import app
from spacy.language import Language
from spacy.tokens import DocBin, SpanGroup
from typer.testing import CliRunner

import spacy_spans.cli  # noqa: F401  adds the command to the app


@Language.component("span_cleaner_that_fails")
def fail(doc):
    raise RuntimeError("out of order")


def run(*args):
    return CliRunner().invoke(app, ["spans", "render", *map(str, args)])


@pytest.fixture
def pipeline(tmp_path):
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc"})
    ruler.add_patterns([{"label": "TOOL", "pattern": "Python"}])
    nlp.to_disk(tmp_path / "pipeline")
    return tmp_path / "pipeline"


@pytest.fixture
def data(tmp_path):
    nlp = spacy.blank("en")
    docs = []
    for text, end in (("Python and Rust", 6), ("Rust or Python", 4), ("Nothing", None), ("", None)):
        doc = nlp(text)
        spans = [doc.char_span(0, end, label="TOOL")] if end else []
        doc.spans["sc"] = SpanGroup(doc, name="sc", spans=spans)
        docs.append(doc)
    DocBin(docs=docs).to_disk(tmp_path / "data.spacy")
    return tmp_path / "data.spacy"


def read_payload(page):
    data = re.search('<script type="application/json" id="data">(.*)</script>', page.read_text())
    return json.loads(data.group(1))


@pytest.mark.installed
def test_predictions_against_gold(pipeline, data, tmp_path):
    page = tmp_path / "page.html"
    result = run(pipeline, data, "--output", page, "--title", "Tools <1>")
    assert result.exit_code == 0, result.output
    assert "Wrote 4 documents" in result.output
    html = page.read_text(encoding="utf8")
    assert html.startswith("<!DOCTYPE html>")
    assert "<title>Tools &lt;1&gt;</title>" in html
    payload = read_payload(page)
    assert [(x["side"], x["key"], x["spans"]) for x in payload["layers"]] == [
        ("gold", "sc", 2),
        ("predicted", "sc", 2),
    ]
    assert payload["docs"][1]["spans"] == {"0": [[0, None, 1, 0, 4]], "1": [[0, None, 1, 8, 14]]}


def test_texts_without_annotations(pipeline, tmp_path):
    page = tmp_path / "page.html"
    (tmp_path / "a.txt").write_text("I like Python\n\nNothing\n")
    (tmp_path / "a.jsonl").write_text('{"text": "Python"}\n')
    for name, texts in (("a.txt", ["I like Python", "Nothing"]), ("a.jsonl", ["Python"])):
        result = run(pipeline, tmp_path / name, "--output", page)
        assert result.exit_code == 0, result.output
        payload = read_payload(page)
        assert [doc["text"] for doc in payload["docs"]] == texts
        assert [(x["side"], x["key"], x["spans"]) for x in payload["layers"]] == [
            ("predicted", "sc", 1)
        ]
        assert f"<title>Spans: {name}</title>" in page.read_text()


def test_a_file_alone_shows_all_its_keys(data, tmp_path):
    page, counts = tmp_path / "page.html", tmp_path / "counts.json"
    result = run(data, "--output", page, "--json", counts)
    assert result.exit_code == 0, result.output
    assert [(x["side"], x["key"]) for x in read_payload(page)["layers"]] == [("", "sc")]
    report = json.loads(counts.read_text(encoding="utf8"))
    assert report["pipeline"] is None
    assert report["spans"]["sc"]["spans"] == 2


def test_counts_are_written_as_json(pipeline, data, tmp_path):
    page, counts = tmp_path / "page.html", tmp_path / "counts.json"
    result = run(pipeline, data, "-o", page, "--json", counts, "--limit", 3, "-k", "sc, sc")
    assert result.exit_code == 0, result.output
    found = {"documents": 3, "spans": 2, "labels": {"TOOL": 2}}
    assert json.loads(counts.read_text(encoding="utf8")) == {
        "pipeline": str(pipeline),
        "data": str(data),
        "output": str(page),
        "spans_keys": ["sc", "sc"],
        "documents": 3,
        "gold": {"sc": found},
        "predicted": {"sc": found},
    }


def test_page_and_json_are_two_files_and_no_input(pipeline, data, tmp_path):
    before = data.read_bytes()
    for output, counts, message in (
        ("page.html", "page.html", "are the same file"),
        ("page.html", "data.spacy", "is also the input"),
        ("page.html", "missing/counts.json", "a folder that does not exist"),
    ):
        result = run(pipeline, data, "-o", tmp_path / output, "--json", tmp_path / counts)
        assert result.exit_code == 1
        assert message in " ".join(result.output.split())
    assert data.read_bytes() == before
    assert not (tmp_path / "page.html").exists()


def test_limit_takes_the_first_documents(pipeline, data, tmp_path):
    for limit in (0, 1):
        result = run(pipeline, data, "-o", tmp_path / "page.html", "--limit", limit)
        assert result.exit_code == 0, result.output
        assert len(read_payload(tmp_path / "page.html")["docs"]) == limit
        assert "--limit" in result.output


def test_the_page_replaces_nothing_else(pipeline, data):
    before = {path: path.read_bytes() for path in pipeline.rglob("*") if path.is_file()}
    for output, message in (
        (data, "is also the input"),
        (pipeline / "config.cfg", "lies inside of the input"),
        (pipeline / "new.html", "lies inside of the input"),
    ):
        result = run(pipeline, data, "--output", output)
        assert result.exit_code == 1
        assert message in " ".join(result.output.split())
    assert before == {path: path.read_bytes() for path in pipeline.rglob("*") if path.is_file()}
    assert data.read_bytes()


def test_a_broken_pipeline_exits_with_a_message(pipeline, data, tmp_path):
    (pipeline / "meta.json").write_text("{")
    result = run(pipeline, data, "--output", tmp_path / "page.html")
    assert result.exit_code == 1
    assert "cannot be loaded (ValueError" in " ".join(result.output.split())


def test_failures_leave_no_page(pipeline, data, tmp_path):
    page = tmp_path / "page.html"
    for args, message in (
        ((data, data), "not the folder of a pipeline"),
        ((pipeline, tmp_path / "missing.spacy"), "does not exist"),
        ((pipeline, data, "--spans-key", "other"), "There is no doc.spans['other']"),
        ((pipeline,), "nothing for it to read"),
        ((tmp_path / "missing.spacy",), "does not exist"),
    ):
        result = run(*args, "--output", page)
        assert result.exit_code == 1
        assert message in " ".join(result.output.split())
    assert not page.exists()
    result = run(pipeline, data, "--output", tmp_path / "missing" / "page.html")
    assert result.exit_code == 1
    assert "a folder that does not exist" in " ".join(result.output.split())


def test_a_failing_component_exits_with_a_message(pipeline, data, tmp_path):
    nlp = spacy.load(pipeline)
    nlp.add_pipe("span_cleaner_that_fails", last=True)
    nlp.to_disk(tmp_path / "failing")
    page = tmp_path / "page.html"
    page.write_text("old")
    result = run(tmp_path / "failing", data, "--output", page)
    assert result.exit_code == 1
    assert "span_cleaner_that_fails" in result.output
    assert "Traceback" not in result.output
    assert page.read_text() == "old"


def test_code_is_imported_before_the_pipeline_is_loaded(data, tmp_path):
    code = tmp_path / "code.py"
    code.write_text(
        "from spacy.language import Language\n"
        "from spacy.tokens import Span\n"
        "@Language.component('tests_render_marks_the_first')\n"
        "def mark(doc):\n"
        "    doc.spans['sc'] = [Span(doc, 0, 1, label='FIRST')] if len(doc) else []\n"
        "    return doc\n"
    )
    # A config that names a component this process does not know.
    nlp = spacy.blank("en")
    path = tmp_path / "coded"
    nlp.to_disk(path)
    config = nlp.config.copy()
    config["nlp"]["pipeline"] = ["mark"]
    config["components"] = {"mark": {"factory": "tests_render_marks_the_first"}}
    config.to_disk(path / "config.cfg")
    page = tmp_path / "page.html"
    result = run(path, data, "-o", page)
    assert result.exit_code == 1
    assert "cannot be loaded" in " ".join(result.output.split())
    result = run(path, data, "-o", page, "--code", code)
    assert result.exit_code == 0, result.output
    predicted = [layer for layer in read_payload(page)["layers"] if layer["side"] == "predicted"]
    assert [layer["spans"] for layer in predicted] == [3]
    # It is no place to write to.
    before = code.read_text()
    result = run(path, data, "-o", code, "--code", code)
    assert result.exit_code == 1
    assert code.read_text() == before


def test_a_gpu_that_is_not_there_is_an_error(pipeline, data, tmp_path):
    result = run(pipeline, data, "-o", tmp_path / "page.html", "--gpu-id", 99)
    assert result.exit_code == 1
    assert "GPU 99 cannot be used" in " ".join(result.output.split())
    assert not (tmp_path / "page.html").exists()
