"""Training `span_enumerator`: losses, gradients, empties, options, labels added later."""

import numpy as np
import pytest
import torch
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Adam

from spacy_spans.candidates import split_offsets, to_ragged
from spacy_spans.errors import SpansError
from spacy_spans.modules.span_classifier import SpanClassifier
from spacy_spans.torch_layer import layer_shim

from .. import reference
from . import (
    CANDIDATES,
    DATA,
    LABELS,
    TEXTS,
    assert_same_gradients,
    data_for,
    found,
    gradients_of,
    make_annotated_examples,
    make_example,
    make_examples,
    make_initialized,
    make_nlp,
    make_pipe,
    make_trained,
    make_update,
    scored,
    train,
    train_on,
    write_spans,
)

# Labels


def test_labels_added_before_initialize_come_first_and_are_learned():
    nlp, pipe = make_pipe()
    assert pipe.add_label("SKILL") == 1
    assert pipe.add_label("SKILL") == 0
    assert pipe.labels == ("SKILL",)
    train(nlp, make_examples(nlp))
    assert pipe.labels == ("SKILL", "DUTY", "KNOWLEDGE")
    assert [found(doc) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in DATA]


@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_a_label_added_after_initialize_leaves_the_others_and_is_learned(loss):
    data = data_for(loss)
    nlp = make_trained(data, loss=loss)
    pipe = nlp.get_pipe("span_enumerator")
    docs = [nlp.make_doc(text) for text in TEXTS]
    candidates = pipe.listing(docs, None)
    classifier = pipe.model.get_ref("classifier")
    before = {key: value.clone() for key, value in state_of(classifier).items()}
    logits = pipe.model.predict((docs, candidates))
    n_old = logits.shape[1]
    assert pipe.add_label("NEW") == 1
    assert pipe.add_label("NEW") == 0
    assert pipe.labels == (*LABELS, "NEW")
    assert pipe.model.get_dim("nO") == classifier.get_dim("nO") == n_old + 1
    after = state_of(classifier)
    # What was learned is there bit by bit; logits differ only by the rounding of a wider product.
    for key, value in before.items():
        assert torch.equal(after[key][: len(value)], value), key
    resized = pipe.model.predict((docs, candidates))
    assert resized.shape == (len(logits), n_old + 1)
    np.testing.assert_allclose(resized[:, :n_old], logits, rtol=1e-5, atol=1e-4)
    # Nothing was learned of it yet, so nothing is found.
    assert [found(doc) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in data]
    with_new = [*data, ("totally new words", [(1, 3, "NEW")])]
    losses = train_on(nlp, make_examples(nlp, with_new))
    assert losses["span_enumerator"] < 0.01
    assert [found(doc) for doc in nlp.pipe(text for text, _ in with_new)] == [
        spans for _, spans in with_new
    ]
    loaded = make_nlp(loss=loss).from_bytes(nlp.to_bytes())
    assert scored(loaded("totally new words")) == scored(nlp("totally new words"))


def state_of(model):
    return layer_shim(model).module.state_dict()


def test_an_optimizer_that_knew_the_old_size_trains_a_new_label():
    nlp, pipe, examples = make_initialized()
    optimizer = Adam(0.005)
    nlp.update(examples, sgd=optimizer)
    pipe.add_label("NEW")
    new = [*examples, make_example(nlp, "totally new words", [(1, 3, "NEW")])]
    for _ in range(60):
        nlp.update(new, sgd=optimizer)
    assert found(nlp("totally new words")) == [(1, 3, "NEW")]


# Training


@pytest.mark.parametrize("candidates", ["length", "boundary"])
@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_repeating_the_batch_changes_neither_loss_nor_gradient(loss, candidates):
    config = {"loss": loss, "candidates": CANDIDATES[candidates]}
    once, gradients = make_update(**config)
    thrice, others = make_update(repeat=3, **config)
    assert once > 0.1
    assert thrice == pytest.approx(once, rel=1e-4)
    assert max(np.abs(value).max() for value in gradients.values()) > 1e-3
    assert_same_gradients(gradients, others)


def test_update_adds_to_the_losses_it_is_given():
    _, pipe, examples = make_initialized()
    losses = {"other": 1.0, "span_enumerator": 2.0}
    alone = pipe.update(examples)["span_enumerator"]
    returned = pipe.update(examples, losses=losses)
    assert returned is losses
    assert losses == {"other": 1.0, "span_enumerator": pytest.approx(2.0 + alone)}


