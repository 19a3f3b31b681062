"""Cut documents into windows of word pieces."""

from collections.abc import Sequence

import numpy as np

from spacy_spans.types import IntArray, Integers, LongArray

# A sentence boundary is taken if it leaves a window at least this full: every window of a batch
# costs what the longest one does.
LEAST_FULL = 0.5


def cut_windows(
    counts: Integers, sentence_starts: Integers, *, max_pieces: int, overlap: int = 0
) -> IntArray:
    """Cut one document into as few windows as fit the budget.

    Windows end before a sentence if one starts in their second half, else at any token. A token
    with more pieces than the budget is a window of its own.

    counts (ndarray): Pieces of each token; 0 is allowed. Shape (n_tokens,).
    sentence_starts (ndarray): Indices of tokens that start a sentence, ascending. Shape (n,).
    max_pieces (int): Most pieces of a window; at least 1.
    overlap (int): Most pieces that a window shares with the one before; below `max_pieces`. It
        shares whole tokens, so it may be fewer.
    RETURNS (ndarray): Half-open token offsets that cover every token. Shape (n_windows, 2), int32;
        (0, 2) for an empty document.

    >>> cut_windows(np.asarray([1, 1, 2, 1]), np.asarray([0]), max_pieces=3, overlap=1).tolist()
    [[0, 2], [1, 3], [3, 4]]
    """
    n_tokens = len(counts)
    sums = np.append(0, np.cumsum(counts))
    windows = []
    start = done = 0
    while done < n_tokens:
        end = _last_that_fits(sums, start, max_pieces)
        if end <= done:  # The next token does not fit behind what would be shared.
            start = done
            end = max(done + 1, _last_that_fits(sums, start, max_pieces))
        if end < n_tokens:
            before = np.searchsorted(sentence_starts, end, side="right") - 1
            boundary = int(sentence_starts[before]) if before >= 0 else 0
            if boundary > done and sums[boundary] - sums[start] >= LEAST_FULL * max_pieces:
                end = boundary
        windows.append((start, end))
        done = end
        first_shared = int(np.searchsorted(sums, sums[end] - overlap, side="left"))
        start = max(start + 1, first_shared) if overlap else end
    return np.asarray(windows, dtype="i").reshape(-1, 2)


def _last_that_fits(sums: Integers, start: int, max_pieces: int) -> int:
    return int(np.searchsorted(sums, sums[start] + max_pieces, side="right")) - 1


def pack(sizes: Sequence[int], max_pieces: int) -> IntArray:
    """Put consecutive parts together up to a budget.

    sizes (Sequence[int]): Pieces of each part; one above the budget stays alone.
    RETURNS (ndarray): The row of each part, counted from 0. Shape (n_parts,), int32.

    >>> pack([2, 2, 1, 9, 1], max_pieces=4).tolist()
    [0, 0, 1, 2, 3]
    """
    rows: list[int] = []
    row = filled = 0
    for size in sizes:
        if rows and filled + size > max_pieces:
            row, filled = row + 1, 0
        rows.append(row)
        filled += size
    return np.asarray(rows, dtype="i")


def spread_ranges(starts: Integers, lengths: Integers) -> LongArray:
    """The numbers of several ranges, one range after the other.

    starts, lengths (ndarray): Of each range. Shape (n_ranges,).
    RETURNS (ndarray): Shape (sum of lengths,), int64.

    >>> spread_ranges(np.asarray([5, 0]), np.asarray([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(lengths, dtype=np.int64) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(np.sum(lengths)), dtype=np.int64)
