"""Mentions of several fragments: learned, put together by hand-made links, limited, reported."""

import numpy as np
import pytest
import spacy
import torch
from spacy.tokens import Span

from spacy_spans import fragments
from spacy_spans.errors import SpansWarning
from spacy_spans.torch_layer import layer_shim

from . import (
    SCHEMES,
    TAG_DATA,
    TAGGER,
    found,
    logit,
    make_example,
    make_examples,
    make_initialized,
    make_nlp,
    make_pipe,
    make_trained,
    mentions,
    scored,
    train,
)

# Several in a sentence, two labels, among spans of one fragment.
SEVERAL = (
    "red and white blood cells are X and Y chromosomes",
    [
        (0, 1, "CELL", "m1"),
        (3, 5, "CELL", "m1"),
        (2, 5, "CELL"),
        (6, 7, "GENE", "m2"),
        (9, 10, "GENE", "m2"),
        (8, 10, "GENE"),
    ],
)
# Two of one label that share a fragment, one of the other label on two of the same fragments, and
# one of three fragments.
SHARING = (
    "left or right or both knees",
    [
        (0, 1, "CELL", "m1"),
        (5, 6, "CELL", "m1"),
        (2, 3, "CELL", "m2"),
        (5, 6, "CELL", "m2"),
        (0, 1, "GENE", "m1"),
        (2, 3, "GENE", "m1"),
        (4, 5, "GENE", "m1"),
    ],
)
MENTIONS_DATA = [SEVERAL, SHARING, ("we saw white blood cells", [(2, 5, "CELL")]), ("", [])]
EXPECTED = [
    [("CELL", (0, 1), (3, 5)), ("GENE", (6, 7), (9, 10))],
    [("CELL", (0, 1), (5, 6)), ("CELL", (2, 3), (5, 6)), ("GENE", (0, 1), (2, 3), (4, 5))],
    [],
    [],
]


@pytest.fixture(scope="module")
def trained():
    return make_trained(MENTIONS_DATA, steps=80, **TAGGER)


def test_several_mentions_that_share_fragments_are_found(trained):
    docs = list(trained.pipe(text for text, _ in MENTIONS_DATA))
    assert [mentions(doc) for doc in docs] == EXPECTED
    for doc, (_, spans) in zip(docs, MENTIONS_DATA, strict=True):
        assert found(doc) == sorted(span[:3] for span in spans)
        # Fragments share an id and a score, and nothing else has an id.
        for own in fragments(doc, "sc"):
            assert len({span.id_ for span in own}) == 1
            assert (len(own) > 1) == bool(own[0].id_)
        score_of = {}
        for span, (*_, score) in zip(doc.spans["sc"], scored(doc), strict=True):
            assert 0.9 < score <= 1
            assert (
                score_of.setdefault((span.id_, span.label_) if span.id_ else span, score) == score
            )
    scores = trained.evaluate(make_examples(trained, MENTIONS_DATA))
    assert scores["spans_sc_discontinuous_f"] == scores["spans_sc_mention_f"] == 1.0


def test_texts_together_are_put_together_as_they_are_alone(trained):
    texts = [text for text, _ in MENTIONS_DATA]
    both = trained(" ".join((texts[2], texts[0])))
    assert mentions(both) == [("CELL", (5, 6), (8, 10)), ("GENE", (11, 12), (14, 15))]
    for text in texts:
        assert mentions(trained(text)) == EXPECTED[texts.index(text)]


# The setting


@pytest.mark.parametrize(
    ("data", "setting", "links"),
    [
        (TAG_DATA, "auto", True),
        (TAG_DATA[:2], "auto", False),
        (TAG_DATA[:2], True, True),
        (TAG_DATA, True, True),
    ],
)
def test_links_are_learned_where_the_data_or_the_setting_says(data, setting, links, said):
    nlp, pipe, examples = make_initialized(data, **TAGGER, discontinuous=setting)
    assert pipe.layout.links == links
    message = "multispan_tagger: discontinuous mentions, spans that share a Span.id, are learned"
    assert any(text.startswith(message) for text in said()) == (links and setting == "auto")
    train(nlp, examples)
    assert [found(doc) for doc in nlp.pipe(text for text, _ in data)] == [
        sorted(span[:3] for span in spans) for _, spans in data
    ]
    assert (layer_shim(pipe.model.get_ref("links")).module is not None) == links


