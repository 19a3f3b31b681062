"""Training the tagger: losses, tokens that differ, labels added later, several components."""

import warnings

import numpy as np
import pytest
import spacy
import torch
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Adam

from spacy_spans.errors import SpansError, SpansWarning
from spacy_spans.torch_layer import layer_shim

from . import (
    FLAT_DATA,
    LABELS,
    LISTENER,
    SCHEMES,
    TAG_DATA,
    TAGGER,
    TEXTS,
    found,
    found_in,
    make_example,
    make_examples,
    make_initialized,
    make_nlp,
    make_pipe,
    make_trained,
    mentions,
    scored,
    spans_of,
    train,
    train_on,
    write_spans,
)

# Settings, and data they can learn by heart.
CHAIN = (TAG_DATA, {})
TOKEN = (TAG_DATA, {"loss": "token"})
SHARED = (FLAT_DATA, {"layers": "shared", "scheme": SCHEMES["bioes"]})
SHARED_LINKS = ([*FLAT_DATA[:2], TAG_DATA[2]], {"layers": "shared", "loss": "token"})
BOUNDARY = (TAG_DATA, {"loss": "token", "scheme": SCHEMES["boundary"]})
VARIANTS = pytest.mark.parametrize(
    ("data", "config"),
    [CHAIN, TOKEN, SHARED, SHARED_LINKS, BOUNDARY],
    ids=["crf", "token", "shared", "shared links", "boundary"],
)


# Losses


@VARIANTS
def test_get_loss_gradient_matches_differences(data, config):
    nlp, pipe, _ = make_initialized(data, **TAGGER, **config)
    if pipe.layout.links:
        layer_shim(pipe.model.get_ref("links")).module.double()
    examples = make_examples(nlp, [data[0], ("", []), ("We pay", [(0, 1, "SKILL")])])
    random = np.random.RandomState(0)
    n_tokens = sum(len(example.predicted) for example in examples)
    # Link features stay 0: the layer above them has a gradient of its own.
    rows = np.zeros((n_tokens, pipe.n_classes + pipe.layout.n_links))
    rows[:, : pipe.n_classes] = random.normal(size=(n_tokens, pipe.n_classes))
    edges = random.normal(size=pipe.layout.n_edges)
    _, (d_rows, d_edges) = pipe.get_loss(examples, (rows, edges))
    assert d_rows.shape == rows.shape
    assert d_edges.shape == edges.shape
    step = 1e-4
    for values, gradient in ((rows[:, : pipe.n_classes], d_rows), (edges, d_edges)):
        # Every third, since each takes two passes.
        for index in list(np.ndindex(values.shape))[::3]:
            around = []
            for sign in (1, -1):
                values[index] += sign * step
                around.append(pipe.get_loss(examples, (rows, edges))[0])
                values[index] -= sign * step
            expected = (around[0] - around[1]) / (2 * step)
            assert gradient[index] == pytest.approx(expected, abs=1e-4), index


@VARIANTS
def test_get_loss_is_what_update_reports_and_repeating_the_batch_changes_nothing(data, config):
    _, pipe, examples = make_initialized(data, **TAGGER, **config)
    docs = [example.predicted for example in examples]
    loss, _ = pipe.get_loss(examples, pipe.model.predict(docs))
    assert gradients_of(pipe) == []
    assert pipe.update(examples)["multispan_tagger"] == pytest.approx(loss, rel=1e-5)
    assert pipe.update(examples * 3)["multispan_tagger"] == pytest.approx(loss, rel=1e-5)


def gradients_of(pipe):
    modules = [layer_shim(pipe.model.get_ref(name)).module for name in ("projector", "links")]
    every = [own for module in modules if module is not None for own in module.parameters()]
    return [own.grad for own in every if own.grad is not None]


def test_the_first_loss_is_about_that_of_guessing_shares():
    data = [("a b c d e f g h i j", [(2, 4, "A")])] * 3
    _, pipe, examples = make_initialized(data, **TAGGER, loss="token")
    # O, B and I on 8, 1 and 1 of 10 tokens; weights are small at first.
    entropy = -(0.8 * np.log(0.8) + 0.2 * np.log(0.1))
    assert pipe.update(examples)["multispan_tagger"] < entropy * 1.5
    bias = layer_shim(pipe.model.get_ref("projector")).module.project.bias.detach().numpy()
    rates = np.asarray([(24 + 1) / 32, (3 + 1) / 32, (3 + 1) / 32])
    np.testing.assert_allclose(bias, np.log(rates), rtol=1e-5)