def test_update_without_an_optimizer_accumulates_gradients():
    nlp, pipe, examples = make_initialized()
    before = nlp.to_bytes()
    pipe.update(examples)
    once = gradients_of(pipe)
    pipe.update(examples)
    assert_same_gradients(once, gradients_of(pipe), factor=2.0)
    assert nlp.to_bytes() == before
    pipe.finish_update(Adam(0.01))
    assert nlp.to_bytes() != before
    assert not any(value.any() for value in gradients_of(pipe).values())


def test_update_with_an_optimizer_changes_weights_and_lowers_the_loss():
    _, pipe, examples = make_initialized()
    optimizer = Adam(0.005)
    losses = [pipe.update(examples, sgd=optimizer)["span_enumerator"] for _ in range(10)]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_training_that_has_diverged_stops(monkeypatch, value):
    nlp, pipe, examples = make_initialized()
    before = nlp.to_bytes()
    original = pipe._loss

    def diverged(*args):
        return value, original(*args)[1]

    monkeypatch.setattr(pipe, "_loss", diverged)
    message = rf"The loss of 'span_enumerator' is {value}: training has diverged.*learning rate"
    with pytest.raises(SpansError, match=message):
        pipe.update(examples, sgd=Adam(0.01))
    assert nlp.to_bytes() == before


def test_dropout_is_used_in_training_only():
    nlp, pipe, examples = make_initialized()
    without = {pipe.update(examples)["span_enumerator"] for _ in range(2)}
    assert len(without) == 1
    with_dropout = {pipe.update(examples, drop=0.5)["span_enumerator"] for _ in range(3)}
    assert len(with_dropout) == 3
    first, second = (pipe.predict([nlp.make_doc(TEXTS[0])]).spans[0] for _ in range(2))
    assert first.scores.tolist() == second.scores.tolist()


def test_training_with_dropout_overfits_too():
    nlp = make_nlp()
    train(nlp, make_examples(nlp), steps=80, drop=0.1)
    assert [found(doc) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in DATA]


@pytest.mark.parametrize("candidates", ["length", "boundary"])
@pytest.mark.parametrize("settings_", [{}, {"negative_ratio": 2.0}, {"loss": "softmax"}], ids=str)
def test_empties_cost_nothing_in_training(candidates, settings_):
    data = data_for(settings_.get("loss"))
    nlp, pipe, _ = make_initialized(data, candidates=CANDIDATES[candidates], **settings_)
    before = nlp.to_bytes()
    optimizer = Adam(0.01)
    assert pipe.update([], sgd=optimizer) == {"span_enumerator": 0.0}
    empty = make_examples(nlp, [("", []), ("", [])])
    assert pipe.update(empty, sgd=optimizer) == {"span_enumerator": 0.0}
    assert nlp.to_bytes() == before
    # White space is made of tokens, and negatives like any others.
    blank = make_examples(nlp, [("", []), (" ", []), ("\n \t", [])])
    assert pipe.update(blank, sgd=optimizer)["span_enumerator"] > 0


def test_a_batch_without_candidates_costs_nothing():
    nlp, pipe = make_pipe(candidates=CANDIDATES["preset"], negative_ratio=1.0)
    examples = make_annotated_examples(nlp, DATA)
    nlp.initialize(lambda: examples)
    bare = make_examples(nlp, [("We pay well", []), ("", [])])
    for example in bare:
        write_spans(example.predicted, "given", [])
    assert pipe.update(bare, sgd=Adam(0.01)) == {"span_enumerator": 0.0}
    docs = [example.predicted for example in bare]
    pipe.set_annotations(docs, pipe.predict(docs))
    assert [list(doc.spans["sc"]) for doc in docs] == [[], []]


@pytest.mark.parametrize("kind", ["length", "boundary"])
def test_documents_without_the_key_teach_nothing(kind):
    nlp, pipe, _ = make_initialized(candidates=CANDIDATES[kind])
    missing = Example(nlp.make_doc("We pay well"), nlp.make_doc("We pay well"))
    empty = make_example(nlp, "We pay well", [])
    assert pipe.update([empty])["span_enumerator"] > 0
    pipe.finish_update(Adam(0.0))
    assert pipe.update([missing])["span_enumerator"] == 0
    parameters = [
        parameter
        for name in ("tokens", "classifier")
        for node in pipe.model.get_ref(name).walk()
        for shim in node.shims
        for parameter in shim.module.parameters()
    ]
    assert parameters
    assert not any(p.grad is not None and p.grad.any() for p in parameters)
    if kind == "length":
        assert pipe.get_loss([missing], logits_for(pipe, [missing]))[0] == 0


