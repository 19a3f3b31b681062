"""`python -m spacy spans render` as a user calls it."""

import pytest
import spacy
from spacy.cli._util import app
from spacy.tokens import DocBin, SpanGroup
from typer.testing import CliRunner

import spacy_spans.cli  # noqa: F401  adds the command to the app

pytestmark = pytest.mark.installed


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


def test_writes_one_page(pipeline, data, tmp_path):
    page = tmp_path / "page.html"
    result = run(pipeline, data, "--output", page, "--title", "Tools <1>")
    assert result.exit_code == 0, result.output
    assert "Wrote 4 documents" in result.output
    html = page.read_text(encoding="utf8")
    assert html.startswith("<!DOCTYPE html>")
    assert "<title>Tools &lt;1&gt;</title>" in html
    assert "1 of 4 documents differ from gold: 1 spans missed, 1 wrong." in html
    assert "Document 2: 1 missed, 1 wrong" in html


def test_limit_takes_the_first_documents(pipeline, data, tmp_path):
    for limit in (0, 1):
        result = run(pipeline, data, "-o", tmp_path / "page.html", "--limit", limit)
        assert result.exit_code == 0, result.output
        html = (tmp_path / "page.html").read_text(encoding="utf8")
        assert html.count("<section>") == limit


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
        ((pipeline, data, "--spans-key", "other"), "The data has no doc.spans['other']"),
    ):
        result = run(*args, "--output", page)
        assert result.exit_code == 1
        assert message in " ".join(result.output.split())
    assert not page.exists()
    result = run(pipeline, data, "--output", tmp_path / "missing" / "page.html")
    assert result.exit_code == 1
    assert "a folder that does not exist" in " ".join(result.output.split())
