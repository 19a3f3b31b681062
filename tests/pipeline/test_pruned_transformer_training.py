"""Training of `pruned_transformer`: what is dropped meanwhile, what gates learn, going on."""

import math
import random

import numpy as np
import pytest
import spacy
import torch
from spacy.training import Example
from thinc.api import Adam

from spacy_spans.encoder.forward import draw_threshold
from spacy_spans.errors import SettingsError, SpansWarning

from . import logit, make_example, write_spans
from .pruned import (
    QUIET,
    attrs_of,
    gates_of,
    kept_mask,
    make_examples,
    make_nlp,
    make_stock,
    random_texts,
    train,
    vectors,
)

pytestmark = [pytest.mark.slow, QUIET]


def make_gates_say(nlp, *probabilities):
    """Let each gate find all words equally relevant."""
    for gate, probability in zip(gates_of(nlp), probabilities, strict=True):
        with torch.no_grad():
            gate.score.weight.zero_()
            gate.score.bias.fill_(logit(probability))


def kept_in_update(nlp, seed=3, **kwargs):
    """Update once. RETURNS what of its documents the span_enumerator learns on, tokens of all."""
    pipe = nlp.get_pipe("span_enumerator")
    update = type(pipe).update
    masks = []

    def spy(examples, **own):
        examples = list(examples)
        masks.extend(kept_mask(example.predicted) for example in examples)
        return update(pipe, examples, **own)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipe, "update", spy, raising=False)
        # Of the ratio that is drawn.
        random.seed(seed)
        nlp.update(make_examples(nlp), sgd=Adam(0.001), **kwargs)
    return np.concatenate(masks)


def test_components_that_come_after_see_what_was_kept_of_the_vectors_they_learn_on(bert):
    nlp = make_nlp(bert, train_keep_ratio=0.3)
    nlp.initialize(lambda: make_examples(nlp))
    few, many = kept_in_update(nlp, seed=1), kept_in_update(nlp, seed=7)
    # By the ratios that were drawn, and windows round up.
    assert [round(random.Random(seed).uniform(0.3, 1.0), 2) for seed in (1, 7)] == [0.39, 0.53]
    assert 0.39 <= few.mean() < many.mean() < 0.7


def test_without_a_ratio_thresholds_are_drawn_as_far_apart_in_log_odds(bert, monkeypatch):
    nlp = make_nlp(bert, keep_ratio=None, threshold=0.1)
    nlp.initialize(lambda: make_examples(nlp))
    drawn = []

    def uniform(low, high):
        drawn.append((low, high))
        return high

    monkeypatch.setattr(random, "uniform", uniform)
    # 1 to 9 times e ** 2; the ratio that is the lowest in training has no say here.
    assert draw_threshold(0.1) == pytest.approx(math.exp(2) / (9 + math.exp(2)))
    assert draw_threshold(0.5) == pytest.approx(math.exp(2) / (1 + math.exp(2)))
    assert [draw_threshold(0.0), draw_threshold(1.0)] == [0.0, 1.0]
    assert drawn == [(-2.0, 2.0)] * 2
    # All words look alike to gates, and as likely as this.
    for bias, share in ((0.452, 1.0), (0.45, 0.0)):
        make_gates_say(nlp, bias)
        assert kept_in_update(nlp).mean() == share


@pytest.mark.filterwarnings("ignore:.*do not lie inside one run")
def test_the_stock_factory_annotates_where_it_is_told_to(pruned, bert, tmp_path):
    pruned.to_disk(tmp_path)
    make_stock(tmp_path)
    nlp = spacy.load(tmp_path)
    kept = kept_in_update(nlp, annotates=["transformer"])
    assert 0 < kept.mean() < 1


def test_nothing_is_dropped_in_training_before_the_warm_up_is_over(bert):
    nlp = make_nlp(bert, warmup_steps=3, train_keep_ratio=0.01)
    nlp.initialize(lambda: make_examples(nlp))
    n_kept = []
    gates = []
    for _ in range(5):
        n_kept.append(float(kept_in_update(nlp).mean()))
        gates.append(nlp.get_pipe("transformer").model.layers[1].to_bytes())
    assert [share == 1.0 for share in n_kept] == [True, True, True, False, False]
    # Gates learn from the first update on.
    assert len(set(gates)) == 5
    assert attrs_of(nlp)["n_updates"] == 5


# The loss that is reported


# With a threshold of 1 the first gate drops all words: the second one has nothing to say.
@pytest.mark.parametrize(
    ("settings", "in_use"),
    [({"warmup_steps": 10}, [0.2, 0.6]), ({"keep_ratio": None, "threshold": 1.0}, [0.2])],
)
def test_the_loss_is_the_cross_entropy_of_the_gates(bert, settings, in_use):
    nlp = make_nlp(bert, gates=[1, 3], **settings)
    nlp.initialize(lambda: make_examples(nlp))
    make_gates_say(nlp, 0.2, 0.6)
    data = [("we want cooks", [(2, 3)]), ("law and food unbelix", [(0, 1), (3, 4)]), ("", [])]
    examples = [make_example(nlp, text, [(*span, "W") for span in spans]) for text, spans in data]
    # Without the key: nothing is known of its words.
    examples.append(Example(nlp.make_doc("who know law"), nlp.make_doc("who know law")))
    of_gates = [-(3 * math.log(p) + 4 * math.log(1 - p)) / 7 for p in in_use]
    expected = sum(of_gates) / len(of_gates)
    losses = nlp.update(examples, sgd=False)
    assert losses["transformer"] == pytest.approx(expected)
    nlp.update(examples, sgd=False, losses=losses)
    assert losses["transformer"] == pytest.approx(2 * expected)
    assert nlp.update(examples[3:], sgd=False)["transformer"] == 0.0
    assert "transformer" not in nlp.update(examples[2:3], sgd=False)