@pytest.mark.parametrize("kind", ["length", "boundary"])
def test_documents_without_the_key_change_no_loss_of_others(kind):
    """Neither that of candidates nor that of boundaries, which add up."""
    nlp, pipe, examples = make_initialized(candidates=CANDIDATES[kind])
    text = "We pay well and the food is good"
    missing = Example(nlp.make_doc(text), nlp.make_doc(text))
    alone = pipe.update(examples)["span_enumerator"]
    gradients = gradients_of(pipe)
    pipe.finish_update(Adam(0.0))
    mixed = pipe.update([missing, *examples])["span_enumerator"]
    assert mixed == pytest.approx(alone, rel=1e-5)
    assert_same_gradients(gradients_of(pipe), gradients)


def test_training_data_with_unknown_labels_is_an_error():
    nlp, pipe, _ = make_initialized()
    example = make_example(nlp, "We pay well", [(0, 1, "TYPO")])
    for call in (pipe.update, lambda examples: pipe.get_loss(examples, logits_for(pipe, examples))):
        with pytest.raises(SpansError, match=r"'We' labelled 'TYPO'.*knows only \['DUTY'"):
            call([example])


def logits_for(pipe, examples, seed=None):
    docs = [example.predicted for example in examples]
    candidates = pipe.listing(docs, None)
    if seed is None:
        return candidates, pipe.model.predict((docs, candidates))
    shape = (len(candidates.dataXd), pipe.n_classes)
    return candidates, np.random.RandomState(seed).normal(size=shape)


@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_get_loss_gradient_matches_differences(loss, smoothing):
    nlp, pipe, _ = make_initialized(data_for(loss), loss=loss, boundary_smoothing=smoothing)
    examples = make_examples(nlp, [("a b c", [(0, 2, "SKILL"), (0, 2, "DUTY")]), ("", [])])
    candidates, logits = logits_for(pipe, examples, seed=1)
    value, gradient = pipe.get_loss(examples, (candidates, logits))
    assert value > 0
    assert gradient.shape == logits.shape == (6, pipe.n_classes)
    step = 1e-5
    for index in np.ndindex(logits.shape):
        around = []
        for sign in (1, -1):
            moved = logits.copy()
            moved[index] += sign * step
            around.append(pipe.get_loss(examples, (candidates, moved))[0])
        assert gradient[index] == pytest.approx((around[0] - around[1]) / (2 * step), abs=2e-5)


@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_get_loss_is_what_update_reports(loss):
    _, pipe, examples = make_initialized(data_for(loss), loss=loss)
    value, _ = pipe.get_loss(examples, logits_for(pipe, examples))
    assert pipe.update(examples)["span_enumerator"] == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_get_loss_is_the_slow_loss_per_token(loss):
    smoothing = 0.2
    nlp, pipe, _ = make_initialized(data_for(loss), loss=loss, boundary_smoothing=smoothing)
    examples = make_examples(nlp)
    candidates, logits = logits_for(pipe, examples, seed=2)
    value, _ = pipe.get_loss(examples, (candidates, logits))
    total, row = 0.0, 0
    for (_, gold), own in zip(DATA, split_offsets(candidates), strict=True):
        labelled = [(start, end, LABELS.index(label)) for start, end, label in gold]
        spans = [tuple(span) for span in own.tolist()]
        for targets in reference.targets_of(spans, labelled, len(LABELS), smoothing):
            given = logits[row].tolist()
            if loss == "softmax":
                total += reference.softmax_loss_of(given, reference.null_class_first(targets))
            else:
                total += sum(map(reference.sigmoid_loss_of, given, targets))
            row += 1
    assert value == pytest.approx(total / 15, rel=1e-5)


def test_get_loss_of_empties_is_zero():
    nlp, pipe, _ = make_initialized()
    for examples in ([], make_examples(nlp, [("", [])])):
        nothing = to_ragged([np.zeros((0, 2), "i")] * len(examples))
        value, gradient = pipe.get_loss(examples, (nothing, np.zeros((0, 3), "f")))
        assert value == 0.0
        assert gradient.shape == (0, 3)