def test_without_links_fragments_are_spans_of_their_own():
    nlp = make_nlp(**TAGGER, discontinuous=False)
    with pytest.warns(SpansWarning, match="are discontinuous and learned as a span"):
        train(nlp, make_examples(nlp, TAG_DATA))
    doc = nlp("We pay well")
    assert found(doc) == [(0, 1, "DUTY"), (2, 3, "DUTY")]
    assert mentions(doc) == []
    assert {span.id_ for span in doc.spans["sc"]} == {""}


def test_without_links_a_fragment_that_mentions_share_is_one_span():
    nlp = make_nlp(**TAGGER, discontinuous=False)
    with pytest.warns(SpansWarning, match="3 of . gold spans .* discontinuous"):
        train(nlp, make_examples(nlp, [SHARING]))
    assert found(nlp(SHARING[0])) == sorted({span[:3] for span in SHARING[1]})


@pytest.mark.parametrize(("max_gap", "is_found"), [(4, True), (3, False)])
def test_fragments_further_apart_than_max_gap_are_not_linked(max_gap, is_found):
    data = [("a b c d e f", [(0, 1, "A", "m"), (5, 6, "A", "m")])]
    nlp = make_nlp(**TAGGER, max_gap=max_gap)
    examples = make_examples(nlp, data)
    if is_found:
        train(nlp, examples)
    else:
        with pytest.warns(SpansWarning, match="more than max_gap = 3 tokens apart"):
            train(nlp, examples)
    assert mentions(nlp("a b c d e f")) == [("A", (0, 1), (5, 6))] * is_found


# By hand


@pytest.fixture
def by_hand(monkeypatch):
    """A component of which fragments and links are given, and nothing else is found.

    Fragments are single tokens of "a b c d e f", and certain in the given degree.
    """
    nlp, pipe, _ = make_initialized(
        [("a b c", [(0, 1, "A", "m"), (2, 3, "A", "m"), (0, 1, "B")])],
        **TAGGER,
        scheme=SCHEMES["io"],
        layers="per_label",
    )
    fragment = {0: 0.9, 2: 0.8, 4: 0.7}
    linked = {}

    class Rows(torch.nn.Module):
        def forward(self, tokens, lengths):
            rows = torch.zeros(len(tokens), pipe.n_classes + pipe.layout.n_links)
            # O, B and I of fragments, then O and I of both labels.
            rows[:, :7] = torch.tensor([50.0, -50.0, -50.0, 50.0, -50.0, 50.0, -50.0])
            for token, probability in fragment.items():
                if token < len(tokens):
                    rows[token, :2] = torch.tensor([0.0, logit(probability)])
            return rows, torch.zeros(pipe.layout.n_edges)

    class Links(torch.nn.Module):
        def forward(self, features, pairs):
            rows = [linked.get((p[0], p[2]), (0.01, 0.01)) for p in pairs.tolist()]
            return torch.tensor([[logit(p) for p in row] for row in rows])

    monkeypatch.setattr(layer_shim(pipe.model.get_ref("projector")), "_model", Rows())
    monkeypatch.setattr(layer_shim(pipe.model.get_ref("links")), "_model", Links())
    return nlp, pipe, linked


def mentions_with_scores(doc):
    group = doc.spans["sc"]
    score_of = dict(zip(map(hash, group), group.attrs["scores"], strict=True))
    return [
        (own[0].label_, [span.start for span in own], score_of[hash(own[0])])
        for own in fragments(doc, "sc")
    ]


def test_the_score_is_that_of_the_least_likely_link(by_hand):
    nlp, _, linked = by_hand
    linked[0, 2] = (0.6, 0.1)
    assert mentions_with_scores(nlp("a b c d e f")) == [
        ("A", [0, 2], pytest.approx(0.6)),
    ]
    # Three fragments are one mention when all of them are linked.
    linked[0, 4] = linked[2, 4] = (0.9, 0.0001)
    assert mentions_with_scores(nlp("a b c d e f")) == [
        ("A", [0, 2, 4], pytest.approx(0.6)),
    ]
    assert mentions_with_scores(nlp("a b c d")) == [("A", [0, 2], pytest.approx(0.6))]


def test_fragments_that_are_linked_in_a_row_are_two_mentions(by_hand):
    nlp, _, linked = by_hand
    linked[0, 2] = linked[2, 4] = (0.9, 0.0001)
    doc = nlp("a b c d e f")
    assert mentions(doc) == [("A", (0, 1), (2, 3)), ("A", (2, 3), (4, 5))]
    assert [span.id_ for span in doc.spans["sc"]] == ["m1", "m1", "m2", "m2"]


def test_labels_link_for_themselves(by_hand):
    nlp, _, linked = by_hand
    linked[0, 2] = (0.9, 0.0001)
    linked[2, 4] = (0.0001, 0.9)
    assert mentions(nlp("a b c d e f")) == [("A", (0, 1), (2, 3)), ("B", (2, 3), (4, 5))]


