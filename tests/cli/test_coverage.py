"""`python -m spacy spans coverage` as a user calls it."""

import json
import sys

import pytest
import spacy
from spacy.cli._util import app
from spacy.tokens import DocBin, SpanGroup
from typer.testing import CliRunner

import spacy_spans.cli  # noqa: F401  adds the command to the app


def run(*args):
    return CliRunner().invoke(app, ["spans", "coverage", *map(str, args)])


def squeeze(text):
    """Without the line breaks that messages are wrapped with."""
    return " ".join(text.split())


@pytest.fixture
def data(tmp_path):
    doc = spacy.blank("en")("Plan the work and do it well")
    doc.spans["gold"] = SpanGroup(doc, name="gold", spans=[doc.char_span(0, 13, label="DUTY")])
    DocBin(docs=[doc]).to_disk(tmp_path / "data.spacy")
    return tmp_path / "data.spacy"


def test_prints_tables_and_writes_json(data, tmp_path):
    result = run(data, "--spans-key", "gold", "--json", tmp_path / "out.json")
    assert result.exit_code == 0, result.output
    assert "DUTY" in result.stdout
    assert "Gold reached" in result.stdout
    assert "Up to 4 tokens reach 100.0 % of the spans" in result.stdout
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf8"))
    assert report["data"] == str(data)
    assert report["labels"]["DUTY"]["spans"] == 1
    assert report["recommendation"]["max_length"] == 4


def test_max_cost_changes_the_recommendation(data):
    result = run(data, "--spans-key", "gold", "--max-cost", "10")
    assert "spacy-spans.boundary_candidates.v1" in result.stdout


def test_a_missing_key_exits_with_the_ones_there(data, tmp_path):
    result = run(data, "--json", tmp_path / "out.json")
    assert result.exit_code == 1
    assert "'gold' (1 spans in 1 documents)" in squeeze(result.output)
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["missing.spacy"], "does not exist"),
        (["DATA", "--lang", "nonsense"], "No tokenizer for language 'nonsense'"),
        (["DATA", "--json", "missing/out.json"], "a folder that does not exist"),
    ],
)
def test_what_cannot_work_exits_with_a_message(data, args, message):
    result = run(*(data if arg == "DATA" else arg for arg in args))
    assert result.exit_code == 1
    assert message in squeeze(result.output)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--json", "data.spacy"], "is also the input"),
        (["--plot", "data.spacy"], "is also the input"),
        (["--json", "a.svg", "--plot", "a.svg"], "are the same file"),
        (["--json", "/dev/null"], "is a device or a pipe"),
    ],
)
def test_outputs_replace_nothing_else(data, monkeypatch, args, message):
    monkeypatch.chdir(data.parent)
    before = data.read_bytes()
    result = run(data, "--spans-key", "gold", *args)
    assert result.exit_code == 1
    assert message in squeeze(result.output)
    assert data.read_bytes() == before
    assert [path.name for path in data.parent.iterdir()] == ["data.spacy"]


def test_the_most_that_candidates_may_cost_is_not_negative(data):
    result = run(data, "--spans-key", "gold", "--max-cost", "-5")
    assert result.exit_code == 2


def test_an_empty_file_gives_a_report(tmp_path):
    DocBin().to_disk(tmp_path / "empty.spacy")
    result = run(tmp_path / "empty.spacy")
    assert result.exit_code == 0, result.output
    assert "There are no spans to reach" in result.stdout


def test_plot_needs_matplotlib_and_says_so_first(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(data, "--spans-key", "gold", "--plot", tmp_path / "plot.png")
    assert result.exit_code == 1
    assert "pip install 'spacy-spans[viz]'" in squeeze(result.output)
    assert "DUTY" not in result.output


def test_plot_is_written(data, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib (extra viz) is not installed")
    result = run(data, "--spans-key", "gold", "--plot", tmp_path / "plot.svg")
    assert result.exit_code == 0, result.output
    assert "<svg" in (tmp_path / "plot.svg").read_text(encoding="utf8")


def test_help_explains_the_shares():
    result = run("--help")
    assert result.exit_code == 0
    assert "--max-cost" in result.stdout
    assert "nested and overlap" in squeeze(result.stdout.replace("│", " "))
