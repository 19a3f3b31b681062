"""`spacy spans calibrate-pruner`, and the report behind it."""

import pytest
import spacy
import srsly
from spacy.cli._util import app
from spacy.tokens import DocBin
from typer.testing import CliRunner

import spacy_spans.cli  # noqa: F401  adds the command to the app

from ..pipeline import make_examples, train
from ..pipeline.pruner import RECALL, SPARSE, TEXTS, kept, make_nlp

pytestmark = pytest.mark.installed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrate_pruner")
    docs = [eg.reference for eg in make_examples(spacy.blank("en"), SPARSE) if len(eg.reference)]
    DocBin(docs=docs).to_disk(folder / "data.spacy")
    for name, policy in (("target", {"policy": RECALL}), ("plain", {})):
        nlp, _ = make_nlp(**policy)
        train(nlp, make_examples(nlp, SPARSE), steps=60)
        nlp.to_disk(folder / name)
    return folder


def run(folder, *args):
    paths = [str(folder / arg) if "." in arg or arg.isalnum() else arg for arg in args]
    return CliRunner().invoke(app, ["spans", "calibrate-pruner", *paths])


def test_fits_shows_and_saves(folder):
    result = run(folder, "target", "data.spacy", "--output", "out", "--json", "report.json")
    assert result.exit_code == 0, result.output
    assert "0.900 (fitted)" in result.output
    report = srsly.read_json(folder / "report.json")
    assert (report["component"], report["recall"]) == ("token_pruner", 0.9)
    assert report["fitted"]["span_recall"] == 1.0
    assert [row["recall"] for row in report["trade_off"]][-1] == 1.0
    assert kept(spacy.load(folder / "out")(TEXTS[0])) == [(2, 4)]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("plain", "data.spacy", "--output", "out2"), "recall_target_policy"),
        (("target", "data.spacy", "--output", "target"), "inside of the input"),
        (("target", "data.spacy", "--output", "out2", "--name", "-"), "['token_pruner']"),
    ],
)
def test_what_cannot_be_done_is_an_error(folder, args, message):
    result = run(folder, *args)
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
    assert not (folder / "out2").exists()
