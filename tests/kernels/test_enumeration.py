"""Listing spans and pairing boundaries, against loops."""

import tracemalloc
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.kernels import enumeration as kernel

from .. import reference

fast = settings(max_examples=60, deadline=None)
lengths_strategy = st.lists(st.integers(0, 6), max_size=5)


def ints(values):
    return np.asarray(values, dtype="i")


def floats(values):
    return np.asarray(values, dtype="f")


def pairs_of(array):
    assert array.dtype == np.int32
    assert array.ndim == 2
    assert array.shape[1] == 2
    return [tuple(row) for row in array.tolist()]


@fast
@given(lengths_strategy, st.integers(1, 9))
def test_spans_within_segments_match_the_loop(lengths, max_length):
    limits = kernel.segment_limits(lengths)
    assert limits.tolist() == reference.limits_of_segments(lengths)
    expected = reference.spans_within(limits.tolist(), max_length)
    assert pairs_of(kernel.enumerate_spans(limits, max_length)) == expected
    assert kernel.count_spans(limits, max_length) == len(expected)


@fast
@given(
    st.integers(0, 12).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(
                st.tuples(st.integers(0, n), st.integers(0, n)).map(lambda x: (min(x), max(x))),
                max_size=5,
            ),
            st.integers(1, 13),
        )
    )
)
def test_spans_within_runs_match_the_loop(case):
    n_tokens, runs, max_length = case
    limits = kernel.run_limits(ints(runs).reshape(-1, 2), n_tokens)
    assert limits.dtype == np.int32
    assert limits.tolist() == reference.limits_of_runs(runs, n_tokens)
    expected = reference.spans_within(limits.tolist(), max_length)
    assert pairs_of(kernel.enumerate_spans(limits, max_length)) == expected


def test_spans_are_sorted_by_start_then_end():
    spans = kernel.enumerate_spans(ints([3, 3, 3]), 2)
    assert spans.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]


def test_a_limit_longer_than_the_document_lists_all_its_spans():
    assert pairs_of(kernel.enumerate_spans(ints([2, 2]), 1000)) == [(0, 1), (0, 2), (1, 2)]
    assert kernel.count_spans(ints([2, 2]), 1000) == 3


def test_tokens_with_limit_zero_start_no_span():
    assert pairs_of(kernel.enumerate_spans(ints([0, 3, 0]), 3)) == [(1, 2), (1, 3)]
    assert kernel.count_spans(ints([0, 3, 0]), 3) == 2


def test_no_tokens_give_no_spans():
    assert kernel.enumerate_spans(ints([]), 4).shape == (0, 2)
    assert kernel.count_spans(ints([]), 4) == 0
    assert kernel.segment_limits([]).tolist() == []
    assert kernel.segment_limits([0, 0]).tolist() == []
    assert kernel.run_limits(np.zeros((0, 2), dtype="i"), 0).tolist() == []


def test_counting_does_not_overflow_where_listing_would_be_hopeless():
    n = 200_000
    assert kernel.count_spans(kernel.segment_limits([n]), n) == n * (n + 1) // 2


def test_runs_that_touch_or_overlap_count_as_one_run():
    assert kernel.run_limits(ints([[0, 2], [2, 3]]), 4).tolist() == [3, 3, 3, 0]
    assert kernel.run_limits(ints([[1, 4], [0, 2]]), 5).tolist() == [4, 4, 4, 4, 0]


def test_no_runs_keep_no_token():
    assert kernel.run_limits(np.zeros((0, 2), dtype="i"), 3).tolist() == [0, 0, 0]


@fast
@given(
    st.lists(
        st.tuples(
            st.integers(0, 7),
            st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=4),
        ),
        max_size=5,
    )
)
def test_batch_offsets_match_the_loop(documents):
    doc_lengths = [length for length, _ in documents]
    spans = [own for _, own in documents]
    flat = ints([span for own in spans for span in own]).reshape(-1, 2)
    moved = kernel.batch_offsets(flat, [len(own) for own in spans], doc_lengths)
    assert pairs_of(moved) == reference.offsets_in_batch(spans, doc_lengths)


def test_batch_offsets_skip_empty_documents():
    moved = kernel.batch_offsets(ints([[0, 1], [1, 3]]), [0, 1, 0, 1], [0, 4, 2, 3])
    assert moved.tolist() == [[0, 1], [7, 9]]
    assert kernel.batch_offsets(np.zeros((0, 2), dtype="i"), [], []).shape == (0, 2)


