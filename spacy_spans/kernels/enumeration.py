"""List spans: every one up to a length, or the pairs of the best boundaries."""

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from spacy_spans.types import FloatArray, IntArray

# Keeps 0.55 * 100, which is a little over 55 in floating point, from counting as 56.
ROUNDING = 1e-9
# Pairs looked at in one go: bounds the memory of `pair_boundaries` at some tens of megabytes.
PAIRS_PER_BLOCK = 1 << 18


def enumerate_spans(limits: IntArray, max_length: int) -> IntArray:
    """List every span of 1 to `max_length` tokens of one document that stays within its limits.

    limits (ndarray): For each token, the end of the segment (sentence, kept run, document) that
        spans starting there may not pass; 0 where no span may start. Shape (n_tokens,).
    max_length (int): Longest span, in tokens; at least 1.
    RETURNS (ndarray): Half-open offsets sorted by start, then end. Shape (n_spans, 2), int32;
        (0, 2) for an empty document.

    >>> enumerate_spans(np.asarray([2, 2], dtype="i"), max_length=2).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    positions = np.arange(len(limits), dtype="i")
    counts = np.clip(limits - positions, 0, max_length)
    offsets = np.empty((int(counts.sum()), 2), dtype="i")
    offsets[:, 0] = np.repeat(positions, counts)
    # Each start's block of ends counts 1, 2, ... from its start.
    first = np.cumsum(counts, dtype="i") - counts
    offsets[:, 1] = np.arange(1, len(offsets) + 1, dtype="i")
    offsets[:, 1] += np.repeat(positions - first, counts)
    return offsets


def count_spans(limits: IntArray, max_length: int) -> int:
    """Count what `enumerate_spans` would list, without listing it."""
    positions = np.arange(len(limits), dtype="i")
    return int(np.clip(limits - positions, 0, max_length).sum(dtype=np.int64))


def segment_limits(segment_lengths: npt.ArrayLike) -> IntArray:
    """For each token of consecutive segments, the end of its segment.

    segment_lengths (ArrayLike): Tokens per segment. Shape (n_segments,).
    RETURNS (ndarray): Shape (n_tokens,), int32.

    >>> segment_limits([2, 0, 1]).tolist()
    [2, 2, 3]
    """
    lengths = np.asarray(segment_lengths, dtype="i").reshape(-1)
    return np.repeat(np.cumsum(lengths, dtype="i"), lengths)


def run_limits(runs: IntArray, n_tokens: int) -> IntArray:
    """For each token, the end of the run that holds it, 0 outside every run.

    runs (ndarray): Half-open offsets; runs that touch or overlap count as one. Shape (n_runs, 2).
    n_tokens (int): Tokens in the document.
    RETURNS (ndarray): Shape (n_tokens,), int32.

    >>> run_limits(np.asarray([[1, 3]], dtype="i"), n_tokens=4).tolist()
    [0, 3, 3, 0]
    """
    depth = np.zeros(n_tokens + 1, dtype="i")
    np.add.at(depth, runs[:, 0], 1)
    np.add.at(depth, runs[:, 1], -1)
    covered = np.cumsum(depth[:-1]) > 0
    positions = np.arange(n_tokens, dtype="i")
    # The next uncovered token to the right of each token is where its run ends.
    ends = np.where(covered, n_tokens, positions)
    ends = np.minimum.accumulate(ends[::-1])[::-1]
    return np.where(covered, ends, 0).astype("i")


def batch_offsets(
    offsets: IntArray, counts: npt.ArrayLike, doc_lengths: npt.ArrayLike, *, first_row: int = 0
) -> IntArray:
    """Turn document-local offsets into offsets into the documents laid end to end.

    offsets (ndarray): Shape (n_spans, 2).
    counts (ArrayLike): Spans of each document. Shape (n_docs,).
    doc_lengths (ArrayLike): Tokens of each document. Shape (n_docs,).
    first_row (int): Which of all spans the first one given is, to turn them block by block.
    RETURNS (ndarray): Shape (n_spans, 2), int32.
    """
    lengths = np.asarray(doc_lengths, dtype="i").reshape(-1)
    firsts = np.cumsum(lengths, dtype="i") - lengths
    ends = np.cumsum(np.asarray(counts, dtype=np.int64))
    rows = np.arange(first_row, first_row + len(offsets))
    shifted: IntArray = offsets + firsts[np.searchsorted(ends, rows, side="right")].reshape(-1, 1)
    return shifted


def pair_boundaries(
    start_scores: FloatArray,
    end_scores: FloatArray,
    *,
    ratio: float,
    max_candidates: int,
    max_length: int | None = None,
    limits: IntArray | None = None,
) -> IntArray:
    """Pair the best starts of a document with its best ends, and keep the best pairs.

    Dual-channel pruning as in Span-ASTE (https://arxiv.org/abs/2107.12214), with the optional
    band of SeNER (https://arxiv.org/abs/2502.07286). A pair scores the sum of its boundaries.

    start_scores (ndarray): Score of each token as the first of a span. Shape (n_tokens,).
    end_scores (ndarray): Score of each token as the last of a span. Shape (n_tokens,).
    ratio (float): Starts kept, and ends kept, per token; at least one of each.
    max_candidates (int): Pairs kept; the best ones.
    max_length (int): Longest span in tokens (the band); None for no limit.
    limits (ndarray): As of `enumerate_spans`, and 0 for tokens that no span may hold: what they
        forbid pushes nothing out of the best. None: any span of the document. Shape (n_tokens,).
    RETURNS (ndarray): Half-open offsets sorted by start, then end. Shape (n_spans, 2), int32;
        (0, 2) for an empty document.
    """
    n_tokens = len(start_scores)
    limits = segment_limits([n_tokens]) if limits is None else limits
    inside = np.flatnonzero(limits)
    if len(inside) == 0:
        return np.zeros((0, 2), dtype="i")
    n_kept = min(len(inside), max(1, math.ceil(ratio * n_tokens - ROUNDING)))
    lasts = np.sort(inside[_best(end_scores[inside], n_kept)])
    # Best starts first: once they cannot enter the best pairs any more, no later one can.
    starts = inside[_best(start_scores[inside], n_kept)]
    starts = starts[np.argsort(-start_scores[starts], kind="stable")]
    highest_end = end_scores[lasts].max()
    # Lasts that a start can reach are a slice, since they are in text order.
    first = np.searchsorted(lasts, starts, side="left")
    reach = np.minimum(limits[starts], starts + (n_tokens if max_length is None else max_length))
    counts = np.searchsorted(lasts, reach, side="left") - first
    best = np.zeros((0, 2), dtype="i")
    best_scores = np.zeros(0, dtype="f")
    for block in _blocks(counts):
        full = len(best) == max_candidates
        if full and start_scores[starts[block.start]] + highest_end < best_scores.min():
            break
        n = counts[block]
        rank = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        pairs = np.stack(
            [np.repeat(starts[block], n), lasts[np.repeat(first[block], n) + rank] + 1], axis=1
        ).astype("i")
        best = np.concatenate([best, pairs])
        best_scores = start_scores[best[:, 0]] + end_scores[best[:, 1] - 1]
        kept = _best(best_scores, max_candidates)
        best, best_scores = best[kept], best_scores[kept]
    return best[np.lexsort((best[:, 1], best[:, 0]))]


def _best(scores: FloatArray, n: int) -> npt.NDArray[np.int64]:
    """Indices of the `n` highest scores, in no particular order."""
    if n >= len(scores):
        return np.arange(len(scores))
    return np.argpartition(-scores, n)[:n]


def _blocks(counts: npt.NDArray[np.int64]) -> list[slice]:
    """Cut rows into slices of about `PAIRS_PER_BLOCK` pairs, at least one row each."""
    edges = np.cumsum(counts) // PAIRS_PER_BLOCK
    cuts = np.flatnonzero(np.diff(edges)) + 1
    bounds = [0, *cuts.tolist(), len(counts)]
    return [slice(low, high) for low, high in pairwise(bounds)]
