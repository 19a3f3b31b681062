"""Windows of word pieces: cover everything, within the budget, overlapping only as far as asked."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.kernels.windows import cut_windows, pack, spread_ranges

COUNTS = st.lists(st.integers(0, 9), max_size=30)


def cut(counts, starts=(), **budget):
    windows = cut_windows(np.asarray(counts, dtype="i"), np.asarray(starts, dtype="i"), **budget)
    assert windows.dtype == np.int32
    assert windows.shape == (len(windows), 2)
    return [tuple(window) for window in windows.tolist()]


@settings(max_examples=300, deadline=None)
@given(COUNTS, st.integers(1, 12), st.data())
def test_windows_cover_fit_and_overlap_as_asked(counts, max_pieces, data):
    overlap = data.draw(st.integers(0, max_pieces - 1))
    starts = sorted(data.draw(st.sets(st.integers(0, max(0, len(counts) - 1)))))
    windows = cut(counts, starts, max_pieces=max_pieces, overlap=overlap)
    assert {i for low, high in windows for i in range(low, high)} == set(range(len(counts)))
    for low, high in windows:
        assert sum(counts[low:high]) <= max_pieces or high == low + 1
    for (low, high), (next_low, next_high) in pairwise(windows):
        assert low < next_low <= high < next_high
        assert sum(counts[next_low:high]) <= overlap
        if overlap == 0:
            assert next_low == high
        # It ends where the budget does, or at a sentence in its second half.
        fits = sum(counts[low : high + 1]) <= max_pieces
        assert not fits or (high in starts and sum(counts[low:high]) >= max_pieces / 2)


def test_windows_end_at_the_last_sentence_of_their_second_half():
    ones = [1] * 10
    assert cut(ones, [0, 2, 3, 5], max_pieces=4) == [(0, 3), (3, 5), (5, 9), (9, 10)]
    assert cut(ones, [0, 1], max_pieces=4) == [(0, 4), (4, 8), (8, 10)]


def test_windows_share_whole_tokens():
    assert cut([1] * 6, max_pieces=4, overlap=2) == [(0, 4), (2, 6)]
    assert cut([2] * 6, max_pieces=5, overlap=3) == [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6)]


def test_a_token_above_the_budget_is_alone():
    assert cut([1, 9, 1], max_pieces=4, overlap=3) == [(0, 1), (1, 2), (2, 3)]


def test_windows_of_nothing():
    assert cut([], max_pieces=1) == []
    assert cut([0, 0, 0], max_pieces=1) == [(0, 3)]


@settings(max_examples=200, deadline=None)
@given(COUNTS, st.integers(1, 12))
def test_pack_fills_each_row_as_far_as_the_next_part_allows(sizes, max_pieces):
    rows = pack(sizes, max_pieces).tolist()
    expected, row, filled = [], 0, 0
    for i, size in enumerate(sizes):
        if i and filled + size > max_pieces:
            row, filled = row + 1, 0
        filled += size
        expected.append(row)
    assert rows == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=8))
def test_spread_ranges_is_the_slow_loop(ranges):
    starts, lengths = (
        (np.asarray(column, dtype=np.int64) for column in zip(*ranges, strict=True))
        if ranges
        else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    )
    expected = [i for start, length in ranges for i in range(start, start + length)]
    assert spread_ranges(starts, lengths).tolist() == expected
