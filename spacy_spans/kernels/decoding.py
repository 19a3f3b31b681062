"""Choose among scored spans of one document that overlap.

`any` keeps all of them. `nested` keeps no two that cross (share a token while neither holds the
other). `flat` keeps no two that share a token.
"""

from bisect import bisect_right
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from spacy_spans.types import FloatArray, Integers

Indices = npt.NDArray[np.int64]


def select_flat(offsets: Integers, scores: FloatArray) -> Indices:
    """Pick the set of spans without overlap whose scores add up to the most.

    Weighted interval scheduling, exact. Spans that overlap nothing are taken as they are; the
    dynamic programme, sequential by nature, runs only inside groups of overlapping spans.

    offsets (ndarray): Half-open, in tokens. Shape (n, 2).
    scores (ndarray): Above 0. Shape (n,).
    RETURNS (ndarray): Rows of the chosen spans, ascending. Shape (n_chosen,); empty for n = 0.
    """
    return _select_by_group(_schedule, offsets, scores)


def select_nested(offsets: Integers, scores: FloatArray) -> Indices:
    """Pick spans from the best score down, leaving out each that crosses one already picked.

    Spans with the same offsets (other labels) do not cross. Ties go to the earlier row.

    offsets (ndarray): Half-open, in tokens. Shape (n, 2).
    scores (ndarray): Shape (n,).
    RETURNS (ndarray): Rows of the chosen spans, ascending. Shape (n_chosen,); empty for n = 0.
    """
    return _select_by_group(_without_crossing, offsets, scores)


def select_spans(offsets: Integers, scores: FloatArray, policy: str) -> Indices:
    """Pick spans by a policy: one of `OVERLAP_POLICIES`. RAISES (KeyError): For any other."""
    return OVERLAP_POLICIES[policy](offsets, scores)


def select_best(offsets: Integers, scores: FloatArray, policy: str, top_k: int | None) -> Indices:
    """Pick spans by a policy, then of these the `top_k` with the highest scores, earlier rows first
    among equals; None for all. RAISES (KeyError): For another policy.
    """
    rows = select_spans(offsets, scores, policy)
    if top_k is None or len(rows) <= top_k:
        return rows
    return rows[np.argsort(-scores[rows], kind="stable")[:top_k]]


def _select_by_group(
    select: Callable[[Integers, FloatArray], list[int]], offsets: Integers, scores: FloatArray
) -> Indices:
    """Apply `select` inside each group of overlapping spans; spans alone are always chosen."""
    if len(offsets) == 0:
        return np.zeros(0, dtype=np.int64)
    chosen = [
        group if len(group) == 1 else group[select(offsets[group], scores[group])]
        for group in _overlapping_groups(offsets)
    ]
    return np.sort(np.concatenate(chosen))


def _overlapping_groups(offsets: Integers) -> list[Indices]:
    """Split rows into the smallest groups between which no span overlaps another.

    Rows of a group are ascending.
    """
    by_start = np.argsort(offsets[:, 0], kind="stable")
    starts = offsets[by_start, 0]
    furthest = np.maximum.accumulate(offsets[by_start, 1])
    breaks = np.flatnonzero(starts[1:] >= furthest[:-1]) + 1
    return [np.sort(group) for group in np.split(by_start, breaks)]


def _schedule(offsets: Integers, scores: FloatArray) -> list[int]:
    """Weighted interval scheduling over one group, O(n log n)."""
    order = np.lexsort((offsets[:, 0], offsets[:, 1])).tolist()
    starts, ends = offsets[:, 0].tolist(), offsets[:, 1].tolist()
    values = scores.astype(np.float64).tolist()
    sorted_ends = [ends[row] for row in order]
    # total[i]: best sum among the first i spans by end; before[i]: how many end by its start.
    total = [0.0]
    before = []
    for i, row in enumerate(order):
        before.append(bisect_right(sorted_ends, starts[row], 0, i))
        total.append(max(total[i], total[before[i]] + values[row]))
    chosen = []
    i = len(order)
    while i > 0:
        if total[i] == total[i - 1]:
            i -= 1
        else:
            chosen.append(order[i - 1])
            i = before[i - 1]
    return chosen


def _without_crossing(offsets: Integers, scores: FloatArray) -> list[int]:
    starts, ends = offsets[:, 0], offsets[:, 1]
    free = np.ones(len(offsets), dtype=bool)
    chosen = []
    for row in np.argsort(-scores, kind="stable").tolist():
        if free[row]:
            chosen.append(row)
            start, end = starts[row], ends[row]
            free &= ~((starts < start) & (start < ends) & (ends < end))
            free &= ~((start < starts) & (starts < end) & (end < ends))
    return chosen


OVERLAP_POLICIES: dict[str, Callable[[Integers, FloatArray], Indices]] = {
    "any": lambda offsets, scores: np.arange(len(offsets)),
    "nested": select_nested,
    "flat": select_flat,
}
