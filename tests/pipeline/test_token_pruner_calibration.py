"""Thresholds of `token_pruner` that are fitted for a recall."""

import numpy as np
import pytest
import spacy
import srsly
from spacy.tokens import Doc
from spacy.training import Example

from spacy_spans.errors import DataError, SettingsError, SpansError, SpansWarning
from spacy_spans.policies import RecallTarget

from . import make_examples, train, train_on, write_spans
from .pruner import RECALL, SPARSE, TEXTS, give_scores, kept, make_nlp


def test_a_recall_target_keeps_everything_until_it_is_fitted(tmp_path):
    nlp, pipe = make_nlp(policy=RECALL)
    examples = make_examples(nlp, SPARSE)
    train(nlp, examples, steps=60)
    with pytest.warns(SpansWarning, match=r"fitted for recall = 0.9.*calibrate-pruner"):
        assert kept(nlp(TEXTS[0])) == [(0, 9)]
    fitted = pipe.calibrate(examples)
    assert (fitted.span_recall, fitted.keep_ratio) == (1.0, 4 / 16)
    assert kept(nlp(TEXTS[0])) == [(2, 4)]
    nlp.to_disk(tmp_path)
    assert kept(spacy.load(tmp_path)(TEXTS[0])) == [(2, 4)]
    # Of another recall it knows nothing.
    override = {"components.token_pruner.policy.recall": 0.5}
    with pytest.warns(SpansWarning, match="recall = 0.5"):
        assert kept(spacy.load(tmp_path, config=override)(TEXTS[0])) == [(0, 9)]


def test_a_fitted_threshold_keeps_the_same_tokens_when_loaded(
    trained_pruner, monkeypatch, tmp_path
):
    nlp, pipe = make_nlp(policy={**RECALL, "recall": 1.0})
    pipe.from_bytes(trained_pruner.get_pipe("token_pruner").to_bytes(), exclude=["vocab"])
    doc = write_spans(nlp.make_doc("a b c"), "sc", [(1, 2, "A")])
    # JSON as spaCy writes it would round this score up, above itself.
    scores = np.asarray([0.5, 1.01702797e-05, 1e-9], dtype="f")
    give_scores(pipe, monkeypatch, scores)
    fitted = pipe.calibrate([Example(nlp.make_doc("a b c"), doc)])
    assert 1.01e-05 < fitted.threshold <= scores[1]
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    other = loaded.get_pipe("token_pruner")
    assert other.cfg["fitted_threshold"] == pytest.approx(fitted.threshold, rel=1e-9)
    give_scores(other, monkeypatch, scores)
    assert kept(loaded("a b c")) == kept(nlp("a b c")) == [(0, 2)]


def test_training_on_after_fitting_warns_once():
    nlp, pipe = make_nlp(policy=RECALL)
    examples = make_examples(nlp, SPARSE)
    train(nlp, examples, steps=2)
    pipe.calibrate(examples)
    message = "token_pruner is trained further, but `spacy spans calibrate-pruner` fitted"
    with pytest.warns(SpansWarning, match=message):
        train_on(nlp, examples, steps=1)
    train_on(nlp, examples, steps=2)
    assert pipe.cfg["fitted_threshold"] is not None
    # Trained anew, it has no threshold, and nothing to warn of.
    train(nlp, examples, steps=2)
    assert pipe.cfg["fitted_threshold"] is None


@pytest.mark.parametrize("key", ["fitted_threshold", "fitted_recall"])
@pytest.mark.parametrize("value", ["x", -0.1, 1.1, [0.5]])
def test_a_damaged_fit_is_an_error_that_names_the_file(trained_pruner, tmp_path, key, value):
    trained_pruner.to_disk(tmp_path)
    path = tmp_path / "token_pruner" / "cfg"
    srsly.write_json(path, {**srsly.read_json(path), key: value})
    with pytest.raises(DataError, match=rf"{path}' cannot be read: its {key} is .*expected 0 to 1"):
        trained_pruner.get_pipe("token_pruner").from_disk(path.parent, exclude=["vocab"])


@pytest.mark.parametrize("context", [0, 1])
def test_calibration_says_what_is_kept(monkeypatch, context):
    nlp, pipe = make_nlp(context=context, always_keep=["hits"])
    random = np.random.default_rng(0)
    words = ["w"] * 40
    examples = []
    for _ in range(5):
        doc, reference = Doc(nlp.vocab, words=words), Doc(nlp.vocab, words=words)
        starts = random.choice(36, 4, replace=False).tolist()
        write_spans(reference, "sc", [(start, start + 3, "A") for start in starts])
        examples.append(Example(write_spans(doc, "hits", [(0, 2)]), reference))
    give_scores(pipe, monkeypatch, random.random(40))
    for recall in (0.3, 0.8, 1.0):
        pipe.policy = RecallTarget(recall)
        fitted = pipe.calibrate(examples)
        for example in examples:
            pipe(example.predicted)
        scores = pipe.score(examples)
        assert scores["kept_tokens_span_recall"] == pytest.approx(fitted.span_recall)
        assert scores["kept_tokens_keep_ratio"] == pytest.approx(fitted.keep_ratio)
        assert fitted.span_recall >= recall
        # The next higher threshold would keep too few.
        assert pipe.trade_off(examples, [recall])[0] == fitted


def test_what_cannot_be_calibrated(trained_pruner, monkeypatch):
    pipe = trained_pruner.get_pipe("token_pruner")
    with pytest.raises(SettingsError, match="recall_target_policy"):
        pipe.calibrate(make_examples(trained_pruner, SPARSE))
    monkeypatch.setattr(pipe, "policy", RecallTarget(0.9))
    with pytest.raises(SpansError, match=r"No .*document has doc.spans"):
        pipe.calibrate(make_examples(trained_pruner, SPARSE, "other"))
    monkeypatch.setitem(pipe.cfg, "min_run", 2)
    with pytest.raises(SpansError, match=r"with min_run = \d: a lower"):
        pipe.calibrate(make_examples(trained_pruner, SPARSE))
