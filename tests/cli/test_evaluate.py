"""`python -m spacy spans evaluate` as a user calls it."""

import json

import pytest
import spacy
from spacy.cli._util import app
from spacy.tokens import DocBin, SpanGroup
from typer.testing import CliRunner

import spacy_spans.cli  # noqa: F401  adds the command to the app


def run(*args):
    return CliRunner().invoke(app, ["spans", "evaluate", *map(str, args)])


def squeeze(text):
    """Without the line breaks that messages are wrapped with."""
    return " ".join(text.split())


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
        for key in ("sc", "other"):
            spans = [doc.char_span(0, end, label="TOOL")] if end else []
            doc.spans[key] = SpanGroup(doc, name=key, spans=spans)
        docs.append(doc)
    DocBin(docs=docs).to_disk(tmp_path / "data.spacy")
    return tmp_path / "data.spacy"


def test_prints_tables_and_writes_json(pipeline, data, tmp_path):
    result = run(pipeline, data, "--json", tmp_path / "out.json", "--batch-size", 2)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["Strict", "50.0", "50.0", "50.0"] in rows
    assert ["1", "Rust", "or", "Python", "1", "1"] in rows
    assert "'other']: 2 gold spans in 4 documents, but the pipeline does not" in result.stdout
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf8"))
    assert (report["pipeline"], report["data"]) == (str(pipeline), str(data))
    assert report["keys"]["sc"]["scores"]["f"] == 0.5
    assert report["keys"]["other"]["predicted"] is None
    assert len(report["docs"]) == 4


def test_keys_and_the_number_of_documents_can_be_chosen(pipeline, data):
    result = run(pipeline, data, "--spans-key", "sc", "--worst", 0)
    assert result.exit_code == 0, result.output
    assert "other" not in result.stdout
    assert "Rust or Python" not in result.stdout
    result = run(pipeline, data, "--spans-key", "sc, other")
    assert result.exit_code == 0, result.output
    assert "other" in result.stdout


def test_code_is_imported_before_the_pipeline_is_loaded(data, tmp_path):
    code = tmp_path / "code.py"
    code.write_text(
        "from spacy.language import Language\n"
        "@Language.component('tests_marks_nothing')\n"
        "def mark(doc):\n"
        "    doc.spans['sc'] = []\n"
        "    return doc\n"
    )
    # A config that names a component this process does not know.
    nlp = spacy.blank("en")
    path = tmp_path / "coded"
    nlp.to_disk(path)
    config = nlp.config.copy()
    config["nlp"]["pipeline"] = ["mark"]
    config["components"] = {"mark": {"factory": "tests_marks_nothing"}}
    config.to_disk(path / "config.cfg")
    result = run(path, data)
    assert result.exit_code == 1
    assert "cannot be loaded" in squeeze(result.output)
    result = run(path, data, "--code", code)
    assert result.exit_code == 0, result.output
    assert "2 gold spans in 4 documents, 0 predicted in 4 documents" in result.stdout


def test_what_cannot_work_exits_with_a_message(pipeline, data, tmp_path):
    empty = tmp_path / "empty.spacy"
    DocBin().to_disk(empty)
    bare = tmp_path / "bare.spacy"
    DocBin(docs=[spacy.blank("en")("No spans")]).to_disk(bare)
    out = tmp_path / "out.json"
    for args, message in (
        ((tmp_path / "missing", data), "is not the folder of a pipeline"),
        ((data, data), "is not the folder of a pipeline"),
        # Installed, but no pipeline.
        (("spacy", data), "The pipeline in spacy cannot be loaded"),
        ((pipeline, tmp_path / "missing.spacy"), "does not exist"),
        ((pipeline, pipeline / "config.cfg"), "is not a .spacy file, or is damaged"),
        ((pipeline, empty), "The data has no documents"),
        ((pipeline, bare), "None of the 1 documents of the data has a group"),
        ((pipeline, data, "-k", "other"), "None of these keys is in both"),
        ((pipeline, data, "-k", "nowhere"), "There is no doc.spans['nowhere']"),
        ((pipeline, data, "-k", ""), "There is no doc.spans['']"),
        ((pipeline, data, "--code", tmp_path / "code.py"), "expected a Python file"),
    ):
        result = run(*args, "--json", out)
        assert result.exit_code == 1, args
        assert message in squeeze(result.output)
        assert not out.exists()


def test_a_damaged_pipeline_exits_with_a_message(pipeline, data):
    (pipeline / "meta.json").write_text("{")
    result = run(pipeline, data)
    assert result.exit_code == 1
    assert "cannot be loaded (ValueError" in squeeze(result.output)


def test_the_report_replaces_no_input(pipeline, data):
    before = data.read_bytes()
    for path, message in (
        (data, "is also the input"),
        (pipeline / "meta.json", "lies inside of the input"),
    ):
        result = run(pipeline, data, "--json", path)
        assert result.exit_code == 1
        assert message in squeeze(result.output)
    assert data.read_bytes() == before


@pytest.mark.parametrize("args", [["--worst", "-1"], ["--batch-size", "0"]])
def test_numbers_out_of_range_are_refused(pipeline, data, args):
    assert run(pipeline, data, *args).exit_code == 2


def test_help_explains_the_scores():
    result = run("--help")
    assert result.exit_code == 0
    assert "credits the shared tokens" in squeeze(result.stdout.replace("│", " "))
