"""From gold mentions to targets and back, with a model that says exactly what it is to say."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spacy_spans.alignment import GoldMentions
from spacy_spans.kernels.chains import make_chain
from spacy_spans.kernels.schemes import BIO, BIOES, BOUNDARY, IO
from spacy_spans.pipeline.tag_decoding import (
    FRAGMENTS_PER_TOKEN,
    MIN_FRAGMENTS,
    decode,
    find_fragments,
    join_links,
    link_offsets,
    list_pairs,
)
from spacy_spans.pipeline.tag_layout import FRAGMENT_TABLE, TagLayout
from spacy_spans.pipeline.tagging import MAX_FRAGMENT_LENGTH, encode, link_targets, make_batch

from .. import reference_tags as reference

SURE = 10.0
N_LABELS = 2
LAYOUTS = {
    f"{scheme.name}{'-shared' * shared}{'-links' * links}": TagLayout(
        scheme, N_LABELS, shared=shared, links=links
    )
    for scheme, shared in (
        (IO, False),
        (BIO, False),
        (BIO, True),
        (BIOES, False),
        (BIOES, True),
        (BOUNDARY, False),
    )
    for links in (False, True)
}
by_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
PER_LABEL = LAYOUTS["bio-links"]


def fragments_of(bits):
    """The runs of set bits: fragments that do not touch."""
    tokens = [i for i in range(bits.bit_length()) if bits >> i & 1]
    starts = [i for i in tokens if i - 1 not in tokens]
    lasts = [i for i in tokens if i + 1 not in tokens]
    return tuple((start, last + 1) for start, last in zip(starts, lasts, strict=True))


@st.composite
def annotated(draw):
    """Tokens per document, and mentions as (document, label, fragments), no two equal."""
    lengths = draw(st.lists(st.integers(0, 7), max_size=3))
    docs = [doc for doc, length in enumerate(lengths) if length]
    if not docs:
        return lengths, []
    mention = (
        st.tuples(st.sampled_from(docs), st.integers(0, N_LABELS - 1), st.integers(1, 127))
        .map(lambda x: (x[0], x[1], fragments_of(x[2] % 2 ** lengths[x[0]])))
        .filter(lambda x: x[2])
    )
    return lengths, draw(st.lists(mention, unique=True, max_size=7))


def gold_of(lengths, mentions):
    """Per document, what `gold_mentions` reads; and the mentions in its order."""
    in_order, gold = [], []
    for doc in range(len(lengths)):
        own = [mention for mention in mentions if mention[0] == doc]
        in_order += own
        rows = [
            (start, end, label, number)
            for number, (_, label, fragments) in enumerate(own)
            for start, end in fragments
        ]
        table = np.asarray(rows, dtype="i").reshape(-1, 4)
        gold.append(GoldMentions(table[:, :2], table[:, 2], table[:, 3], [], [], 0))
    return gold, in_order


def perfect_rows(layout, targets):
    """Scores of a model that is sure of the targets."""
    if layout.table is None:
        own = np.where(targets.tags, SURE, -SURE)
    else:
        own = SURE * (targets.tags[..., None] == np.arange(layout.n_tags))
    rows = own.reshape(len(own), layout.n_layers * layout.n_tags)
    if layout.links:
        fragments = SURE * (targets.fragment_tags == np.arange(FRAGMENT_TABLE.n_tags))
        rows = np.concatenate([fragments, rows], axis=1)
    return rows.astype("f")


def found_mentions(layout, targets, batch, max_gap):
    """What the perfect model finds, as the component puts it together."""
    rows, edges = perfect_rows(layout, targets), np.zeros(layout.n_edges, dtype="f")
    spans, labels, values = decode(layout, rows, edges, batch)
    assert spans.shape == (len(labels), 2)
    assert np.all(values > 0.99)
    one_span = zip(labels.tolist(), spans.tolist(), strict=True)
    found = [(label, [tuple(span)]) for label, span in one_span]
    if layout.links:
        fragments = find_fragments(layout, rows, edges, batch)
        assert fragments.tolist() == targets.fragments.tolist()
        pairs = list_pairs(fragments, batch, max_gap)
        probabilities = link_targets(pairs, targets.links, layout.n_labels)
        # Not a link is left out.
        assert probabilities.sum() == len(targets.links)
        for label, members, value in join_links(pairs, probabilities):
            assert value > 0.99
            found.append((label, [tuple(fragments[row].tolist()) for row in members]))
    moved = []
    for label, parts in found:
        docs = {int(doc) for span in parts for doc in batch.doc_of[span[0] : span[1]]}
        (doc,) = docs
        first = int(batch.starts[doc])
        moved.append((doc, label, tuple((start - first, end - first) for start, end in parts)))
    return moved


def targets_of(layout, lengths, mentions, max_gap=3):
    """Targets, and the mentions that they are said to express."""
    gold, in_order = gold_of(lengths, mentions)
    batch = make_batch(lengths)
    targets = encode(layout, gold, batch, max_gap)
    assert targets.expressed.shape == (len(mentions),)
    flags = targets.expressed.tolist()
    return targets, batch, [m for m, flag in zip(in_order, flags, strict=True) if flag]


def check(layout, lengths, mentions, max_gap=3):
    """What is expressed is what a perfect model finds of the gold; nothing else of one span is."""
    targets, batch, expressed = targets_of(layout, lengths, mentions, max_gap)
    found = found_mentions(layout, targets, batch, max_gap)
    assert len(set(found)) == len(found)
    known = set(found) & set(mentions)
    assert sorted(expressed) == sorted(known)
    if layout.links:
        assert all(len(parts) > 1 for _, _, parts in set(found) - known)
    else:
        # Fragments are found as spans of their own.
        all_parts = {(doc, label, (part,)) for doc, label, parts in mentions for part in parts}
        assert set(found) <= all_parts
    return expressed, sorted(set(found) - known)


@by_layout
@settings(max_examples=100, deadline=None)
@given(annotated(), st.integers(1, 5))
@example(([3], [(0, 0, ((0, 1), (2, 3))), (0, 0, ((0, 1),))]), 3)
@example(([5], [(0, 0, ((a, a + 1), (b, b + 1))) for a, b in ((0, 2), (2, 4), (0, 4))]), 5)
def test_a_perfect_model_finds_exactly_what_is_expressed(layout, case, max_gap):
    check(layout, *case, max_gap)


@by_layout
def test_everything_simple_is_expressed(layout):
    # Spans of two labels that touch, at the ends of documents, an empty one between.
    lengths = [4, 0, 1, 3]
    mentions = [
        (0, 0, ((0, 2),)),
        (0, 1, ((2, 4),)),
        (2, 0, ((0, 1),)),
        (3, 0, ((0, 3),)),
    ]
    assert check(layout, lengths, mentions) == (mentions, [])


CHROMOSOMES = ["X", ",", "Y", "and", "Z", "chromosomes"]


@pytest.mark.parametrize(
    ("mentions", "lost", "extra"),
    [
        pytest.param(
            [((0, 1), (5, 6)), ((2, 3), (5, 6)), ((4, 6),)], [], [], id="X, Y and Z chromosomes"
        ),
        pytest.param([((0, 1), (2, 3), (5, 6))], [], [], id="three fragments"),
        pytest.param([((0, 1), (2, 3), (4, 5)), ((0, 1), (2, 3))], [1], [], id="inside a larger"),
        pytest.param([((0, 1), (4, 6)), ((0, 6),)], [], [], id="inside a span"),
        pytest.param([((0, 1), (4, 5)), ((0, 1),), ((4, 5),)], [], [], id="fragments are spans"),
        pytest.param([((0, 1), (2, 3)), ((1, 2), (3, 4))], [], [], id="interleaved"),
        pytest.param(
            [((0, 2), (3, 4)), ((1, 2), (3, 4)), ((0, 2), (5, 6))], [1], [], id="overlapping"
        ),
        pytest.param(
            [((0, 1), (2, 3)), ((2, 3), (4, 5)), ((0, 1), (4, 5))],
            [2],
            [],
            id="pairs of three",
        ),
    ],
)
@pytest.mark.parametrize("name", [name for name in LAYOUTS if name.endswith("-links")])
def test_discontinuous_mentions_by_hand(name, mentions, lost, extra):
    if "shared" in name:
        # A layer for all labels holds either the larger span or the smaller ones.
        mentions = [parts for parts in mentions if len(parts) > 1]
    rows = [(0, 1, parts) for parts in mentions]
    expressed, more = check(LAYOUTS[name], [len(CHROMOSOMES)], rows, max_gap=4)
    assert expressed == [row for i, row in enumerate(rows) if i not in lost]
    assert more == [(0, 1, parts) for parts in extra]


@pytest.mark.parametrize(("max_gap", "n_expressed"), [(3, 1), (4, 2), (5, 3)])
def test_the_gap_is_that_between_the_outer_fragments(max_gap, n_expressed):
    mentions = [
        (0, 0, ((0, 1), (4, 5))),
        (1, 0, ((0, 1), (5, 6))),
        # Five tokens between the first and the last one, one of them a fragment.
        (2, 0, ((0, 1), (3, 4), (6, 7))),
    ]
    expressed, extra = check(PER_LABEL, [7, 7, 7], mentions, max_gap)
    assert expressed == mentions[:n_expressed]
    assert extra == []


def test_fragments_that_are_too_long_to_be_proposed_are_not_expressed():
    mentions = [(0, 0, ((0, 8), (9, 10))), (1, 0, ((0, 9), (10, 11)))]
    assert MAX_FRAGMENT_LENGTH == 8
    expressed, extra = check(PER_LABEL, [12, 12], mentions)
    assert expressed == mentions[:1]
    assert extra == []


def test_one_label_may_link_what_another_links_too():
    one, part = ((0, 1), (2, 3), (4, 5)), ((0, 1), (4, 5))
    mentions = [(0, 0, one), (0, 1, part), (0, 1, ((2, 3),))]
    assert check(PER_LABEL, [5], mentions) == (mentions, [])


def test_fragments_are_kept_that_most_mentions_need():
    # (0, 2) crosses (1, 3), which two mentions share.
    mentions = [
        (0, 0, ((0, 2), (4, 5))),
        (0, 0, ((1, 3), (4, 5))),
        (0, 0, ((1, 3), (6, 7))),
    ]
    assert check(PER_LABEL, [7], mentions, 5) == (mentions[1:], [])


def test_targets_by_hand():
    # X [and] Y chromosomes in the second of two documents, and a span in the first.
    mentions = [
        (0, 1, ((0, 2),)),
        (1, 0, ((0, 1), (3, 5))),
        (1, 0, ((2, 5),)),
        (1, 1, ((0, 1), (3, 5))),
    ]
    targets, _, expressed = targets_of(PER_LABEL, [2, 5], mentions)
    assert targets.tags.T.tolist() == [[0, 0, 0, 0, 1, 2, 2], [1, 2, 0, 0, 0, 0, 0]]
    assert targets.fragment_tags.T.tolist() == [[0, 0, 1, 0, 0, 1, 2]]
    assert targets.fragments.tolist() == [[2, 3], [5, 7]]
    assert targets.links.tolist() == [[0, 1, 0], [0, 1, 1]]
    assert expressed == mentions
    # Without links the fragments are spans of their own, where there is room.
    targets, _, expressed = targets_of(LAYOUTS["bio"], [2, 5], mentions)
    assert targets.tags.T.tolist()[1] == [1, 2, 1, 0, 0, 1, 2]
    assert expressed[0] == mentions[0]
    assert mentions[1] not in expressed
    assert targets.fragments.shape == (0, 2)
    assert targets.links.shape == (0, 3)


@by_layout
@pytest.mark.parametrize("lengths", [[], [0], [0, 0], [3], [0, 2, 0]], ids=str)
def test_nothing_is_expressed_of_nothing(layout, lengths):
    assert check(layout, lengths, []) == ([], [])
    targets, batch, _ = targets_of(layout, lengths, [])
    n_tokens = sum(lengths)
    shape = (n_tokens, layout.n_layers)
    assert targets.tags.shape == (shape if layout.table is not None else (*shape, 2))
    assert targets.fragment_tags.shape == (n_tokens, 1)
    assert not targets.tags.any()
    spans, labels, values = decode(
        layout, perfect_rows(layout, targets), np.zeros(layout.n_edges, "f"), batch
    )
    assert spans.shape == (0, 2)
    assert labels.shape == values.shape == (0,)
    assert labels.dtype == np.int32


def test_batches_by_hand():
    batch = make_batch([2, 0, 3, 1])
    assert batch.doc_of.tolist() == [0, 0, 2, 2, 2, 3]
    assert batch.is_first.tolist() == [True, False, True, False, False, True]
    assert batch.starts.tolist() == [0, 2, 2, 5]
    for lengths in ([], [0, 0]):
        empty = make_batch(lengths)
        assert empty.doc_of.shape == empty.is_first.shape == (0,)
        assert empty.starts.tolist() == lengths


# Probabilities


def random_rows(layout, n_tokens, seed):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(n_tokens, layout.n_scores)) * 2
    return rows.astype("f"), random.normal(size=layout.n_edges).astype("f")


@pytest.mark.parametrize("name", [name for name in LAYOUTS if "boundary" not in name])
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 999))
def test_values_are_the_share_of_paths_with_the_span(name, lengths, seed):
    layout, batch = LAYOUTS[name], make_batch(lengths)
    rows, edges = random_rows(layout, sum(lengths), seed)
    spans, labels, values = decode(layout, rows, edges, batch)
    shape = (sum(lengths), layout.n_layers, layout.n_tags)
    scores = rows[:, layout.n_fragment_scores :].reshape(shape)
    chain = make_chain(layout.table, scores, layout.edges(edges), batch.is_first)
    n_within = N_LABELS if layout.shared else 1
    shares = [
        reference.span_shares(layout.scheme.name, n_within, chain, layer)
        for layer in range(layout.n_layers)
    ]
    expected = [
        shares[0][start, end, label] if layout.shared else shares[label][start, end, 0]
        for (start, end), label in zip(spans.tolist(), labels.tolist(), strict=True)
    ]
    np.testing.assert_allclose(values, expected, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=3), st.integers(0, 999))
def test_fragments_are_the_spans_with_some_probability(lengths, seed):
    layout, batch = TagLayout(BIO, 1, shared=False, links=True), make_batch(lengths)
    rows, edges = random_rows(layout, sum(lengths), seed)
    rows[:, 0] += 4.0
    scores, own_edges = layout.fragment_scores(rows), layout.fragment_edges(edges)
    chain = make_chain(FRAGMENT_TABLE, scores, own_edges, batch.is_first)
    shares = reference.span_shares("bio", 1, chain, 0)
    likely = sorted((start, end) for (start, end, _), share in shares.items() if share >= 0.002)
    found = [tuple(span) for span in find_fragments(layout, rows, edges, batch).tolist()]
    assert found == sorted(found)
    for doc, length in enumerate(lengths):
        first = int(batch.starts[doc])
        own = [span for span in likely if first <= span[0] < first + length]
        mine = [span for span in found if first <= span[0] < first + length]
        # At most so many: the best ones.
        n_best = math.ceil(MIN_FRAGMENTS + FRAGMENTS_PER_TOKEN * length)
        own = sorted(sorted(own, key=lambda span: -shares[(*span, 0)])[:n_best])
        assert mine == own


def test_fragments_have_a_length_at_most():
    layout, batch = TagLayout(BIO, 1, shared=False, links=True), make_batch([20])
    rows, edges = np.zeros((20, layout.n_scores), dtype="f"), np.zeros(layout.n_edges, dtype="f")
    # B on the first token, then I for so many.
    for n_inner, expected in ((7, [[0, 8]]), (8, [])):
        rows[:, :3] = [SURE, 0, 0]
        rows[0, :3] = [0, SURE, 0]
        rows[1 : 1 + n_inner, :3] = [0, 0, SURE]
        assert find_fragments(layout, rows, edges, batch).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 999))
def test_boundary_values_are_a_start_an_end_and_none_before(lengths, seed):
    layout, batch = LAYOUTS["boundary"], make_batch(lengths)
    rows, edges = random_rows(layout, sum(lengths), seed)
    spans, labels, values = decode(layout, rows, edges, batch)
    probabilities = (1 / (1 + np.exp(-rows.astype("d")))).reshape(-1, N_LABELS, 2).tolist()
    expected = []
    for label in range(N_LABELS):
        own = [token[label] for token in probabilities]
        bits = [(start >= 0.5, end >= 0.5) for start, end in own]
        for start, end in reference.spans_of_bits(bits, batch.is_first.tolist()):
            none_before = math.prod(1 - own[i][1] for i in range(start, end - 1))
            expected.append((start, end, label, own[start][0] * own[end - 1][1] * none_before))
    found = [(*span, label) for span, label in zip(spans.tolist(), labels.tolist(), strict=True)]
    assert found == [row[:3] for row in expected]
    np.testing.assert_allclose(values, [row[3] for row in expected], rtol=1e-9)


def test_boundary_values_by_hand():
    # A start of 3/4, no end of 1/4, an end of 1/2, which is enough.
    three, third = math.log(3), -math.log(3)
    rows = np.asarray([[three, third], [third, 0.0]], dtype="f")
    layout = TagLayout(BOUNDARY, 1, shared=False, links=False)
    spans, _, values = decode(layout, rows, np.zeros(0, "f"), make_batch([2]))
    assert spans.tolist() == [[0, 2]]
    np.testing.assert_allclose(values, [3 / 4 * 3 / 4 * 1 / 2], rtol=1e-6)
    # In two documents the start has no end.
    spans, _, _ = decode(layout, rows, np.zeros(0, "f"), make_batch([1, 1]))
    assert spans.shape == (0, 2)


# Links


def test_join_links_by_hand():
    pairs = np.asarray([[0, 1], [0, 2], [1, 2], [2, 3]])
    probabilities = np.asarray([[0.9, 0.1], [0.8, 0.2], [0.2, 0.1], [0.19, 0.6]])
    # All three linked with the first label; with the second, two pairs that share one.
    expected = [(0, [0, 1, 2], 0.2), (1, [0, 2], 0.2), (1, [2, 3], 0.6)]
    assert join_links(pairs, probabilities) == expected
    assert join_links(pairs, 0 * probabilities) == []
    assert join_links(pairs[:0], probabilities[:0]) == []


def test_pairs_and_their_targets_by_hand():
    # The third fragment starts the second document: nothing of the first can be linked with it.
    batch = make_batch([4, 6])
    fragments = np.asarray([[0, 1], [3, 4], [4, 5], [6, 7], [9, 10]])
    pairs = list_pairs(fragments, batch, 3)
    assert pairs.tolist() == [[0, 1], [2, 3], [3, 4]]
    assert link_offsets(fragments, pairs).tolist() == [[0, 1, 3, 4], [4, 5, 6, 7], [6, 7, 9, 10]]
    # The last link is of fragments too far apart to be listed.
    links = np.asarray([[3, 4, 1], [0, 1, 0], [0, 1, 1], [2, 4, 0]])
    targets = link_targets(pairs, links, 2)
    assert targets.tolist() == [[1, 1], [0, 0], [0, 1]]
    assert targets.dtype == np.float32


def test_no_fragments_have_no_pairs():
    nothing = np.zeros((0, 2), dtype=np.int64)
    for lengths in ([], [3]):
        pairs = list_pairs(nothing, make_batch(lengths), 3)
        assert pairs.shape == (0, 2)
        assert link_offsets(nothing, pairs).shape == (0, 4)
        assert link_targets(pairs, np.zeros((0, 3), dtype=np.int64), 2).shape == (0, 2)