def test_update_adds_to_the_losses_it_is_given_and_accumulates_gradients():
    nlp, pipe, examples = make_initialized(TAG_DATA, **TAGGER)
    before = nlp.to_bytes()
    alone = pipe.update(examples)["multispan_tagger"]
    losses = {"other": 1.0, "multispan_tagger": 2.0}
    assert pipe.update(examples, losses=losses) is losses
    assert losses == {"other": 1.0, "multispan_tagger": pytest.approx(2.0 + alone)}
    assert nlp.to_bytes() == before
    weights = layer_shim(pipe.model.get_ref("projector")).module.project.weight
    twice = weights.grad.clone()
    weights.grad.zero_()
    pipe.update(examples)
    torch.testing.assert_close(twice, 2 * weights.grad, rtol=1e-3, atol=1e-6)


@VARIANTS
def test_empties_cost_nothing_in_training(data, config):
    nlp, pipe, _ = make_initialized(data, **TAGGER, **config)
    before = nlp.to_bytes()
    for empty in ([], make_examples(nlp, [("", []), ("", [])])):
        assert pipe.update(empty, sgd=Adam(0.01)) == {"multispan_tagger": 0.0}
        rows = np.zeros((0, pipe.n_classes + pipe.layout.n_links), "f")
        loss, gradients = pipe.get_loss(empty, (rows, np.zeros(pipe.layout.n_edges, "f")))
        assert loss == 0.0
        assert [gradient.shape for gradient in gradients] == [rows.shape, (pipe.layout.n_edges,)]
    assert nlp.to_bytes() == before
    # White space is made of tokens like any others.
    blank = make_examples(nlp, [("", []), (" ", []), ("\n \t", [])])
    assert pipe.update(blank, sgd=Adam(0.01))["multispan_tagger"] > 0


def test_documents_without_the_key_teach_nothing():
    nlp, pipe, examples = make_initialized(TAG_DATA, **TAGGER)
    missing = Example(nlp.make_doc("We pay well"), nlp.make_doc("We pay well"))
    assert pipe.update([missing])["multispan_tagger"] == 0
    assert not any(gradient.any() for gradient in gradients_of(pipe))
    mixed = pipe.update([examples[0], missing, *examples[1:]])
    assert mixed["multispan_tagger"] == pytest.approx(pipe.update(examples)["multispan_tagger"])


def test_heads_with_documents_of_their_own_learn_beside_each_other():
    """Documents of one head's task are no documents without spans for the other."""
    nlp = spacy.blank("en")
    for key in ("a", "b"):
        nlp.add_pipe("multispan_tagger", name=key, config={"spans_key": key})
    examples = [make_example(nlp, "red and blue", [(0, 1, "X")], "a") for _ in range(6)]
    examples.append(make_example(nlp, "red and blue", [(2, 3, "Y")], "b"))
    with pytest.warns(SpansWarning, match="nothing is learned from them"):
        optimizer = nlp.initialize(lambda: examples)
    for _ in range(60):
        nlp.update(examples, sgd=optimizer)
    doc = nlp("red and blue")
    assert [span.text for span in doc.spans["a"]] == ["red"]
    assert [span.text for span in doc.spans["b"]] == ["blue"]


# What numpy says of it is not ours to prevent.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("loss", ["crf", "token"])
def test_a_loss_that_diverged_is_an_error(loss, value):
    _, pipe, examples = make_initialized(FLAT_DATA, **TAGGER, loss=loss)
    module = layer_shim(pipe.model.get_ref("projector")).module
    with torch.no_grad():
        module.project.bias[0] = value
    with pytest.raises(SpansError, match=r"The loss of 'multispan_tagger' is nan.*diverged"):
        pipe.update(examples)