def test_sampled_negatives_cost_on_average_what_all_cost():
    # Fixed weights: only the draw differs.
    _, pipe, examples = make_initialized()
    whole = pipe.update(examples)["span_enumerator"]
    pipe.negative_ratio = 1.0
    np.random.seed(0)
    draws = [pipe.update(examples)["span_enumerator"] for _ in range(300)]
    assert np.std(draws) > 0
    error = np.std(draws) / np.sqrt(len(draws))
    assert abs(np.mean(draws) - whole) < 4 * error
    pipe.negative_ratio = 1e9
    assert pipe.update(examples)["span_enumerator"] == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("settings_", [{"negative_ratio": 3.0}, {"boundary_smoothing": 0.1}])
def test_training_options_overfit_too(settings_):
    nlp = make_trained(steps=80, **settings_)
    assert [found(doc) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in DATA]


def test_boundary_smoothing_pulls_near_misses_up():
    data = [("a b c d e f", [(1, 4, "A")])]
    scores = {}
    for smoothing in (0.0, 0.4):
        nlp = make_trained(data, boundary_smoothing=smoothing, threshold=0.0, steps=150)
        by_span = {span[:2]: span[3] for span in scored(nlp("a b c d e f"))}
        scores[smoothing] = by_span
    np.testing.assert_allclose(scores[0.0][1, 4], 1.0, atol=0.02)
    np.testing.assert_allclose(scores[0.4][1, 4], 0.6, atol=0.05)
    for near in ((0, 4), (2, 4), (1, 3), (1, 5)):
        assert scores[0.0][near] < 0.02
        assert scores[0.4][near] == pytest.approx(0.1, abs=0.05)
    for smoothing in scores:
        assert scores[smoothing][5, 6] < 0.02


def test_misaligned_gold_is_left_out_of_training():
    nlp, pipe, _ = make_initialized()
    aligned = make_example(nlp, "a bc", [(0, 1, "SKILL")])
    words, spaces = ["a", "b", "c"], [True, False, False]
    reference_doc = Doc(nlp.vocab, words=words, spaces=spaces)
    write_spans(reference_doc, "sc", [(0, 1, "SKILL"), (1, 2, "DUTY")])
    misaligned = Example(nlp.make_doc("a bc"), reference_doc)
    assert pipe.update([misaligned])["span_enumerator"] == pipe.update([aligned])["span_enumerator"]


def test_gold_on_other_tokens_is_learned_where_it_fits():
    nlp = make_nlp()
    reference_doc = Doc(nlp.vocab, words=["a", "b", "c"], spaces=[True, False, False])
    write_spans(reference_doc, "sc", [(1, 3, "A"), (0, 3, "B")])
    example = Example(nlp.make_doc("a bc"), reference_doc)
    train(nlp, [example])
    assert found(nlp("a bc")) == [(0, 2, "B"), (1, 2, "A")]


def test_two_components_share_a_token_encoder():
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "*"}
    nlp = make_nlp(tok2vec=listener, upstream=("tok2vec",), spans_key="one")
    config = {"spans_key": "two", "model": {"hidden_width": 16, "tok2vec": listener}}
    nlp.add_pipe("span_enumerator", name="second", config=config)
    examples = []
    for text, spans in DATA:
        example = make_example(nlp, text, spans, "one")
        write_spans(example.reference, "two", [(0, end, "TWO") for _, end, _ in spans[:1]])
        examples.append(example)
    losses = train(nlp, examples)
    assert set(losses) == {"tok2vec", "span_enumerator", "second"}
    docs = list(nlp.pipe(TEXTS))
    assert [found(doc, "one") for doc in docs] == [spans for _, spans in DATA]
    assert [found(doc, "two") for doc in docs] == [[(0, 3, "TWO")], [(0, 6, "TWO")], [], []]


# At initialize


def test_initialize_sets_the_bias_to_the_rarity_of_each_label():
    _, pipe, examples = make_initialized()
    classifier = layer_shim(pipe.model.get_ref("classifier")).module
    assert isinstance(classifier, SpanClassifier)
    n = 21 + 21 + 6
    counts = {"DUTY": 1, "KNOWLEDGE": 2, "SKILL": 4}
    rates = [(counts[label] + 1) / (n + 2) for label in LABELS]
    expected = [np.log(rate / (1 - rate)) for rate in rates]
    np.testing.assert_allclose(classifier.classify.bias.detach().numpy(), expected, rtol=1e-5)
    # So that the first loss is about that of guessing the rates.
    assert pipe.update(examples)["span_enumerator"] < 3 * len(LABELS) * n * 0.35 / 15
