"""How spans relate to each other and what candidates of a given length reach and cost.

Everything takes one document's half-open token offsets (starts and ends, shape (n_spans,)) in any
order and answers in that order. Sorting and range queries, never a pairs matrix: 50,000 spans in
one document take megabytes, not gigabytes.
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def find_overlapping(starts: Ints, ends: Ints) -> Bools:
    """Mark spans that share a token with another span.

    Spans with the same offsets share their tokens.

    starts, ends (Ints): Half-open offsets. Shape (n_spans,).
    RETURNS (Bools): Shape (n_spans,), also when that is (0,).
    """
    order = np.lexsort((ends, starts))
    starts, ends = starts[order], ends[order]
    flags = np.zeros(len(starts), dtype=bool)
    flags[1:] = np.maximum.accumulate(ends)[:-1] > starts[1:]
    # Of all later spans the next one starts first.
    flags[:-1] |= starts[1:] < ends[:-1]
    return _unsort(flags, order)


def find_nested(starts: Ints, ends: Ints) -> Bools:
    """Mark spans that lie within another span, or that contain one.

    Two spans with the same offsets lie within each other.

    starts, ends (Ints): Half-open offsets. Shape (n_spans,).
    RETURNS (Bools): Shape (n_spans,), also when that is (0,).
    """
    # Longest first among equal starts: containers come before everything they contain.
    order = np.lexsort((-ends, starts))
    ends = ends[order]
    flags = np.zeros(len(ends), dtype=bool)
    flags[1:] = np.maximum.accumulate(ends)[:-1] >= ends[1:]
    flags[:-1] |= np.minimum.accumulate(ends[::-1])[::-1][1:] <= ends[:-1]
    return _unsort(flags, order)


def find_crossing(starts: Ints, ends: Ints) -> Bools:
    """Mark spans that cross another span: they share tokens and neither contains the other.

    starts, ends (Ints): Half-open offsets. Shape (n_spans,).
    RETURNS (Bools): Shape (n_spans,), also when that is (0,).
    """
    # Mirrored, a span that crosses to the left crosses to the right.
    return _find_crossing_right(starts, ends) | _find_crossing_right(-ends, -starts)


def count_covered(starts: Ints, ends: Ints) -> int:
    """Count the tokens that lie in at least one span.

    starts, ends (Ints): Half-open offsets. Shape (n_spans,).
    RETURNS (int): Tokens; 0 without spans.
    """
    if len(starts) == 0:
        return 0
    order = np.argsort(starts)
    starts, ends = starts[order], ends[order]
    reached = np.maximum.accumulate(ends)
    reached = np.concatenate((starts[:1], reached[:-1]))
    return int(np.maximum(ends - np.maximum(starts, reached), 0).sum())


def count_duplicates(starts: Ints, ends: Ints, labels: Ints) -> int:
    """Count the spans that repeat another span's offsets and label.

    starts, ends (Ints): Half-open offsets. Shape (n_spans,).
    labels (Ints): One number per label. Shape (n_spans,).
    RETURNS (int): Spans that could be dropped without losing information; 0 without spans.
    """
    table = np.stack((starts, ends, labels), axis=1)
    return len(table) - len(np.unique(table, axis=0))


def find_across(starts: Ints, ends: Ints, first_tokens: Ints) -> Bools:
    """Mark spans that do not fit within one sentence.

    starts, ends (Ints): Half-open offsets. Shape (n_spans,).
    first_tokens (Ints): First token of each sentence, ascending. Shape (n_sentences,).
    RETURNS (Bools): Shape (n_spans,), also when that is (0,).
    """
    first = np.searchsorted(first_tokens, starts, side="right")
    last = np.searchsorted(first_tokens, ends - 1, side="right")
    return np.asarray(first != last)


def count_candidates(lengths: Ints, max_length: int | None) -> int:
    """Count all spans of 1..max_length tokens that stay within one text.

    A text of n tokens has n - l + 1 spans of length l, so with L = min(max_length, n) it has
    L * n - L * (L - 1) / 2 in all.

    lengths (Ints): Tokens per text (document or sentence). Shape (n_texts,).
    max_length (int | None): Longest candidate; None: as long as its text.
    RETURNS (int): Candidates in all texts; 0 without texts.
    """
    longest = lengths if max_length is None else np.minimum(lengths, max_length)
    # Python's integers: a few million-token texts overflow int64 when unbounded.
    return sum(
        k * n - k * (k - 1) // 2 for k, n in zip(longest.tolist(), lengths.tolist(), strict=True)
    )


def summarize_lengths(lengths: Ints) -> dict[str, float]:
    """Mean, median, 95th percentile and maximum; every one is 0 without lengths.

    Median and percentile are lengths that occur (nearest rank), not values between two of them.
    """
    if len(lengths) == 0:
        return {"mean": 0.0, "median": 0, "p95": 0, "max": 0}
    median, p95 = np.percentile(lengths, (50, 95), method="inverted_cdf")
    return {
        "mean": float(lengths.mean()),
        "median": int(median),
        "p95": int(p95),
        "max": int(lengths.max()),
    }


def _find_crossing_right(starts: Ints, ends: Ints) -> Bools:
    """Mark spans in whose inside another span starts that ends after them."""
    order = np.argsort(starts, kind="stable")
    sorted_starts = starts[order]
    first = np.searchsorted(sorted_starts, starts, side="right")
    stop = np.searchsorted(sorted_starts, ends, side="left")
    flags = np.zeros(len(starts), dtype=bool)
    (inside,) = np.nonzero(stop > first)
    flags[inside] = _range_max(ends[order], first[inside], stop[inside]) > ends[inside]
    return flags


def _range_max(values: Ints, first: Ints, stop: Ints) -> Ints:
    """Maximum of values[first:stop] for many non-empty ranges.

    A table of maxima over runs of 1, 2, 4, ... values, of which two cover any range; only one
    level is held at a time.
    """
    level = np.frexp((stop - first).astype(np.float64))[1] - 1  # floor(log2(length))
    result = np.empty(len(first), dtype=np.int64)
    table, width = values, 1
    for k in range(int(level.max(initial=-1)) + 1):
        if k > 0:
            table = np.maximum(table[:-width], table[width:])
            width *= 2
        (here,) = np.nonzero(level == k)
        result[here] = np.maximum(table[first[here]], table[stop[here] - width])
    return result


def _unsort(flags: Bools, order: Ints) -> Bools:
    result = np.empty_like(flags)
    result[order] = flags
    return result
