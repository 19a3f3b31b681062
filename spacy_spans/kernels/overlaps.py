"""How well two sets of labelled spans of one document overlap.

Spans are rows of start, end and label index, half-open offsets of at least one token each. Sorting
and searching, never a matrix of all pairs: pairs that may overlap are looked at in blocks, so that
memory grows with the number of spans only, and time with the number of overlaps.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Pairs looked at together. A block holds all pairs of a span, of which there may be more.
BLOCK_PAIRS = 2**17


def share_credit(spans: Ints, others: Ints, block_pairs: int = BLOCK_PAIRS) -> Floats:
    """Sum the overlap of spans with their best partners; no partner hands out more than 1.

    spans (Ints): The spans that look for a partner among the others. Shape (n, 3).
    others (Ints): Shape (m, 3).
    block_pairs (int): Pairs looked at together.
    RETURNS (Floats): What each of the others hands out: the Dice coefficients of all spans whose
        best partner it is, at most 1 in total. Shape (m,).
    """
    partners, dice = find_partners(spans, others, block_pairs)
    found = partners >= 0
    credit = np.bincount(partners[found], weights=dice[found], minlength=len(others))
    return np.minimum(credit, 1.0)


def find_partners(spans: Ints, others: Ints, block_pairs: int = BLOCK_PAIRS) -> tuple[Ints, Floats]:
    """Find the span of the same label that overlaps most: that of the highest Dice coefficient.

    The coefficient is twice the number of shared tokens, divided by the sum of both lengths. Of
    equally good partners the one that starts first is taken, then the shorter one.

    spans (Ints): Shape (n, 3).
    others (Ints): Shape (m, 3).
    block_pairs (int): Pairs looked at together.
    RETURNS (tuple): Row of each span's partner, -1 where none overlaps, shape (n,); and the
        coefficient, 0 where none overlaps, shape (n,).
    """
    partners = np.full(len(spans), -1, dtype=np.int64)
    dice = np.zeros(len(spans))
    if len(spans) == 0 or len(others) == 0:
        return partners, dice
    # Laid end to end by label, spans of different labels do not overlap.
    room = max(spans[:, 1].max(), others[:, 1].max())
    starts, ends = _lay_out(spans, room)
    other_starts, other_ends = _lay_out(others, room)
    order = np.lexsort((other_ends, other_starts))
    other_starts, other_ends = other_starts[order], other_ends[order]
    # What lies outside of first:stop does not overlap; inside, what ended early does not either.
    first = np.searchsorted(np.maximum.accumulate(other_ends), starts, side="right")
    stop = np.searchsorted(other_starts, ends, side="left")
    (rows,) = np.nonzero(stop > first)
    counts = (stop - first)[rows]
    for block in _blocks(counts, block_pairs):
        here, sizes = rows[block], counts[block]
        begins = np.cumsum(sizes) - sizes
        pairs = np.arange(sizes.sum()) + np.repeat(first[here] - begins, sizes)
        a, b = np.repeat(starts[here], sizes), np.repeat(ends[here], sizes)
        c, d = other_starts[pairs], other_ends[pairs]
        shared = np.maximum(np.minimum(b, d) - np.maximum(a, c), 0)
        # Equal fractions are equal floats: division rounds correctly.
        values = 2 * shared / (b - a + d - c)
        best = np.maximum.reduceat(values, begins)
        ties = np.where(values == np.repeat(best, sizes), pairs, len(order))
        dice[here] = best
        partners[here] = np.where(best > 0, order[np.minimum.reduceat(ties, begins)], -1)
    return partners, dice


def _lay_out(spans: Ints, room: int) -> tuple[Ints, Ints]:
    shift = spans[:, 2].astype(np.int64) * room
    return spans[:, 0] + shift, spans[:, 1] + shift


def _blocks(counts: Ints, limit: int) -> Iterator[slice]:
    """Split rows so that the counts of each part add up to the limit at most, or are one row's."""
    reached = np.cumsum(counts)
    begin = done = 0
    while begin < len(counts):
        end = max(int(np.searchsorted(reached, done + limit, side="right")), begin + 1)
        yield slice(begin, end)
        begin, done = end, int(reached[end - 1])
