"""Model wiring: the parts in turn equal the whole, gradients arrive, sizes are right."""

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from thinc.api import Adam, Ragged

from spacy_spans.errors import SettingsError
from spacy_spans.kernels.enumeration import batch_offsets
from spacy_spans.torch_layer import layer_shim

from .pipeline import SMALL_TOK2VEC

VOCAB = spacy.blank("en").vocab
WIDTH = SMALL_TOK2VEC["width"]


def build(**settings):
    config = {
        "model": {
            "@architectures": "spacy-spans.SpanEnumerator.v1",
            "tok2vec": SMALL_TOK2VEC,
            **settings,
        }
    }
    return spacy.registry.resolve(config)["model"]


def make_doc(n_tokens, first=0):
    return Doc(VOCAB, words=[f"w{i}" for i in range(first, first + n_tokens)])


def make_docs():
    return [make_doc(3), make_doc(0), make_doc(5, 3), make_doc(1, 9)]


def make_candidates():
    spans = [[(0, 1), (0, 3)], [], [(1, 4), (4, 5), (0, 5)], [(0, 1)]]
    flat = np.asarray([span for own in spans for span in own], dtype="i")
    return Ragged(flat, np.asarray([len(own) for own in spans], dtype="i"))


def make_initialized(n_classes=3, **settings):
    spacy.util.fix_random_seed(0)
    model = build(hidden_width=8, **settings)
    model.set_dim("nO", n_classes)
    return model.initialize(X=(make_docs(), make_candidates()))


def test_the_whole_is_its_two_parts_in_turn():
    model = make_initialized()
    docs, candidates = make_docs(), make_candidates()
    tokens = model.get_ref("tokens").predict(docs)
    assert tokens.shape == (9, 3 * 8 + 2)
    offsets = batch_offsets(candidates.dataXd, candidates.lengths, [len(doc) for doc in docs])
    assert offsets.tolist() == [[0, 1], [0, 3], [4, 7], [7, 8], [3, 8], [8, 9]]
    logits = model.get_ref("classifier").predict((tokens, offsets))
    assert logits.shape == (6, 3)
    np.testing.assert_array_equal(model.predict((docs, candidates)), logits)


def test_documents_are_scored_as_if_alone():
    model = make_initialized()
    docs, candidates = make_docs(), make_candidates()
    together = model.predict((docs, candidates))
    alone = []
    for doc, own in zip(docs, np.split(candidates.dataXd, [2, 2, 5]), strict=True):
        alone.append(model.predict(([doc], Ragged(own, np.asarray([len(own)], dtype="i")))))
    np.testing.assert_allclose(np.concatenate(alone), together, atol=1e-5)


def test_candidates_may_be_none_at_all():
    model = make_initialized()
    nothing = Ragged(np.zeros((0, 2), "i"), np.zeros(4, "i"))
    logits, backprop = model.begin_update((make_docs(), nothing))
    assert logits.shape == (0, 3)
    backprop(logits)


def test_gradient_of_the_whole_matches_differences_in_a_parameter_of_tok2vec():
    model = make_initialized()
    docs, candidates = make_docs(), make_candidates()
    weights = np.random.RandomState(0).normal(size=(6, 3)).astype("f")
    _, backprop = model.begin_update((docs, candidates))
    backprop(weights)
    node = next(node for node in model.get_ref("tok2vec").walk() if node.has_param("W"))
    gradient = node.get_grad("W").copy()
    parameter = node.get_param("W").copy()
    assert np.abs(gradient).max() > 1e-3
    flat = np.abs(gradient).reshape(-1).argsort()[-5:]
    step = 1e-2
    for index in zip(*np.unravel_index(flat, gradient.shape), strict=True):
        values = []
        for sign in (1, -1):
            moved = parameter.copy()
            moved[index] += sign * step
            node.set_param("W", moved)
            values.append(float((model.predict((docs, candidates)) * weights).sum()))
        difference = (values[0] - values[1]) / (2 * step)
        assert gradient[index] == pytest.approx(difference, rel=0.05, abs=2e-3)


def test_gradient_reaches_every_parameter_of_tok2vec():
    model = make_initialized()
    _, backprop = model.begin_update((make_docs(), make_candidates()))
    backprop(np.ones((6, 3), dtype="f"))
    checked = 0
    for node in model.get_ref("tok2vec").walk():
        for name in node.grad_names:
            assert np.abs(node.get_grad(name)).max() > 0, (node.name, name)
            checked += 1
    assert checked >= 4
    projector = layer_shim(next(node for node in model.walk() if node.name == "token_projector"))
    for name, value in projector.module.named_parameters():
        assert value.grad is not None, name
        # The two boundary scores get their gradient from the component.
        assert value.grad.abs().max() > 0, name


