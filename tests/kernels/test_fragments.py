"""Pairs of fragments against a double loop, linked sets against all sets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.kernels.fragments import SETS_PER_NODE, linked_sets, pair_fragments

from .. import reference_tags as reference

# Fragments as (document, start, end); they may overlap, touch, and start together.
fragments_of_documents = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(1, 4)).map(
        lambda x: (x[0], x[1], x[1] + x[2])
    ),
    unique=True,
    max_size=12,
).map(sorted)
graphs = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda link: link[0] != link[1]),
    max_size=20,
)


def as_links(links):
    return np.asarray(links, dtype=np.int64).reshape(-1, 2)


@settings(max_examples=150, deadline=None)
@given(fragments_of_documents, st.integers(1, 12))
def test_pairs_match_the_double_loop(rows, max_gap):
    table = np.asarray(rows, dtype="i").reshape(-1, 3)
    pairs = pair_fragments(table[:, 1:], table[:, 0], max_gap)
    spans, docs = [(start, end) for _, start, end in rows], [doc for doc, _, _ in rows]
    assert pairs.shape == (len(pairs), 2)
    assert [*map(tuple, pairs.tolist())] == reference.pairs_within(spans, docs, max_gap)


@settings(max_examples=50, deadline=None)
@given(fragments_of_documents, st.sampled_from([10**12, 2**63 - 1, 10**30]))
def test_a_gap_longer_than_any_text_is_no_limit(rows, max_gap):
    table = np.asarray(rows, dtype="i").reshape(-1, 3)
    # Many documents: no offset may leave the integers.
    docs = table[:, 0] * 10**9
    expected = pair_fragments(table[:, 1:], docs, 100)
    assert pair_fragments(table[:, 1:], docs, max_gap).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("second", "expected"),
    [((2, 3), []), ((3, 4), [[0, 1]]), ((5, 9), [[0, 1]]), ((6, 9), []), ((1, 9), [])],
    ids=["touching", "one between", "three between", "four between", "overlapping"],
)
def test_gaps_by_hand(second, expected):
    fragments = np.asarray([(0, 2), second], dtype="i")
    assert pair_fragments(fragments, np.asarray([0, 0]), 3).tolist() == expected
    assert pair_fragments(fragments, np.asarray([0, 1]), 3).tolist() == []


def test_documents_are_apart_however_large_the_gap():
    # The last token of one document, and the first of the next.
    fragments = np.asarray([[8, 9], [0, 1], [3, 4]], dtype="i")
    assert pair_fragments(fragments, np.asarray([0, 1, 1]), 1000).tolist() == [[1, 2]]


@pytest.mark.parametrize("n", [0, 1])
def test_one_fragment_has_no_pair(n):
    pairs = pair_fragments(np.zeros((n, 2), dtype="i"), np.zeros(n, dtype="i"), 5)
    assert pairs.shape == (0, 2)
    assert pairs.dtype == np.int64


@settings(max_examples=150, deadline=None)
@given(graphs)
def test_linked_sets_are_the_maximal_cliques(links):
    assert linked_sets(as_links(links)) == reference.maximal_cliques(links)


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([(3, 7)], [[3, 7]], id="a pair"),
        pytest.param([(7, 3), (3, 7)], [[3, 7]], id="said twice"),
        pytest.param([(0, 2), (1, 2)], [[0, 2], [1, 2]], id="a fragment shared"),
        pytest.param([(0, 1), (1, 2), (0, 2)], [[0, 1, 2]], id="three"),
        pytest.param(
            [(0, 1), (1, 2), (2, 3), (0, 3)], [[0, 1], [0, 3], [1, 2], [2, 3]], id="a ring"
        ),
        pytest.param(
            [(a, b) for a in range(6) for b in range(a)], [[0, 1, 2, 3, 4, 5]], id="all of six"
        ),
        pytest.param(
            # Moon and Moser: three groups of two, linked across groups only.
            [(a, b) for a in range(6) for b in range(a) if a // 2 != b // 2],
            [[a, b, c] for a in (0, 1) for b in (2, 3) for c in (4, 5)],
            id="most sets",
        ),
    ],
)
def test_linked_sets_by_hand(links, expected):
    assert linked_sets(as_links(links)) == expected


def test_a_component_gives_a_bounded_number_of_sets():
    """Pairs that are all linked but for partners: 3 ** 10 maximal sets."""
    nodes = range(30)
    links = [(a, b) for a in nodes for b in nodes if a < b and a // 3 != b // 3]
    found = linked_sets(np.asarray(links))
    assert len(found) == SETS_PER_NODE * 30
    assert all(len(members) == 10 and len({m // 3 for m in members}) == 10 for members in found)
