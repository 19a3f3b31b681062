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

    Equal spans are partners first, and have nothing left for others: a near miss of one of two
    nested spans, the other of which was found, goes to the one that was not.

    spans (Ints): The spans that look for a partner among the others, each once. Shape (n, 3).
    others (Ints): Each once. Shape (m, 3).
    block_pairs (int): Pairs looked at together.
    RETURNS (Floats): What each of the others hands out: 1 if it is found exactly, else the Dice
        coefficients of all spans left whose best partner it is, at most 1 in total. Shape (m,).
    """
    both = np.concatenate([spans.reshape(-1, 3), others.reshape(-1, 3)])
    order = np.lexsort(both.T)
    is_other = order >= len(spans)
    equal = (both[order[1:]] == both[order[:-1]]).all(axis=1)
    (at,) = np.nonzero(equal & (is_other[1:] != is_other[:-1]))
    is_exact = np.zeros(len(both), dtype=bool)
    is_exact[order[at]] = is_exact[order[at + 1]] = True
    credit = is_exact[len(spans) :].astype(np.float64)
    (left,) = np.nonzero(~is_exact[len(spans) :])
    rest = spans[~is_exact[: len(spans)]]
    partners, dice = find_partners(rest, others[left], block_pairs)
    found = partners >= 0
    shared = np.bincount(partners[found], weights=dice[found], minlength=len(left))
    credit[left] = np.minimum(shared, 1.0)
    return credit


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