def test_training_data_with_unknown_labels_is_an_error():
    nlp, pipe, _ = make_initialized(TAG_DATA, **TAGGER)
    example = make_example(nlp, "We pay well", [(0, 1, "TYPO")])
    outputs = pipe.model.predict([example.predicted])
    for call in (pipe.update, lambda examples: pipe.get_loss(examples, outputs)):
        with pytest.raises(SpansError, match=r"'We' labelled 'TYPO'.*knows only \['DUTY'"):
            call([example])


# Rare spans


@pytest.mark.parametrize(
    ("scheme", "loss"), [*((scheme, "token") for scheme in SCHEMES), ("io", "crf"), ("bio", "crf")]
)
def test_weighing_what_is_outside_less_finds_more(scheme, loss):
    # Annotated in one of three: at a weight of 1 the odds are 1 to 2, at 0.2 they are 5 to 2.
    data = [("the cat sat", [(1, 2, "A")]), ("the cat sat", []), ("the cat sat", [])]
    for weight, expected in ((1.0, []), (0.2, [(1, 2, "A")])):
        config = {"scheme": SCHEMES[scheme], "loss": loss, "outside_weight": weight}
        nlp = make_trained(data, steps=60, **TAGGER, **config)
        assert found(nlp("the cat sat")) == expected


# Tokens that differ


MODES = [
    # "two-three" is one token here, and gold knows "two", "-" and "three".
    ("strict", [(0, 1, "A")], 2, 0),
    ("contract", [(0, 1, "A"), (0, 1, "B")], 1, 1),
    ("expand", [(0, 1, "A"), (0, 2, "B"), (1, 2, "A")], 0, 2),
]


@pytest.mark.parametrize(("mode", "expected", "n_lost", "n_moved"), MODES)
def test_gold_on_other_tokens_is_learned_as_the_mode_says(mode, expected, n_lost, n_moved):
    nlp = make_nlp(**TAGGER, alignment_mode=mode)
    gold = Doc(nlp.vocab, words=["one", "two", "-", "three"], spaces=[True, False, False, False])
    # All fits; its end is inside; it is inside altogether.
    write_spans(gold, "sc", [(0, 1, "A"), (0, 2, "B"), (3, 4, "A")])

    def make_predicted():
        return Doc(nlp.vocab, words=["one", "two-three"], spaces=[True, False])

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(nlp, [Example(make_predicted(), gold)])
    said = [str(warning.message) for warning in caught]
    lost = [text for text in said if f"{n_lost} of 3 gold spans in 'sc' begin or end" in text]
    moved = [text for text in said if f"{n_moved} gold span" in text and "as whole tokens" in text]
    assert (len(lost), len(moved)) == (n_lost > 0, n_moved > 0)
    assert found(nlp(make_predicted())) == expected


# Labels


def test_labels_added_before_initialize_come_first_and_are_learned():
    nlp, pipe = make_pipe(**TAGGER)
    assert [pipe.add_label("SKILL"), pipe.add_label("SKILL")] == [1, 0]
    train(nlp, make_examples(nlp, TAG_DATA))
    assert pipe.labels == ("SKILL", "DUTY", "KNOWLEDGE")
    assert found_in(nlp, TAG_DATA) == spans_of(TAG_DATA)


@VARIANTS
def test_a_label_added_after_initialize_leaves_the_others_and_is_learned(data, config):
    nlp = make_trained(data, **TAGGER, **config)
    pipe = nlp.get_pipe("multispan_tagger")
    before = [scored(doc) for doc in nlp.pipe(TEXTS)]
    n_outputs = pipe.n_classes
    assert [pipe.add_label("NEW"), pipe.add_label("NEW")] == [1, 0]
    assert pipe.labels == (*LABELS, "NEW")
    assert n_outputs < pipe.n_classes == pipe.model.get_dim("nO")
    for own, other in zip(before, map(scored, nlp.pipe(TEXTS)), strict=True):
        assert [span[:3] for span in own] == [span[:3] for span in other]
        # On a layer that labels share, the new one takes a share.
        np.testing.assert_allclose(
            [span[3] for span in own],
            [span[3] for span in other],
            atol=0.05 if pipe.layout.shared else 1e-5,
        )
    new = [("totally new words", [(1, 3, "NEW")])]
    if pipe.layout.links:
        new.append(("here and new there", [(0, 1, "NEW", "m"), (3, 4, "NEW", "m")]))
    with_new = [*data, *new]
    assert train_on(nlp, make_examples(nlp, with_new), steps=80)["multispan_tagger"] < 0.01
    assert found_in(nlp, with_new) == spans_of(with_new)
    if pipe.layout.links:
        assert mentions(nlp(new[1][0])) == [("NEW", (0, 1), (3, 4))]
    loaded = make_nlp(**TAGGER, **config).from_bytes(nlp.to_bytes())
    assert scored(loaded(new[0][0])) == scored(nlp(new[0][0]))


