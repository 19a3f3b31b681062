"""What other commands of spaCy do to a pipeline, done to one with each component."""

import shutil
import sys

import pytest
import spacy
import srsly
from spacy.cli.assemble import assemble_cli
from spacy.cli.debug_config import debug_config
from spacy.cli.evaluate import evaluate
from spacy.cli.find_threshold import find_threshold
from spacy.cli.init_pipeline import init_labels_cli
from spacy.cli.package import package
from spacy.training import Corpus
from spacy.training.initialize import init_nlp
from thinc.api import Config

from . import (
    LABELS,
    TEXTS,
    make_nlp,
    predictions,
    scored,
    train_by_heart,
    write_config,
    write_corpus,
)


class Context:
    """What commands get of the command line: no overrides."""

    args = ()


def test_init_labels_writes_a_file_that_training_reads(factory, corpus, capsys):
    path = write_config(make_nlp(factory=factory), corpus)
    init_labels_cli(Context(), path, corpus.parent / "labels", None, False, -1)
    assert "Saving label data" in capsys.readouterr().out
    labels = corpus.parent / "labels" / f"{factory}.json"
    assert srsly.read_json(labels) == list(LABELS)
    config = Config().from_disk(path)
    reader = {"@readers": "spacy.read_labels.v1", "path": str(labels), "require": True}
    config["initialize"]["components"] = {factory: {"labels": reader}}
    assert init_nlp(config).get_pipe(factory).labels == LABELS


@pytest.fixture(scope="module")
def unsure(factory, tmp_path_factory):
    """A pipeline on disk whose threshold is above most of its scores, and its corpus."""
    folder = tmp_path_factory.mktemp("unsure")
    nlp = train_by_heart(factory)
    scores = sorted(span[3] for text in TEXTS for span in scored(nlp(text)))
    # Between two scores: in other batches they differ in the last digits.
    nlp.get_pipe(factory).cfg["threshold"] = (scores[-3] + scores[-2]) / 2
    nlp.to_disk(folder / "pipeline")
    return folder / "pipeline", write_corpus(folder, factory)


def test_find_threshold_picks_one_that_separates(factory, unsure, capsys):
    pipeline, corpus = unsure
    nlp = spacy.load(pipeline)
    examples = list(Corpus(corpus)(nlp))
    assert nlp.evaluate(examples)["spans_sc_f"] < 1.0
    best, score, trials = find_threshold(
        pipeline, corpus, factory, "threshold", "spans_sc_f", n_trials=5
    )
    assert capsys.readouterr().out.count("\n") >= 6
    assert score == 1.0
    assert list(trials) == [0.0, 0.25, 0.5, 0.75, 1.0]
    # Each trial has its own outcome: at 1 next to nothing is written, and at 0 every candidate,
    # but no more than the best tags.
    assert trials[1.0] < 0.5
    if factory == "span_enumerator":
        assert trials[0.0] < 0.2
        assert 0.0 < best < 1.0
    else:
        assert (best, trials[0.0]) == (0.0, 1.0)
    nlp.get_pipe(factory).cfg["threshold"] = best
    assert nlp.evaluate(examples)["spans_sc_f"] == 1.0


def test_evaluate_reports_the_scores(unsure, tmp_path):
    pipeline, corpus = unsure
    scores = evaluate(str(pipeline), corpus, tmp_path / "scores.json", spans_key="sc")
    for key in ("spans_sc_p", "spans_sc_r", "spans_sc_f", "spans_sc_per_type"):
        assert key in scores
    # What is found is right, but not all is found.
    assert scores["spans_sc_p"] == 1.0
    assert 0.0 < scores["spans_sc_r"] < 1.0
    stored = srsly.read_json(tmp_path / "scores.json")
    assert stored["spans_sc_f"] == pytest.approx(scores["spans_sc_f"])


@pytest.mark.parametrize("frozen", [False, True])
def test_assemble_puts_a_trained_component_into_another_pipeline(factory, tmp_path, frozen):
    source = train_by_heart(factory)
    source.to_disk(tmp_path / "source")
    config = Config().from_str(
        f"""
        [nlp]
        lang = "en"
        pipeline = ["sentencizer", "finder"]

        [components]

        [components.sentencizer]
        factory = "sentencizer"

        [components.finder]
        source = {srsly.json_dumps(str(tmp_path / "source"))}
        component = "{factory}"

        [training]
        frozen_components = {srsly.json_dumps(["finder"] * frozen)}
        """
    )
    config.to_disk(tmp_path / "assemble.cfg")

    assemble_cli(Context(), tmp_path / "assemble.cfg", tmp_path / "out", None, False)
    nlp = spacy.load(tmp_path / "out")
    assert nlp.pipe_names == ["sentencizer", "finder"]
    assert predictions(nlp) == predictions(source)


@pytest.mark.installed
# spaCy leaves files that it wrote to be closed by the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_package_needs_this_package_and_predicts_the_same(factory, tmp_path, monkeypatch):
    nlp = train_by_heart(factory)
    nlp.meta["name"] = "spans_test"
    nlp.to_disk(tmp_path / "pipeline")
    (tmp_path / "packages").mkdir()
    package(tmp_path / "pipeline", tmp_path / "packages", create_sdist=False, silent=True)
    folder = tmp_path / "packages" / "en_spans_test-0.0.0"
    requirements = srsly.read_json(folder / "meta.json")["requirements"]
    assert [name for name in requirements if name.startswith("spacy-spans")]
    # As its setup.py does when the package is built.
    shutil.copy(folder / "meta.json", folder / "en_spans_test")
    monkeypatch.syspath_prepend(str(folder))
    try:
        import en_spans_test

        assert predictions(en_spans_test.load()) == predictions(nlp)
    finally:
        sys.modules.pop("en_spans_test", None)


def test_debug_config_accepts_what_training_writes(factory, corpus, capsys):
    path = write_config(make_nlp(factory=factory), corpus)
    debug_config(path)
    assert capsys.readouterr().out.count("Config is valid") == 1


def test_a_config_with_a_setting_that_does_not_exist_is_refused(factory, corpus):
    path = write_config(make_nlp(factory=factory), corpus)
    config = Config().from_disk(path)
    config["components"][factory]["treshold"] = 0.4
    config.to_disk(path)
    with pytest.raises(SystemExit):
        debug_config(path)
