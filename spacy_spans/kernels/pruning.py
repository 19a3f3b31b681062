"""Choose which tokens of a document to keep, from one score for each. Masks are of shape
(n_tokens,), bool; an empty document gives an empty mask.
"""

import math

import numpy as np
import numpy.typing as npt

from spacy_spans.kernels.enumeration import ROUNDING, run_limits
from spacy_spans.types import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]


def keep_above(scores: FloatArray, threshold: float) -> BoolArray:
    """Tokens whose score reaches the threshold."""
    mask: BoolArray = scores >= threshold
    return mask


def keep_best(scores: FloatArray, ratio: float) -> BoolArray:
    """The best tokens: `ratio` of all, rounded up. Of equal scores the earlier token goes first.

    >>> keep_best(np.asarray([0.1, 0.9, 0.5, 0.9]), ratio=0.25).tolist()
    [False, True, False, False]
    """
    n_kept = math.ceil(ratio * len(scores) - ROUNDING)
    mask = np.zeros(len(scores), dtype=bool)
    mask[np.argsort(-scores, kind="stable")[:n_kept]] = True
    return mask


def keep_best_of_regions(scores: FloatArray, ratio: float, region: int) -> BoolArray:
    """The best tokens, and of each region at least half of its share.

    Half of the budget goes to every region alike, so that none is starved; the other half to the
    best tokens left anywhere, as in HoloV (https://arxiv.org/abs/2510.02912).

    ratio (float): Share of tokens kept, rounded up.
    region (int): Tokens of a region; the last one may be shorter.
    """
    n_kept = math.ceil(ratio * len(scores) - ROUNDING)
    mask = np.zeros(len(scores), dtype=bool)
    for start in range(0, len(scores), region):
        own = scores[start : start + region]
        n_own = math.floor(ratio / 2 * len(own) + ROUNDING)
        mask[start + np.argsort(-own, kind="stable")[:n_own]] = True
    left = np.where(mask, -np.inf, scores)
    mask[np.argsort(-left, kind="stable")[: max(0, n_kept - int(mask.sum()))]] = True
    return mask


def drop_short_runs(mask: BoolArray, min_run: int) -> BoolArray:
    """Without the runs of fewer than `min_run` tokens."""
    runs = mask_to_runs(mask)
    return runs_to_mask(runs[runs[:, 1] - runs[:, 0] >= min_run], len(mask))


def widen(mask: BoolArray, n_tokens: int) -> BoolArray:
    """With `n_tokens` more on each side of every run.

    >>> widen(np.asarray([False, False, True, False, False]), 1).tolist()
    [False, True, True, True, False]
    """
    runs = mask_to_runs(mask) + np.asarray([-n_tokens, n_tokens], dtype="i")
    return runs_to_mask(np.clip(runs, 0, len(mask)), len(mask))


def widen_scores(scores: FloatArray, n_tokens: int) -> FloatArray:
    """The best score among each token and its neighbours, `n_tokens` on each side.

    Widening what reaches a threshold is what the widened scores that reach it are.
    """
    best: FloatArray = scores.copy()
    for shift in range(1, min(n_tokens, len(scores) - 1) + 1):
        best[shift:] = np.maximum(best[shift:], scores[:-shift])
        best[:-shift] = np.maximum(best[:-shift], scores[shift:])
    return best


def sample_dropped(mask: BoolArray) -> BoolArray:
    """The middle token of each dropped run; none where all tokens are dropped.

    >>> sample_dropped(np.asarray([False, False, False, True, False])).tolist()
    [False, True, False, False, True]
    """
    sampled = np.zeros(len(mask), dtype=bool)
    if mask.any():
        runs = mask_to_runs(~mask)
        sampled[(runs[:, 0] + runs[:, 1] - 1) // 2] = True
    return sampled


def mask_to_runs(mask: BoolArray) -> IntArray:
    """Half-open offsets of the runs of a mask, in order. Shape (n_runs, 2), int32.

    >>> mask_to_runs(np.asarray([True, True, False, True])).tolist()
    [[0, 2], [3, 4]]
    """
    padded = np.concatenate([[False], mask, [False]])
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    return edges.reshape(-1, 2).astype("i")


def runs_to_mask(runs: IntArray, n_tokens: int) -> BoolArray:
    """Tokens inside of any run. Runs may touch and overlap. Shape of runs (n_runs, 2)."""
    mask: BoolArray = run_limits(runs, n_tokens) > 0
    return mask


def fit_threshold(span_scores: FloatArray, recall: float) -> float:
    """The highest threshold that keeps so many spans.

    span_scores (ndarray): For each span the lowest score of its tokens. Shape (n_spans,).
    recall (float): Share of spans to keep, rounded up; above 0, at most 1.
    RETURNS (float): 0.0 without spans, which keeps everything.
    """
    if not len(span_scores):
        return 0.0
    n_kept = math.ceil(recall * len(span_scores) - ROUNDING)
    return float(np.sort(span_scores)[len(span_scores) - n_kept])
