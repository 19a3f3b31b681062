"""`spacy spans prune-heads`: what it writes, and what stays when it ends early."""

import pytest
import spacy
import srsly
from spacy.cli._util import app
from spacy.tokens import DocBin
from typer.testing import CliRunner

import spacy_spans.cli  # noqa: F401  adds the command to the app
from spacy_spans import heads

from ..test_heads import TEXTS, heads_left, make_folder, make_gold, make_trained, predictions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prune_heads")
    nlp = make_trained(make_folder(folder / "bert"))
    nlp.to_disk(folder / "pipeline")
    DocBin(docs=make_gold(nlp)).to_disk(folder / "data.spacy")
    return folder


@pytest.fixture
def run(trained, tmp_path):
    def run_command(*args, data="data.spacy"):
        paths = [str(trained / "pipeline"), str(trained / data)]
        paths += [str(tmp_path / arg) if arg in ("out", "a.json", "a.cfg") else arg for arg in args]
        return CliRunner().invoke(app, ["spans", "prune-heads", *paths])

    return run_command


def test_prunes_shows_and_saves(run, trained, tmp_path):
    options = [
        "--ratio",
        "0.5",
        "--output",
        "out",
        "--json",
        "a.json",
        "--finetune-config",
        "a.cfg",
    ]
    result = run(*options, "--steps", "2")
    assert result.exit_code == 0, result.output
    assert "Heads: 6 of 12 stay." in result.output
    assert "words/s" in result.output
    report = srsly.read_json(tmp_path / "a.json")
    assert (report["component"], report["documents"]) == ("transformer", len(TEXTS))
    assert report["speed"]["gain"] > 0
    nlp = spacy.load(tmp_path / "out")
    stay = [[h["head"] - 1 for h in own if not h["removed_in"]] for own in report["layers"]]
    assert heads_left(nlp) == stay
    # As if it had been done without a command.
    expected = spacy.load(trained / "pipeline")
    heads.prune_heads(expected, make_gold(expected), ratio=0.5, steps=2)
    assert predictions(nlp)[0] == predictions(expected)[0]
    config = spacy.util.load_config(tmp_path / "a.cfg")
    assert config["components"]["transformer"] == {"source": str((tmp_path / "out").resolve())}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.cfg", "a.json", "out"]
    # A pipeline that is there is replaced.
    assert run("--ratio", "0.25", "--output", "out").exit_code == 0
    assert sum(map(len, heads_left(spacy.load(tmp_path / "out")))) == 9


def test_ended_in_the_middle_leaves_what_was_there(run, tmp_path, monkeypatch):
    assert run("--ratio", "0.25", "--output", "out").exit_code == 0
    before = predictions(spacy.load(tmp_path / "out"))[0]

    def write_half(self, path, **kwargs):
        (path / "config.cfg").write_text("half", encoding="utf8")
        # As Ctrl+C, or a signal that the command turns into the end of the process.
        raise SystemExit(143)

    monkeypatch.setattr(spacy.language.Language, "to_disk", write_half)
    assert run("--ratio", "0.5", "--output", "out", "--json", "a.json").exit_code == 143
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert predictions(spacy.load(tmp_path / "out"))[0] == before


def test_what_cannot_be_done_is_an_error(run, trained, tmp_path):
    def message(*args, **kwargs):
        result = run(*args, **kwargs)
        assert result.exit_code == 1
        return " ".join(result.output.split())

    assert "above 0 and below 1" in message("--ratio", "1.5", "--output", "out")
    inside = str(trained / "pipeline")
    assert "inside of the input" in message("--output", inside)
    assert "does not exist" in message("--output", "out", data="other.spacy")
    assert not (tmp_path / "out").exists()
    # The folder is replaced whole: a report in it would be gone, and other things would be.
    assert "does not exist" in message(
        "--output", "out", "--json", str(tmp_path / "out" / "a.json")
    )
    (tmp_path / "out").mkdir()
    inside = str(tmp_path / "out" / "a.json")
    assert "inside of" in message("--output", "out", "--json", inside)
    (tmp_path / "out" / "thesis.txt").write_text("", encoding="utf8")
    assert "Choose another folder" in message("--output", "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]