def test_an_optimizer_that_knew_the_old_size_trains_a_new_label():
    nlp, pipe, examples = make_initialized(TAG_DATA, **TAGGER)
    optimizer = Adam(0.005)
    nlp.update(examples, sgd=optimizer)
    pipe.add_label("NEW")
    new = [*examples, make_example(nlp, "totally new words", [(1, 3, "NEW")])]
    for _ in range(60):
        nlp.update(new, sgd=optimizer)
    assert found(nlp("totally new words")) == [(1, 3, "NEW")]


# Several components


def make_three():
    """Two taggers and an enumerator over one token encoder, each with a key, and examples."""
    nlp = make_nlp(**TAGGER, tok2vec=LISTENER, upstream=("tok2vec",), name="one", spans_key="one")
    config = {"spans_key": "two", "model": {"tok2vec": LISTENER}, "scheme": SCHEMES["io"]}
    nlp.add_pipe("multispan_tagger", name="two", config=config)
    config = {"spans_key": "three", "model": {"hidden_width": 16, "tok2vec": LISTENER}}
    nlp.add_pipe("span_enumerator", name="three", config=config)
    examples = make_examples(nlp, TAG_DATA, "one")
    for example, (_, flat) in zip(examples, FLAT_DATA, strict=True):
        write_spans(example.reference, "two", flat)
        write_spans(example.reference, "three", [(0, 2, "X")] if len(flat) > 2 else [])
    return nlp, examples


def test_two_taggers_and_an_enumerator_learn_together_and_all_write():
    nlp, examples = make_three()
    losses = train(nlp, examples, steps=80)
    assert set(losses) == {"tok2vec", "one", "two", "three"}
    assert nlp.get_pipe("one").layout.links
    assert nlp.get_pipe("two").layout.shared
    docs = list(nlp.pipe(TEXTS))
    assert [found(doc, "one") for doc in docs] == spans_of(TAG_DATA)
    assert [found(doc, "two") for doc in docs] == spans_of(FLAT_DATA)
    assert [found(doc, "three") for doc in docs] == [[(0, 2, "X")], [], [], []]
    for doc in nlp.pipe(["of another task altogether", "", " "]):
        assert sorted(doc.spans) == ["one", "three", "two"]
        for key in doc.spans:
            assert len(scored(doc, key)) == len(doc.spans[key])
    scores = nlp.evaluate(examples)
    assert {scores[f"spans_{key}_f"] for key in ("one", "two", "three")} == {1.0}
    weights = nlp.config["training"]["score_weights"]
    assert [weights[f"spans_{key}_f"] for key in ("one", "two", "three")] == [0.33] * 3
    assert {weight for name, weight in weights.items() if name.startswith("spans_sc")} == {None}


def test_documents_of_one_task_may_lack_the_keys_of_the_others():
    nlp, examples = make_three()
    for example, key in zip(examples, ("two", "three", "one", "one"), strict=True):
        for other in {"one", "two", "three"} - {key}:
            del example.reference.spans[other]
    write_spans(examples[1].reference, "three", [(0, 2, "X")])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(nlp, examples, steps=2)
    said = [str(warning.message) for warning in caught]
    assert [message.split(" training documents have no")[0] for message in said] == [
        "one: 2 of 4",
        "two: 3 of 4",
        "three: 3 of 4",
    ]


def test_the_same_key_twice_warns():
    nlp = make_nlp(**TAGGER, name="one")
    nlp.add_pipe("multispan_tagger", name="two")
    message = r"one and two all write doc\.spans\['sc'\].*a spans_key of its own"
    examples = make_examples(nlp, TAG_DATA)
    with pytest.warns(SpansWarning, match=message):
        nlp.get_pipe("one").initialize(lambda: examples, nlp=nlp)