@pytest.mark.parametrize("settings", [{"gates": []}, {"criterion": "norm", "keep_ratio": 1.0}])
def test_without_gates_that_learn_the_loss_is_that_of_stock(bert, settings):
    losses = []
    for factory in ("pruned_transformer", "transformer"):
        nlp = make_nlp(bert, factory, **settings, train_keep_ratio=1.0)
        nlp.initialize(lambda nlp=nlp: make_examples(nlp))
        annotates = ["transformer"] if factory == "transformer" else []
        losses.append(nlp.update(make_examples(nlp), sgd=False, annotates=annotates))
    assert losses[0]["transformer"] == losses[1]["transformer"] > 0


# Going on


def test_training_goes_on_where_it_was(bert, tmp_path):
    nlp = make_nlp(bert, warmup_steps=4)
    nlp.initialize(lambda: make_examples(nlp))
    train(nlp, 3)
    nlp.to_disk(tmp_path)
    for resumed in (spacy.load(tmp_path), make_nlp(bert, warmup_steps=4)):
        if not attrs_of(resumed)["n_updates"]:
            resumed.initialize(lambda resumed=resumed: make_examples(resumed))
            resumed.from_bytes(nlp.to_bytes())
        assert attrs_of(resumed)["n_updates"] == 3
        assert attrs_of(resumed)["gates_trained"]
        before = train(resumed, 1)["span_enumerator"]
        assert train(resumed, 20)["span_enumerator"] < before


def test_documents_without_the_key_teach_the_gates_nothing(bert):
    nlp = make_nlp(bert)
    nlp.initialize(lambda: make_examples(nlp))
    gates = nlp.get_pipe("transformer").model.layers[1]
    before = gates.to_bytes()
    docs = [nlp.make_doc(text) for text in random_texts(6)]
    nlp.update([Example(doc, doc.copy()) for doc in docs], sgd=Adam(0.01))
    assert gates.to_bytes() == before
    # They would drop words by chance.
    assert not attrs_of(nlp)["gates_trained"]


def test_gold_that_a_training_step_drops_is_not_called_lost(bert):
    # At another ratio, in the next step or in prediction, it is there.
    nlp = make_nlp(bert, train_keep_ratio=0.1)
    nlp.initialize(lambda: make_examples(nlp))
    examples = make_examples(nlp)
    random.seed(1)
    for _, pipe in nlp.pipeline:
        pipe.update(examples)
    masks = [kept_mask(own.predicted) for own in examples]
    lost = sum(
        not mask[span.start]
        for own, mask in zip(examples, masks, strict=True)
        for span in own.reference.spans["sc"]
    )
    assert lost
    kept = nlp.get_pipe("span_enumerator").listing._kept
    assert not kept.has_warned_of_lost
    # Runs that were not drawn say what prediction would be like.
    for own in examples:
        own.predicted.spans["kept_tokens"].attrs.pop("drawn")
    docs = [own.predicted for own in examples]
    with pytest.warns(SpansWarning, match="do not lie inside one run"):
        kept.warn_of_lost(docs, "span_enumerator", "sc", lost, lost)


@pytest.mark.parametrize("texts", [[], [""], ["", " "], ["we"]])
def test_batches_of_little_are_no_error_in_training(pruned, texts):
    nlp = spacy.blank("en").from_config(pruned.config).from_bytes(pruned.to_bytes())
    examples = []
    for text in texts:
        examples.append(Example(nlp.make_doc(text), write_spans(nlp.make_doc(text), "sc", [])))
    losses = nlp.update(examples, sgd=Adam(0.001))
    assert np.isfinite(losses.get("span_enumerator", 0.0))
    assert all(np.isfinite(vectors(nlp("we want cooks"))).ravel())


def test_gates_may_be_put_elsewhere_in_training(bert):
    nlp = make_nlp(bert, gates=[1])
    nlp.initialize(lambda: make_examples(nlp))
    train(nlp, 1)
    assert attrs_of(nlp)["trained_gates"] == [1]
    attrs_of(nlp)["gates"] = [2]
    with pytest.raises(SettingsError, match=r"behind layers \[1\] were trained"):
        nlp("we want cooks")
    train(nlp, 1)
    assert attrs_of(nlp)["trained_gates"] == [2]
    assert "kept_tokens" in nlp("we want cooks").spans
    # As pipelines were stored that did not know.
    attrs_of(nlp).update(trained_gates=[], gates=[1, 2])
    with pytest.raises(SettingsError, match=r"but 1 gates were trained"):
        nlp("we want cooks")
