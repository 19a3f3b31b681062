"""`python -m spacy spans debug` as a user calls it."""

import json

import pytest
import spacy
from spacy.cli._util import app
from spacy.tokens import Doc, DocBin, SpanGroup
from spacy.training import Example
from typer.testing import CliRunner

import spacy_spans.cli  # noqa: F401  adds the command to the app
from spacy_spans.cli.debug import _split


def run(*args):
    return CliRunner().invoke(app, ["spans", "debug", *map(str, args)])


def squeeze(text):
    """Without the line breaks that messages are wrapped with."""
    return " ".join(text.split())


def write(path, rows, key="sc"):
    """Documents of words, with spans as (start, end, label) in tokens."""
    vocab = spacy.blank("en").vocab
    docs = []
    for text, spans in rows:
        doc = Doc(vocab, words=text.split())
        own = [spacy.tokens.Span(doc, *span) for span in spans]
        doc.spans[key] = SpanGroup(doc, name=key, spans=own)
        docs.append(doc)
    DocBin(docs=docs, store_user_data=True).to_disk(path)
    return path


GOOD = [(f"number {i} is Python here", [(3, 4, "TOOL")]) for i in range(12)]


@pytest.fixture
def train(tmp_path):
    return write(tmp_path / "train.spacy", GOOD)


@pytest.fixture
def dev(tmp_path):
    return write(tmp_path / "dev.spacy", [("other Python text", [(1, 2, "TOOL")])])


@pytest.fixture
def config(repository):
    return repository / "configs/enumerator_cpu.cfg"


@pytest.mark.parametrize("name", ["enumerator", "tagger"])
def test_good_data_gives_exit_code_0(repository, train, dev, tmp_path, name):
    config = repository / f"configs/{name}_cpu.cfg"
    result = run(config, train, dev, "--json", tmp_path / "out.json")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf8"))
    assert (report["errors"], report["warnings"]) == (0, 0)
    table = next(s["table"] for s in report["sections"] if "table" in s)
    assert table == [["label", "train", "dev"], ["TOOL", "12", "1"]]


def test_data_and_settings_come_from_the_config_and_its_overrides(config, train, dev):
    own = ("--paths.train", train, f"--paths.dev={dev}", "--vars.spans_key", "other")
    result = run(config, *own)
    assert result.exit_code == 1
    assert "train: doc.spans['other'], of span_enumerator, is in none of 12" in squeeze(
        result.output
    )
    assert "keys that are there: 'sc'" in squeeze(result.output)
    result = run(config, "--train", train, "--dev", dev, "--limit", 1)
    assert result.exit_code == 0, result.output
    assert "1 document, 5 tokens" in squeeze(result.output)


def test_what_no_candidate_reaches(config, train, dev):
    long = write(train, [("a b c d e f", [(0, 5, "TOOL"), (1, 2, "TOOL")])] * 12)
    result = run(config, long, dev, "--vars.max_length", 3)
    assert result.exit_code == 0, result.output
    assert "train: 12 of 24 gold spans in 'sc' are no candidates" in squeeze(result.output)
    first = "train TOOL 12 longer than max_length = 3 a b c d e 0: 0 to 9"
    assert first in squeeze(result.output)
    all_long = write(train, [("a b c d e f", [(0, 5, "TOOL")])] * 12)
    result = run(config, all_long, dev, "--vars.max_length", 3)
    assert result.exit_code == 1
    assert "train: none of 12 gold spans can be given" in squeeze(result.output)


def in_table(path):
    """Rows of gold that cannot be given, without the header."""
    report = json.loads(path.read_text(encoding="utf8"))
    sections = {section["title"].split(" that ")[0]: section for section in report["sections"]}
    return sections["Gold"].get("table", [[]])[1:]


def test_what_one_layer_of_bio_tags_cannot_hold(repository, train, dev, tmp_path):
    config, json_path = repository / "configs/tagger_cpu.cfg", tmp_path / "out.json"
    crossing = [("a b c d e f", [(0, 3, "TOOL"), (2, 5, "TOOL"), (5, 6, "TOOL")])] * 3
    write(train, [*GOOD, *crossing])
    result = run(config, train, dev, "--json", json_path)
    assert result.exit_code == 0, result.output
    assert "train: 3 of 21 gold spans in 'sc' cannot be expressed" in squeeze(result.output)
    reason = "not expressed by the scheme"
    # The first of them is in the document behind the good ones.
    assert in_table(json_path) == [["train", "TOOL", "3", reason, "c d e", "12: 4 to 9"]]
    # Of another label they have a layer of their own.
    apart = [("a b c d e f", [(0, 3, "TOOL"), (2, 5, "OTHER")])] * 10
    write(train, [*GOOD, *apart])
    write(dev, apart[:1])
    result = run(config, train, dev, "--json", json_path)
    assert result.exit_code == 0, result.output
    assert "train: all of 32 gold spans" in squeeze(result.output)
    assert in_table(json_path) == []
    # One layer for both has room for one at a time.
    shared = ("--components.multispan_tagger.layers", "shared")
    result = run(config, train, dev, *shared, "--json", json_path)
    assert result.exit_code == 0, result.output
    message = "10 of 32 gold spans in 'sc' cannot be expressed and are not learned (OTHER 10; e.g."
    assert message in squeeze(result.output)
    assert [row[:4] for row in in_table(json_path)] == [
        ["train", "OTHER", "10", reason],
        ["dev", "OTHER", "1", reason],
    ]


