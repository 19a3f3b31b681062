"""`spacy spans calibrate` as a user calls it."""

import pytest
import spacy
import srsly
from spacy.cli._util import app
from spacy.tokens import DocBin
from typer.testing import CliRunner

import spacy_spans.cli  # noqa: F401  adds the command to the app

from ..pipeline import DATA, make_trained

pytestmark = pytest.mark.installed


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A pipeline that knows its data by heart, these data, and a pipeline without components."""
    folder = tmp_path_factory.mktemp("calibrate")
    nlp = make_trained(threshold=0.05)
    nlp.to_disk(folder / "trained")
    docs = []
    for text, spans in DATA:
        doc = nlp.make_doc(text)
        doc.spans["sc"] = [spacy.tokens.Span(doc, *span[:3]) for span in spans]
        docs.append(doc)
    DocBin(docs=docs).to_disk(folder / "dev.spacy")
    DocBin().to_disk(folder / "empty.spacy")
    for doc in docs:
        doc.spans["other"] = doc.spans.pop("sc")
    DocBin(docs=docs).to_disk(folder / "other.spacy")
    spacy.blank("en").to_disk(folder / "blank")
    return folder


def run(*args):
    return CliRunner().invoke(app, ["spans", "calibrate", *map(str, args)])


def test_fits_shows_and_saves(trained, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib (extra viz) is not installed")
    options = ("--output", tmp_path / "out", "--json", tmp_path / "report.json", "--min-gold", 1)
    result = run(trained / "trained", trained / "dev.spacy", *options, "--samples", 50)
    assert result.exit_code == 0, result.output
    report = srsly.read_json(tmp_path / "report.json")
    assert report == srsly.read_json(tmp_path / "out" / "calibration" / "report.json")
    for name in ("reliability.png", "precision_recall.png"):
        image = (tmp_path / "out" / "calibration" / name).read_bytes()
        assert image.startswith(b"\x89PNG")
    nlp = spacy.load(tmp_path / "out")
    pipe = nlp.get_pipe("span_enumerator")
    assert pipe.cfg["score_map"] is not None
    # What was learned by heart is found again, now with the thresholds that were fitted.
    for text, spans in DATA:
        doc = nlp(text)
        found = {(span.start, span.end, span.label_) for span in doc.spans["sc"]}
        assert found == {tuple(span[:3]) for span in spans}
    # The pipeline that was read is as before.
    assert spacy.load(trained / "trained").get_pipe("span_enumerator").cfg["score_map"] is None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("blank",), "Name one of them, or train a span_enumerator"),
        (("trained", "--name", "no"), "Got the component 'no'"),
        (("trained", "--metric", "no"), "precision_at_recall"),
        (("trained", "--metric", "precision_at_recall"), "Expected at, from 0 to 1"),
        (("trained", "--metric", "precision_at_recall", "--at", "90"), "Got at = 90.0"),
        (("trained", "--at", "0.9"), 'and none with "f"'),
        (("trained", "--method", "no"), "isotonic"),
        (("trained", "--beta", "0"), "Got beta = 0"),
        (("trained", "--beta", "nan"), "Got beta = nan"),
        (("missing",), "no config.cfg"),
    ],
)
def test_what_cannot_be_done_is_an_error_and_leaves_nothing(trained, tmp_path, args, message):
    pipeline, *options = args
    result = run(trained / pipeline, trained / "dev.spacy", "--output", tmp_path / "out", *options)
    assert result.exit_code == 1, result.output
    assert message in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("empty.spacy", "The data has no documents"),
        ("other.spacy", "The data has no doc.spans['sc'], which 'span_enumerator' writes, only"),
        ("none.spacy", "does not exist"),
        ("trained/meta.json", "is not a .spacy file, or is damaged"),
    ],
)
def test_data_that_do_not_fit_are_an_error_and_leave_nothing(trained, tmp_path, data, message):
    result = run(trained / "trained", trained / data, "--output", tmp_path / "out")
    assert result.exit_code == 1, result.output
    assert message in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "json_path", "message"),
    [
        ("trained", "out.json", "is, holds or lies inside of the input"),
        ("dev.spacy", "out.json", "is a file, expected a folder"),
        ("out", "out", "are the same file, expected two"),
    ],
)
def test_outputs_are_checked_before_anything_is_loaded(trained, output, json_path, message):
    before = sorted(trained.rglob("*"))
    paths = (trained / output, "--json", trained / json_path)
    result = run(trained / "trained", trained / "none.spacy", "--output", *paths)
    assert result.exit_code == 1, result.output
    assert message in " ".join(result.output.split())
    assert sorted(trained.rglob("*")) == before