@pytest.mark.parametrize("context_window", [0, 1, 3])
@pytest.mark.parametrize("hidden_width", [1, 8])
def test_sizes(hidden_width, context_window):
    model = build(hidden_width=hidden_width, context_window=context_window)
    model.set_dim("nO", 2)
    model.initialize(X=(make_docs(), make_candidates()))
    classifier = model.get_ref("classifier")
    assert model.get_dim("nO") == classifier.get_dim("nO") == 2
    assert classifier.get_dim("nI") == 3 * hidden_width + 2
    assert layer_shim(classifier).module.classify.out_features == 2
    projector = next(node for node in model.walk() if node.name == "token_projector")
    assert (projector.get_dim("nI"), projector.get_dim("nO")) == (WIDTH, 3 * hidden_width + 2)
    module = layer_shim(projector).module
    if context_window:
        assert module.context.taps.shape == (2 * context_window + 1, WIDTH)
    else:
        assert module.context is None
    assert model.predict((make_docs(), make_candidates())).shape == (6, 2)


def test_tokens_beyond_the_context_window_and_the_span_change_nothing():
    words = list("abcdefghijkl")
    span = Ragged(np.asarray([[5, 7]], "i"), np.asarray([1], "i"))
    for window in (0, 1, 2):
        model = make_initialized(context_window=window)
        logits = model.predict(([Doc(VOCAB, words=words)], span))
        for i in range(len(words)):
            changed = Doc(VOCAB, words=[*words[:i], "zzz", *words[i + 1 :]])
            same = np.array_equal(model.predict(([changed], span)), logits)
            # One more on each side, which the tok2vec sees.
            assert same == (not 4 - window <= i < 8 + window), (window, i)


def test_initializing_again_takes_new_sizes_and_forgets():
    model = make_initialized(n_classes=2)
    before = model.predict((make_docs(), make_candidates()))
    model.set_dim("nO", 4, force=True)
    model.initialize(X=(make_docs(), make_candidates()))
    after = model.predict((make_docs(), make_candidates()))
    assert (before.shape, after.shape) == ((6, 2), (6, 4))
    assert layer_shim(model.get_ref("classifier")).sizes == (3 * 8 + 2, 4)
    _, backprop = model.begin_update((make_docs(), make_candidates()))
    backprop(np.ones((6, 4), dtype="f"))
    model.finish_update(Adam(0.01))
    assert not np.array_equal(model.predict((make_docs(), make_candidates())), after)


def test_initializing_with_an_empty_document_finds_the_sizes():
    model = build(hidden_width=8)
    model.set_dim("nO", 2)
    model.initialize(X=([make_doc(0)], make_candidates()))
    assert model.predict((make_docs(), make_candidates())).shape == (6, 2)


def test_resizing_keeps_the_first_outputs():
    model = make_initialized(n_classes=2)
    before = model.predict((make_docs(), make_candidates()))
    model.attrs["resize_output"](model, 5)
    after = model.predict((make_docs(), make_candidates()))
    assert after.shape == (6, 5)
    np.testing.assert_allclose(after[:, :2], before, rtol=1e-5, atol=1e-5)


def test_round_trip_into_a_model_without_sizes():
    model = make_initialized()
    loaded = build(hidden_width=8).from_bytes(model.to_bytes())
    np.testing.assert_array_equal(
        loaded.predict((make_docs(), make_candidates())),
        model.predict((make_docs(), make_candidates())),
    )


def test_learn_rate_factor_scales_the_steps_of_the_layers_above_tok2vec_only():
    steps = {}
    for factor in (1.0, 4.0):
        model = make_initialized(learn_rate_factor=factor)
        own = layer_shim(model.get_ref("classifier")).module.classify.bias
        node = next(node for node in model.get_ref("tok2vec").walk() if node.has_param("W"))
        before = own.detach().numpy().copy(), node.get_param("W").copy()
        _, backprop = model.begin_update((make_docs(), make_candidates()))
        backprop(np.ones((6, 3), dtype="f"))
        model.finish_update(Adam(0.001, grad_clip=0.0))
        own = layer_shim(model.get_ref("classifier")).module.classify.bias
        after = own.detach().numpy(), node.get_param("W")
        steps[factor] = [np.abs(b - a).max() for a, b in zip(before, after, strict=True)]
    assert steps[4.0][0] == pytest.approx(4 * steps[1.0][0], rel=1e-3)
    assert steps[4.0][1] == pytest.approx(steps[1.0][1], rel=1e-3)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("hidden_width", 0),
        ("context_window", -1),
        ("learn_rate_factor", 0.0),
        ("learn_rate_factor", -1.0),
    ],
)
def test_settings_out_of_range_are_an_error(setting, value):
    with pytest.raises(SettingsError, match=rf"{setting} = {value}.*Expected at least 1, at least"):
        build(**{setting: value})