def test_gold_of_one_side_that_is_all_out_of_reach_is_an_error(repository, train, dev, tmp_path):
    json_path = tmp_path / "out.json"
    for name, component, reason in (
        ("enumerator", "span_enumerator", "longer than max_length = 2"),
        ("tagger", "multispan_tagger", "outside of min_length to max_length"),
    ):
        write(dev, [("some", []), ("a b c", [(0, 3, "TOOL")])])
        setting = (
            "--vars.max_length" if name == "enumerator" else f"--components.{component}.max_length"
        )
        config = repository / f"configs/{name}_cpu.cfg"
        result = run(config, train, dev, setting, 2, "--json", json_path)
        assert result.exit_code == 1
        assert "train: all of 12 gold spans" in squeeze(result.output)
        assert "dev: none of 1 gold span can be given" in squeeze(result.output)
        assert in_table(json_path) == [["dev", "TOOL", "1", reason, "a b c", "1: 0 to 5"]]
        result = run(config, train, dev, setting, 3, "--json", json_path)
        assert result.exit_code == 0, result.output
        assert in_table(json_path) == []


def test_a_label_of_dev_only_and_empty_files_are_errors(config, train, dev):
    write(dev, [("some Rust text", [(1, 2, "LANGUAGE")])])
    result = run(config, train, dev)
    assert result.exit_code == 1
    assert "'LANGUAGE' (1) in dev, but in no training document" in squeeze(result.output)
    assert "'TOOL' (12) in train, but not in dev" in squeeze(result.output)
    result = run(config, write(train, []), write(dev, []))
    assert result.exit_code == 1
    assert "train: there are no documents" in squeeze(result.output)


def test_a_label_file_that_is_not_there(config, train, dev, tmp_path):
    text = config.read_text(encoding="utf8")
    labels = tmp_path / "labels.json"
    own = tmp_path / "own.cfg"
    block = (
        "\n[initialize.components.span_enumerator.labels]\n"
        f'@readers = "spacy.read_labels.v1"\npath = "{labels}"\nrequire = false\n'
    )
    own.write_text(
        text + "\n[initialize]\n[initialize.components]\n"
        "[initialize.components.span_enumerator]\n" + block,
        encoding="utf8",
    )
    result = run(own, train, dev)
    assert result.exit_code == 1
    assert "which is not there. Make it with" in squeeze(result.output)
    labels.write_text('["OTHER"]', encoding="utf8")
    result = run(own, train, dev)
    assert result.exit_code == 1
    assert "'TOOL' (13) in the data, but not among the labels" in squeeze(result.output)


def test_stock_spancat_is_checked_as_well(train, dev, tmp_path):
    nlp = spacy.blank("en")
    pipe = nlp.add_pipe("spancat", config={"spans_key": "mine"})
    pipe.add_label("TOOL")
    nlp.config.to_disk(tmp_path / "own.cfg")
    result = run(tmp_path / "own.cfg", write(train, GOOD, "mine"), write(dev, GOOD[:1], "mine"))
    assert result.exit_code == 1
    assert "spancat is scored as spans_mine_f" in squeeze(result.output)
    assert "all of 12 gold spans" in squeeze(result.output)
    assert "1 text of dev in train as well" in squeeze(result.output)


def test_a_trained_pipeline(train, dev, tmp_path):
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler")
    ruler.add_patterns([{"label": "TOOL", "pattern": "Python"}])
    nlp.to_disk(tmp_path / "ruler")
    result = run(tmp_path / "ruler", train, dev)
    assert result.exit_code == 1
    assert "No component of ['span_ruler'] learns spans" in squeeze(result.output)


@pytest.mark.parametrize("factory", ["span_enumerator", "multispan_tagger", "spancat"])
def test_a_trained_pipeline_that_fits_its_data(train, dev, tmp_path, factory):
    nlp = spacy.blank("en")
    nlp.add_pipe(factory)
    docs = [Doc(nlp.vocab, words=text.split()) for text, _ in GOOD]
    examples = [
        Example.from_dict(doc, {"spans": {"sc": [(doc[3].idx, doc[3].idx + 6, "TOOL")]}})
        for doc in docs
    ]
    nlp.initialize(lambda: examples)
    nlp.to_disk(tmp_path / factory)
    result = run(tmp_path / factory, train, dev)
    assert result.exit_code == 0, result.output
    assert "train: all of 12 gold spans" in squeeze(result.output)
    assert "0 errors, 0 warnings" in squeeze(result.output)
    write(dev, [("some Rust text", [(1, 2, "LANGUAGE")])])
    result = run(tmp_path / factory, train, dev)
    assert result.exit_code == 1
    assert "not among the labels of the component ('TOOL')" in squeeze(result.output)


def test_documents_without_the_key_are_counted(config, train, dev):
    vocab = spacy.blank("en").vocab
    docs = list(DocBin().from_disk(train).get_docs(vocab))
    DocBin(docs=[*docs, Doc(vocab, words=["more"])], store_user_data=True).to_disk(train)
    result = run(config, train, dev)
    assert result.exit_code == 0, result.output
    assert "is missing from 1 of 13 documents, so that these teach and" in squeeze(result.output)


def test_data_that_is_missing_is_named(config, train, tmp_path):
    result = run(config)
    assert result.exit_code == 1
    assert "the config names none" in squeeze(result.output)
    result = run(config, tmp_path / "no.spacy")
    assert result.exit_code == 1
    assert "no.spacy does not exist" in squeeze(result.output)
    result = run(config, train, "--train", train)
    assert "Got train data twice" in squeeze(result.output)


def test_files_and_settings_are_told_apart():
    arguments = ["a.spacy", "--x.y", "-1", "b.spacy", "--x.z=2", "c"]
    assert _split(arguments) == (["a.spacy", "b.spacy", "c"], ["--x.y", "-1", "--x.z=2"])
