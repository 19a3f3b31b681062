"""The relations of spans and the cost of candidates, against loops over all pairs."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.kernels import coverage as kernel

Offsets = list[tuple[int, int]]

spans_strategy = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 8)).map(lambda x: (x[0], x[0] + x[1])),
    max_size=12,
)


def as_arrays(spans: Offsets) -> tuple[np.ndarray, np.ndarray]:
    array = np.asarray(spans, dtype=np.int64).reshape(-1, 2)
    return array[:, 0].copy(), array[:, 1].copy()


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return bool(set(range(*a)) & set(range(*b)))


def contain(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return set(range(*a)) >= set(range(*b)) or set(range(*b)) >= set(range(*a))


def reference(spans: Offsets, related) -> list[bool]:
    """Compare every span with every other one."""
    return [any(related(a, b) for j, b in enumerate(spans) if j != i) for i, a in enumerate(spans)]


@settings(max_examples=300)
@given(spans_strategy)
def test_relations_match_loops_over_all_pairs(spans):
    starts, ends = as_arrays(spans)
    expected_crossing = reference(spans, lambda a, b: overlap(a, b) and not contain(a, b))
    assert kernel.find_overlapping(starts, ends).tolist() == reference(spans, overlap)
    assert kernel.find_nested(starts, ends).tolist() == reference(spans, contain)
    assert kernel.find_crossing(starts, ends).tolist() == expected_crossing


@given(spans_strategy)
def test_covered_tokens_match_a_set(spans):
    expected = {token for span in spans for token in range(*span)}
    assert kernel.count_covered(*as_arrays(spans)) == len(expected)


@given(spans_strategy, st.sets(st.integers(1, 20)))
def test_across_sentences_matches_a_loop(spans, cuts):
    first_tokens = sorted({0} | cuts)
    expected = [any(start < cut < end for cut in cuts) for start, end in spans]
    flags = kernel.find_across(*as_arrays(spans), np.asarray(first_tokens))
    assert flags.tolist() == expected


@given(st.lists(st.integers(0, 15), max_size=4), st.one_of(st.none(), st.integers(1, 20)))
def test_candidate_counts_match_listing_them(lengths, max_length):
    expected = sum(
        end - start <= (max_length or n)
        for n in lengths
        for start in range(n)
        for end in range(start + 1, n + 1)
    )
    assert kernel.count_candidates(np.asarray(lengths, dtype=np.int64), max_length) == expected


@pytest.mark.parametrize(
    ("spans", "overlapping", "nested", "crossing"),
    [
        ([(0, 2), (2, 4)], [False, False], [False, False], [False, False]),
        ([(0, 4), (1, 3)], [True, True], [True, True], [False, False]),
        ([(0, 4), (0, 2)], [True, True], [True, True], [False, False]),
        ([(0, 3), (2, 5)], [True, True], [False, False], [True, True]),
        ([(1, 3), (1, 3)], [True, True], [True, True], [False, False]),
        ([(5, 9), (0, 3), (2, 4)], [False, True, True], [False] * 3, [False, True, True]),
    ],
)
def test_relations_of_known_spans(spans, overlapping, nested, crossing):
    starts, ends = as_arrays(spans)
    assert kernel.find_overlapping(starts, ends).tolist() == overlapping
    assert kernel.find_nested(starts, ends).tolist() == nested
    assert kernel.find_crossing(starts, ends).tolist() == crossing


def test_duplicates_need_the_same_label():
    starts, ends = as_arrays([(0, 2), (0, 2), (0, 2), (1, 2)])
    assert kernel.count_duplicates(starts, ends, np.asarray([1, 2, 1, 1])) == 1


def test_unbounded_candidates_of_huge_texts_do_not_overflow():
    n = 5_000_000_000
    assert kernel.count_candidates(np.asarray([n]), None) == n * (n + 1) // 2


def test_lengths_are_summarized_by_nearest_rank():
    summary = kernel.summarize_lengths(np.asarray([1, 1, 2, 10]))
    assert summary == {"mean": 3.5, "median": 1, "p95": 10, "max": 10}
    empty = kernel.summarize_lengths(np.asarray([], dtype=np.int64))
    assert empty == {"mean": 0.0, "median": 0, "p95": 0, "max": 0}


def test_fifty_thousand_spans_take_little_memory():
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 100_000, size=50_000)
    ends = starts + rng.integers(1, 2_000, size=50_000)
    tracemalloc.start()
    try:
        assert kernel.find_crossing(starts, ends).any()
        assert kernel.find_nested(starts, ends).any()
        assert kernel.find_overlapping(starts, ends).all()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A pairs matrix of booleans alone would take 2.5 GB.
    assert peak < 20_000_000
