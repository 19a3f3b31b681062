"""`python -m spacy spans bench` as a user calls it."""

import json

import pytest
import spacy
from spacy.cli._util import app
from spacy.tokens import DocBin, Span
from typer.testing import CliRunner

import spacy_spans.cli  # noqa: F401  adds the command to the app


def run(*args):
    return CliRunner().invoke(app, ["spans", "bench", *map(str, args)])


@pytest.fixture
def pipeline(tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("span_ruler", config={"spans_key": "sc"}).add_patterns(
        [{"label": "TOOL", "pattern": "Python"}]
    )
    nlp.to_disk(tmp_path / "pipeline")
    return tmp_path / "pipeline"


@pytest.fixture
def data(tmp_path):
    doc = spacy.blank("en")("Python or Rust")
    doc.spans["sc"] = [Span(doc, 0, 1, label="TOOL"), Span(doc, 2, 3, label="TOOL")]
    DocBin(docs=[doc]).to_disk(tmp_path / "data.spacy")
    return tmp_path / "data.spacy"


def test_prints_a_table_and_writes_json_and_plots(pipeline, data, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib (extra viz) is not installed")
    vary = ("--vary", "components.span_ruler.spans_key=sc")
    options = ("--runs", 1, "--threads", 1, "--json", tmp_path / "out.json", *vary)
    result = run(pipeline, "--data", data, *options, "--plot", tmp_path / "plot.png")
    assert result.exit_code == 0, result.output
    (row,) = (line.split() for line in result.stdout.splitlines() if "best" in line)
    assert (*row[:2], row[6], row[-1]) == ("pipeline", "spans_key=sc", "66.7", "best")
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf8"))
    assert report["data"] == str(data)
    assert report["pipelines"][0]["f"] == pytest.approx(2 / 3)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (tmp_path / "plot.svg").read_text(encoding="utf8")


def test_mistakes_stop_before_anything_is_measured(pipeline, data, tmp_path):
    result = run(pipeline, "--data", data, "--json", tmp_path / "no" / "out.json")
    assert result.exit_code == 1
    assert "folder that does not exist" in " ".join(result.output.split())
    result = run(pipeline, pipeline, "--data", data)
    assert result.exit_code == 1
    assert "each under a name of its own" in " ".join(result.output.split())
    result = run(tmp_path, "--data", data, "--runs", 1)
    assert result.exit_code == 1
    assert "has no config.cfg" in " ".join(result.output.split())
