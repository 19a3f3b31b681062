"""Tag schemes: there and back, against tags written by name and all subsets of spans."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spacy_spans.kernels.schemes import (
    BIO,
    BIOES,
    BOUNDARY,
    IO,
    ChainScheme,
    decode_boundaries,
    decode_chain,
    encode_boundaries,
    encode_chain,
    expressible,
    lay_out,
    overlap_across,
    tag_table,
)

from .. import reference_tags as reference

CHAINS = [IO, BIO, BIOES]
# A scheme, layers, and labels that share each of them.
SHAPES = [
    *((scheme, n_layers, n_labels) for scheme in CHAINS for n_layers, n_labels in ((1, 1), (2, 2))),
    (IO, 1, 3),
    (BIO, 1, 3),
    (BOUNDARY, 1, 1),
    (BOUNDARY, 2, 1),
]
by_shape = pytest.mark.parametrize(
    ("scheme", "n_layers", "n_labels"), SHAPES, ids=[f"{s.name}-{n}-{m}" for s, n, m in SHAPES]
)


@st.composite
def documents_with_spans(draw, max_spans=8):
    """Tokens per document, and spans as (document, start, end, random number), no two equal."""
    lengths = draw(st.lists(st.integers(0, 5), max_size=3))
    spans = [
        (d, i, j) for d, n in enumerate(lengths) for i in range(n) for j in range(i + 1, n + 1)
    ]
    if not spans:
        return lengths, []
    span = st.tuples(st.sampled_from(spans), st.integers(0, 5)).map(lambda x: (*x[0], x[1]))
    return lengths, draw(st.lists(span, unique=True, max_size=max_spans))


def spread(rows, n_layers, n_labels):
    """Make (document, layer, start, end, label) of what the strategy draws, no two equal."""
    return list(
        dict.fromkeys((d, x % n_layers, i, j, x // n_layers % n_labels) for d, i, j, x in rows)
    )


def columns_of(rows):
    table = np.asarray(rows, dtype="i").reshape(-1, 5)
    return table[:, 0], table[:, 1], table[:, 2:4], table[:, 4]


def marked(scheme, lengths, rows):
    docs, layers, offsets, labels = columns_of(rows)
    kept = expressible(scheme, lay_out(offsets, layers, docs, lengths), labels)
    assert kept.shape == (len(rows),)
    assert kept.dtype == bool
    return [row for row, is_kept in zip(rows, kept.tolist(), strict=True) if is_kept]


def there_and_back(scheme, lengths, rows, n_layers, n_labels):
    """Encode rows, decode the tags of the tokens alone, and say what they are rows of."""
    docs, layers, offsets, labels = columns_of(rows)
    where = lay_out(offsets, layers, docs, lengths)
    n_positions = n_layers * sum(length + 1 for length in lengths)
    # Token by token: layer, document, offset, and the position on the common axis.
    tokens, position = [], 0
    for layer in range(n_layers):
        for doc, length in enumerate(lengths):
            tokens += [(layer, doc, i, position + i) for i in range(length)]
            position += length + 1
    at = np.asarray([token[3] for token in tokens], dtype=int)
    is_first = np.asarray([token[2] == 0 for token in tokens], dtype=bool)
    if scheme is BOUNDARY:
        spans = decode_boundaries(encode_boundaries(where, n_positions)[at], is_first)
        found = np.zeros(len(spans), dtype=int)
    else:
        table = tag_table(scheme, n_labels)
        tags = encode_chain(table, where, labels, n_positions)
        assert np.all(np.delete(tags, at) == 0)
        spans, found = decode_chain(table, tags[at], is_first)
    back = []
    for (start, end), label in zip(spans.tolist(), found.tolist(), strict=True):
        layer, doc, i, _ = tokens[start]
        assert tokens[end - 1][:2] == (layer, doc)
        back.append((doc, layer, i, i + end - start, label))
    return back


@by_shape
@settings(max_examples=100, deadline=None)
@given(documents_with_spans())
@example(([2, 0, 2], [(0, 0, 2, 0), (2, 0, 2, 0), (0, 1, 2, 1), (2, 0, 1, 1)]))
def test_decoding_gives_back_exactly_what_is_expressible(scheme, n_layers, n_labels, case):
    lengths, drawn = case
    kept = marked(scheme, lengths, spread(drawn, n_layers, n_labels))
    back = there_and_back(scheme, lengths, kept, n_layers, n_labels)
    assert sorted(back) == sorted(kept)
    assert back == sorted(back, key=lambda row: (row[1], row[0], row[2]))


@by_shape
@settings(max_examples=100, deadline=None)
@given(documents_with_spans(max_spans=7))
@example(([3], [(0, 0, 1, 0), (0, 1, 3, 0), (0, 2, 3, 0)]))
@example(([4], [(0, 0, 1, 0), (0, 1, 2, 0), (0, 1, 2, 1), (0, 2, 4, 0), (0, 3, 4, 0)]))
def test_as_many_spans_as_possible_are_expressible(scheme, n_layers, n_labels, case):
    lengths, drawn = case
    rows = spread(drawn, n_layers, n_labels)
    expected = 0
    for doc, n_tokens in enumerate(lengths):
        for layer in range(n_layers):
            own = [row[2:] for row in rows if row[:2] == (doc, layer)]
            expected += reference.largest_subset(
                own, lambda chosen, n=n_tokens: reference.survives(scheme.name, chosen, n)
            )
    assert len(marked(scheme, lengths, rows)) == expected


@pytest.mark.parametrize(
    ("spans", "io", "bio", "bioes", "boundary"),
    [
        pytest.param([], "O O O O O", "O O O O O", "O O O O O", ". . . . .", id="nothing"),
        pytest.param([(1, 2)], "O I O O O", "O B O O O", "O S O O O", ". SE . . .", id="one token"),
        pytest.param([(0, 2)], "I I O O O", "B I O O O", "B E O O O", "S E . . .", id="two"),
        pytest.param([(1, 5)], "O I I I I", "O B I I I", "O B I I E", ". S . . E", id="to the end"),
        pytest.param([(0, 1), (2, 5)], "I O I I I", "B O B I I", "S O B I E", "SE . S . E", id="2"),
        pytest.param([(0, 2), (2, 4)], None, "B I B I O", "B E B E O", "S E S E .", id="touching"),
        pytest.param([(0, 1), (1, 2)], None, "B B O O O", "S S O O O", "SE SE . . .", id="singles"),
        pytest.param([(0, 4), (2, 4)], None, None, None, "S . S E .", id="ending together"),
        pytest.param([(0, 4), (0, 2)], None, None, None, None, id="starting together"),
        pytest.param([(0, 3), (2, 5)], None, None, None, None, id="crossing"),
        pytest.param([(0, 4), (1, 3)], None, None, None, None, id="nested"),
    ],
)
def test_tags_by_hand(spans, io, bio, bioes, boundary):
    rows = [(0, 0, start, end, 0) for start, end in spans]
    docs, layers, offsets, labels = columns_of(rows)
    where = lay_out(offsets, layers, docs, [5])
    for scheme, expected in ((IO, io), (BIO, bio), (BIOES, bioes)):
        assert expressible(scheme, where, labels).all() == (expected is not None)
        if expected is not None:
            tags = encode_chain(tag_table(scheme, 1), where, labels, 5)
            assert " ".join(["O", *scheme.tags][tag] for tag in tags) == expected
            assert tags.dtype == np.int32
    assert expressible(BOUNDARY, where, labels).all() == (boundary is not None)
    if boundary is not None:
        bits = encode_boundaries(where, 5)
        names = {(False, False): ".", (True, False): "S", (False, True): "E", (True, True): "SE"}
        assert " ".join(names[tuple(row)] for row in bits.tolist()) == boundary


def test_labels_that_share_a_layer_have_tags_of_their_own():
    rows = [(0, 0, 0, 2, 1), (0, 0, 2, 3, 0), (0, 0, 3, 6, 1)]
    docs, layers, offsets, labels = columns_of(rows)
    where = lay_out(offsets, layers, docs, [6])
    for scheme, expected in (
        (IO, "I1 I1 I0 I1 I1 I1"),
        (BIO, "B1 I1 B0 B1 I1 I1"),
        (BIOES, "B1 E1 S0 B1 I1 E1"),
    ):
        assert expressible(scheme, where, labels).all()
        tags = encode_chain(tag_table(scheme, 2), where, labels, 6)
        names = reference.tag_names("".join(scheme.tags), 2)
        assert " ".join(names[tag] for tag in tags) == expected


@pytest.mark.parametrize("scheme", [*CHAINS, BOUNDARY], ids=lambda scheme: scheme.name)
def test_documents_and_layers_never_meet(scheme):
    # Whole documents of one label, side by side, one of them empty, in two layers.
    lengths = [1, 0, 2, 2]
    rows = [(d, layer, 0, n, 0) for d, n in enumerate(lengths) if n for layer in (0, 1)]
    assert marked(scheme, lengths, rows) == rows
    assert sorted(there_and_back(scheme, lengths, rows, 2, 1)) == sorted(rows)
    # Tags that could go on, at the border of two documents.
    is_first = np.asarray([True, False, True, False])
    if scheme is BOUNDARY:
        bits = np.asarray([[0, 1], [1, 0], [0, 0], [0, 1]], dtype=bool)
        assert decode_boundaries(bits, is_first).tolist() == []
    else:
        inner = np.full(4, 1 + scheme.inside, dtype="i")
        spans, _ = decode_chain(tag_table(scheme, 1), inner, is_first)
        assert spans.tolist() == [[0, 2], [2, 4]]


def test_lay_out_by_hand():
    # Documents of 2, 0 and 3 tokens take positions 0-1, 3 has no token, 4-6 in the first layer.
    offsets = np.asarray([[0, 2], [0, 1], [2, 3], [0, 3]], dtype="i")
    layers, docs = np.asarray([0, 0, 0, 1]), np.asarray([0, 2, 2, 2])
    where = lay_out(offsets, layers, docs, [2, 0, 3])
    assert where.tolist() == [[0, 2], [4, 5], [6, 7], [12, 15]]
    assert where.dtype == np.int64


def test_tables_by_hand():
    io, bio, bioes = (tag_table(scheme, 1) for scheme in CHAINS)
    assert io.legal.astype(int).tolist() == [[1, 1], [1, 1]]
    assert io.continues.astype(int).tolist() == [[0, 0], [0, 1]]
    assert bio.legal.astype(int).tolist() == [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    assert bio.continues.astype(int).tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 1]]
    # O, B, I, E, S.
    assert bioes.legal.astype(int).tolist() == [
        [1, 1, 0, 0, 1],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 0],
        [1, 1, 0, 0, 1],
        [1, 1, 0, 0, 1],
    ]
    for table, may_start, may_end in (
        (io, [1, 1], [1, 1]),
        (bio, [1, 1, 0], [1, 1, 1]),
        (bioes, [1, 1, 0, 0, 1], [1, 0, 0, 1, 1]),
    ):
        assert table.may_start.astype(int).tolist() == may_start
        assert table.may_end.astype(int).tolist() == may_end
        assert table.n_tags == len(may_start)


@pytest.mark.parametrize("scheme", CHAINS, ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("n_labels", [1, 2, 3])
def test_legal_pairs_are_those_that_stand_next_to_each_other_in_some_document(scheme, n_labels):
    names = reference.tag_names("".join(scheme.tags), n_labels)
    table = tag_table(scheme, n_labels)
    spans = [(i, j, x) for i in range(4) for j in range(i + 1, 5) for x in range(n_labels)]
    documents = [
        reference.tag_spans(scheme.name, chosen, 4)
        for chosen in ([], *([a] for a in spans), *([a, b] for a in spans for b in spans))
        if all(end <= 4 for _, end, _ in chosen)
        and (len(chosen) < 2 or chosen[0][1] <= chosen[1][0])
    ]
    seen = {pair for tags in documents for pair in pairwise(tags)}
    legal = {(names[a], names[b]) for a, b in zip(*np.nonzero(table.legal), strict=True)}
    assert legal == seen
    assert {names[i] for i in np.flatnonzero(table.may_start)} == {tags[0] for tags in documents}
    assert {names[i] for i in np.flatnonzero(table.may_end)} == {tags[-1] for tags in documents}


any_tags = st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=12)


@pytest.mark.parametrize("scheme", CHAINS, ids=lambda scheme: scheme.name)
@settings(max_examples=80, deadline=None)
@given(any_tags, st.integers(1, 3))
def test_any_tags_decode_legal_or_not(scheme, drawn, n_labels):
    names = reference.tag_names("".join(scheme.tags), n_labels)
    tags = [number % len(names) for number, _ in drawn]
    is_first = [i == 0 or first for i, (_, first) in enumerate(drawn)]
    spans, labels = decode_chain(
        tag_table(scheme, n_labels), np.asarray(tags, dtype="i"), np.asarray(is_first, dtype=bool)
    )
    found = [(*span, label) for span, label in zip(spans.tolist(), labels.tolist(), strict=True)]
    assert found == reference.spans_of_tags(scheme.name, [names[tag] for tag in tags], is_first)
    assert spans.shape == (len(found), 2)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=12))
def test_any_bits_decode_to_the_nearest_end(drawn):
    bits = [(start, end) for start, end, _ in drawn]
    is_first = [i == 0 or first for i, (_, _, first) in enumerate(drawn)]
    spans = decode_boundaries(
        np.asarray(bits, dtype=bool).reshape(-1, 2), np.asarray(is_first, dtype=bool)
    )
    assert [*map(tuple, spans.tolist())] == reference.spans_of_bits(bits, is_first)
    assert spans.shape == (len(spans), 2)


labelled = st.tuples(st.integers(0, 8), st.integers(1, 5), st.integers(0, 2)).map(
    lambda x: (x[0], x[0] + x[1], x[2])
)


@settings(max_examples=150, deadline=None)
@given(st.lists(labelled, max_size=6))
def test_overlap_across_labels_matches_the_double_loop(spans):
    table = np.asarray(spans, dtype="i").reshape(-1, 3)
    found = overlap_across(table[:, :2], table[:, 2])
    assert isinstance(found, bool)
    assert found == reference.any_overlap_across(spans)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], False),
        ([(0, 4, 0), (1, 3, 0), (2, 5, 0)], False),
        ([(0, 2, 0), (2, 4, 1)], False),
        ([(0, 2, 0), (0, 2, 1)], True),
        ([(0, 9, 0), (1, 2, 0), (8, 9, 1)], True),
    ],
)
def test_overlap_across_by_hand(spans, expected):
    table = np.asarray(spans, dtype="i").reshape(-1, 3)
    assert overlap_across(table[:, :2], table[:, 2]) is expected


def test_a_scheme_that_marks_ends_alone_may_touch():
    """What may touch follows from the tags, not from their names."""
    scheme = ChainScheme("ioe", ("I", "E"), 0, 0, 1, 1, "spans of one label that overlap")
    spans = np.asarray([(0, 2), (2, 3), (3, 6)])
    labels = np.zeros(3, dtype="i")
    assert expressible(scheme, spans, labels).all()
    table = tag_table(scheme, 1)
    tags = encode_chain(table, spans, labels, 6)
    assert tags.tolist() == [1, 2, 2, 1, 1, 2]
    found, _ = decode_chain(table, tags, np.arange(6) == 0)
    assert found.tolist() == spans.tolist()