# Scores without ties: starts are whole numbers, ends fractions, so that no two sums are equal.
distinct_scores = st.integers(0, 14).flatmap(
    lambda n: st.tuples(st.permutations(range(n)), st.permutations(range(n)))
)


@settings(max_examples=150, deadline=None)
@given(
    distinct_scores,
    st.integers(1, 16),
    st.integers(1, 120),
    st.one_of(st.none(), st.integers(1, 16)),
    st.one_of(st.none(), st.lists(st.booleans(), min_size=14, max_size=14)),
    st.sampled_from([1, 2, 5, 1 << 20]),
)
def test_boundary_pairs_match_brute_force_however_they_are_cut_into_blocks(
    scores, sixteenths, max_candidates, max_length, mask, pairs_per_block
):
    n_tokens = len(scores[0])
    limits = None
    if mask is not None:
        runs = [(i, i + 1) for i in range(n_tokens) if mask[i]]
        limits = kernel.run_limits(ints(runs).reshape(-1, 2), n_tokens)
    start_scores = [float(rank) for rank in scores[0]]
    end_scores = [rank / 64 for rank in scores[1]]
    with mock.patch.object(kernel, "PAIRS_PER_BLOCK", pairs_per_block):
        pairs = kernel.pair_boundaries(
            floats(start_scores),
            floats(end_scores),
            ratio=sixteenths / 16,
            max_candidates=max_candidates,
            max_length=max_length,
            limits=limits,
        )
    assert pairs_of(pairs) == reference.best_pairs(
        start_scores,
        end_scores,
        ratio=Fraction(sixteenths, 16),
        max_candidates=max_candidates,
        max_length=max_length,
        limits=[n_tokens] * n_tokens if limits is None else limits.tolist(),
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12),
    st.integers(1, 60),
    st.one_of(st.none(), st.integers(1, 12)),
    st.sampled_from([1, 3, 1 << 20]),
)
def test_ties_between_pairs_change_which_are_kept_but_not_their_scores(
    scores, max_candidates, max_length, pairs_per_block
):
    start_scores, end_scores = (list(column) for column in zip(*scores, strict=True))
    tokens = set(range(len(scores)))
    with mock.patch.object(kernel, "PAIRS_PER_BLOCK", pairs_per_block):
        pairs = pairs_of(
            kernel.pair_boundaries(
                floats(start_scores),
                floats(end_scores),
                ratio=1.0,
                max_candidates=max_candidates,
                max_length=max_length,
            )
        )
    possible = reference.all_pairs(tokens, tokens, max_length)
    assert pairs == sorted(set(pairs))
    assert set(pairs) <= set(possible)

    def score(pair):
        return start_scores[pair[0]] + end_scores[pair[1] - 1]

    assert sorted(map(score, pairs)) == sorted(map(score, possible))[-max_candidates:]


@fast
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12),
    st.integers(1, 16),
)
def test_ties_between_boundaries_keep_the_right_number_of_the_best(scores, sixteenths):
    start_scores, end_scores = (list(column) for column in zip(*scores, strict=True))
    n = len(scores)
    n_kept = reference.n_boundaries(Fraction(sixteenths, 16), n)
    pairs = pairs_of(
        kernel.pair_boundaries(
            floats(start_scores), floats(end_scores), ratio=sixteenths / 16, max_candidates=1000
        )
    )
    starts = {start for start, _ in pairs}
    lasts = {end - 1 for _, end in pairs}
    # What is missing found no partner: every start pairs with every last that is not before it.
    assert pairs == reference.all_pairs(starts, lasts, None)
    for kept, all_scores in ((starts, start_scores), (lasts, end_scores)):
        lowest = sorted(all_scores, reverse=True)[n_kept - 1]
        assert len(kept) <= n_kept
        assert all(all_scores[i] >= lowest for i in kept)


@pytest.mark.parametrize(
    ("n_tokens", "ratio", "n_kept"),
    [
        (1, 0.01, 1),
        (10, 0.01, 1),
        (10, 0.1, 1),
        (10, 0.3, 3),
        (10, 0.31, 4),
        (3, 0.5, 2),
        (7, 1.0, 7),
        # 0.07 * 100 is 7.000000000000001 in floating point, and 0.55 * 100 a bit above 55.
        (100, 0.07, 7),
        (100, 0.55, 55),
    ],
)
def test_ratio_of_tokens_rounds_up_but_not_beyond_whole_numbers(n_tokens, ratio, n_kept):
    # With a band of one token, pairs are the tokens kept on both sides.
    scores = np.arange(n_tokens, dtype="f")
    pairs = kernel.pair_boundaries(scores, scores, ratio=ratio, max_candidates=1000, max_length=1)
    assert pairs_of(pairs) == [(i, i + 1) for i in range(n_tokens - n_kept, n_tokens)]