def test_fragments_that_nothing_links_are_not_written(by_hand):
    nlp, _, _ = by_hand
    assert found(nlp("a b c d e f")) == []
    assert found(nlp("a")) == []


@pytest.mark.parametrize(
    ("changes", "is_written"),
    [
        ({}, True),
        ({"threshold": 0.59}, True),
        ({"threshold": 0.61}, False),
        ({"threshold": 0.9, "label_thresholds": {"A": 0.1}}, True),
        # All fragments together.
        ({"min_length": 2}, True),
        ({"min_length": 3}, False),
        ({"max_length": 2}, True),
        ({"max_length": 1}, False),
    ],
    ids=str,
)
def test_settings_apply_to_whole_mentions(by_hand, changes, is_written):
    nlp, pipe, linked = by_hand
    linked[0, 2] = (0.6, 0.1)
    pipe.cfg.update(changes)
    assert mentions(nlp("a b c d")) == [("A", (0, 1), (2, 3))] * is_written


def test_links_do_not_cross_documents(by_hand):
    nlp, _, linked = by_hand
    # Token 2 of the batch is the first of the second document.
    linked[0, 2] = (0.9, 0.0001)
    docs = list(nlp.pipe(["a b", "c d", "", "e f"]))
    assert [found(doc) for doc in docs] == [[], [], [], []]


# Training


def test_training_on_links_alone_moves_all_that_they_use():
    nlp, pipe, examples = make_initialized([MENTIONS_DATA[1]], **TAGGER)
    before = {key: value.clone() for key, value in state_of(pipe).items()}
    nlp.update(examples, sgd=nlp.resume_training())
    assert all(not torch.equal(value, before[key]) for key, value in state_of(pipe).items())


def state_of(pipe):
    return {
        (name, key): value
        for name in ("links", "projector")
        for key, value in layer_shim(pipe.model.get_ref(name)).module.state_dict().items()
        # Of gaps only those there are, of context layers none are named here.
        if key in ("classify.weight", "classify.bias", "project.weight", "project.bias", "edges")
    }


def test_a_batch_without_fragments_learns_too(trained):
    copy = spacy.blank("en").from_config(trained.config).from_bytes(trained.to_bytes())
    examples = [make_example(copy, "nothing of that kind", []), make_example(copy, "", [])]
    assert np.isfinite(copy.update(examples)["multispan_tagger"])
    assert copy.update(examples[1:]) == {"multispan_tagger": 0.0}


@pytest.mark.filterwarnings("ignore::spacy_spans.errors.SpansWarning")
def test_links_that_would_make_up_a_mention_are_left_out():
    """a-c, c-e and a-e would be linked into a-c-e: one of the three is not learned, and said."""
    triangle = [(0, 1), (2, 3), (4, 5)]
    pairs = [(triangle[0], triangle[1]), (triangle[1], triangle[2]), (triangle[0], triangle[2])]
    spans = [(*span, "X", f"m{i}") for i, pair in enumerate(pairs) for span in pair]
    with pytest.warns(SpansWarning, match="1 of . gold spans .* cannot be put together"):
        nlp, _, examples = make_initialized([("a b c d e f", spans)], **TAGGER)
    train(nlp, examples)
    doc = nlp("a b c d e f")
    assert [[span.text for span in mention] for mention in fragments(doc, "sc")] == [
        ["a", "c"],
        ["a", "e"],
    ]


def test_ids_that_the_vocabulary_does_not_know_link_fragments_too():
    nlp, pipe = make_pipe(**TAGGER)
    example = make_example(nlp, "a b c d", [])
    spans = [Span(example.reference, i, i + 1, label="X", span_id=99999999) for i in (0, 2)]
    example.reference.spans["sc"] = spans
    nlp.initialize(lambda: [example])
    assert pipe.layout.links


def test_conflicts_are_settled_each_for_itself():
    """The same three of one label, two hundred times: two of each are learned."""
    triangle = [((0, 1), (2, 3)), ((2, 3), (4, 5)), ((0, 1), (4, 5))]
    n_times = 200
    spans = [
        (start + 6 * i, end + 6 * i, "X", f"m{i}-{row}")
        for i in range(n_times)
        for row, pair in enumerate(triangle)
        for start, end in pair
    ]
    text = " ".join([*"abcdef"] * n_times)
    with pytest.warns(SpansWarning, match=f"{n_times} of .* discontinuous, cannot be put together"):
        make_initialized([(text, spans)], **TAGGER)