@pytest.mark.parametrize(
    ("max_candidates", "expected"),
    [
        (1, [(1, 3)]),
        (2, [(1, 3), (2, 3)]),
        (5, [(0, 1), (0, 3), (1, 2), (1, 3), (2, 3)]),
        (6, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
        (7, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
    ],
)
def test_limit_below_at_and_above_the_number_of_pairs(max_candidates, expected):
    pairs = kernel.pair_boundaries(
        floats([0, 5, 4.5]), floats([1, 0, 9]), ratio=1.0, max_candidates=max_candidates
    )
    assert pairs_of(pairs) == expected


def test_the_best_start_behind_the_best_end_gives_no_pair():
    pairs = kernel.pair_boundaries(
        floats([0, 0, 9]), floats([9, 0, 0]), ratio=0.1, max_candidates=10
    )
    assert pairs.shape == (0, 2)
    assert pairs.dtype == np.int32


def test_band_is_in_tokens():
    ones = np.ones(4, dtype="f")
    pairs = kernel.pair_boundaries(ones, ones, ratio=1.0, max_candidates=99, max_length=2)
    assert pairs_of(pairs) == [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]


def test_an_empty_document_has_no_pairs():
    nothing = np.zeros(0, dtype="f")
    pairs = kernel.pair_boundaries(nothing, nothing, ratio=0.5, max_candidates=10)
    assert pairs.shape == (0, 2)
    assert pairs.dtype == np.int32


@pytest.mark.parametrize(
    ("start_scores", "n_blocks"),
    [
        # The best start's best pair beats what any other start can reach.
        ([0, 0, 9, 1], 1),
        # The best end comes before the two best starts: the third is looked at, and is the best.
        ([0, 1, 5, 3], 3),
        # A tie has to be looked at, since it is as good.
        ([3, 3, 0, 0], 2),
        # All are looked at where all can be as good.
        ([1, 1, 1, 1], 4),
    ],
)
def test_starts_that_cannot_be_among_the_best_pairs_are_not_looked_at(start_scores, n_blocks):
    end_scores = [0, 7, 0, 0] if start_scores == [0, 1, 5, 3] else [0, 0, 0, 7]
    calls = mock.Mock(wraps=kernel._best)
    with (
        mock.patch.object(kernel, "PAIRS_PER_BLOCK", 1),
        mock.patch.object(kernel, "_best", calls),
    ):
        pairs = pairs_of(
            kernel.pair_boundaries(
                floats(start_scores), floats(end_scores), ratio=1.0, max_candidates=1
            )
        )
    # Twice for the boundaries, then once for each block of pairs.
    assert calls.call_count - 2 == n_blocks
    (pair,) = pairs
    best = max(
        start_scores[start] + end_scores[end - 1]
        for start, end in reference.all_pairs({0, 1, 2, 3}, {0, 1, 2, 3}, None)
    )
    assert start_scores[pair[0]] + end_scores[pair[1] - 1] == best


def test_pairs_of_a_long_document_take_bounded_memory():
    random = np.random.default_rng(0)
    n = 20_000
    start_scores, end_scores = random.standard_normal((2, n)).astype("f")
    with mock.patch.object(kernel, "PAIRS_PER_BLOCK", 1 << 18):
        tracemalloc.start()
        try:
            pairs = kernel.pair_boundaries(start_scores, end_scores, ratio=0.2, max_candidates=100)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert len(pairs) == 100
    # Eight million pairs at once would take 128 MB in offsets alone.
    assert peak < 40_000_000
    # The best hundred sums of the kept boundaries, from a table of all of them.
    starts = np.sort(np.argsort(-start_scores)[:4000])
    lasts = np.sort(np.argsort(-end_scores)[:4000])
    table = start_scores[starts][:, None] + end_scores[lasts][None, :]
    table[starts[:, None] > lasts[None, :]] = -np.inf
    best = np.sort(table.reshape(-1))[-100:]
    found = np.sort(start_scores[pairs[:, 0]] + end_scores[pairs[:, 1] - 1])
    np.testing.assert_array_equal(found, best)
