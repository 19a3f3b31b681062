"""From gold spans and candidates to training targets and gradients."""

import math

import numpy as np
import numpy.typing as npt

from spacy_spans.kernels.enumeration import ROUNDING
from spacy_spans.types import FloatArray, IntArray, Integers

Keys = npt.NDArray[np.int64]


def span_keys(offsets: Integers) -> Keys:
    """One integer per span, ordered by start, then end.

    offsets (ndarray): Half-open. Shape (n, 2).
    RETURNS (ndarray): Shape (n,), int64.
    """
    return (offsets[:, 0].astype(np.int64) << 32) + offsets[:, 1]


def find_spans(wanted: Integers, candidates: Integers) -> Keys:
    """For each wanted span, the row where it stands among the candidates, or -1.

    wanted (ndarray): Half-open offsets. Shape (n, 2).
    candidates (ndarray): Half-open offsets in any order. Shape (m, 2).
    RETURNS (ndarray): Shape (n,), int64.
    """
    if len(candidates) == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    keys = span_keys(candidates)
    # Most candidate functions list in order already, and this sort is the dearest step here.
    order = None if np.all(keys[1:] >= keys[:-1]) else np.argsort(keys, kind="stable")
    wanted_keys = span_keys(wanted)
    rows = np.searchsorted(keys, wanted_keys, sorter=order)
    rows = np.minimum(rows, len(keys) - 1)
    rows = rows if order is None else order[rows]
    return np.where(keys[rows] == wanted_keys, rows, -1)


def span_targets(
    candidates: IntArray,
    gold_offsets: IntArray,
    gold_labels: IntArray,
    *,
    n_labels: int,
    boundary_smoothing: float = 0.0,
) -> FloatArray:
    """Target probability of each label for each candidate.

    With `boundary_smoothing` a gold span gives that share of its target away, in equal parts to
    the spans that miss it by one token at one boundary (boundary smoothing,
    https://arxiv.org/abs/2204.12031; the fuzzy boundaries of FSUIE, https://aclanthology.org/
    2023.acl-long.902). Shares of spans that are no candidates are lost; gold stays the largest.

    candidates (ndarray): Half-open offsets. Shape (n, 2).
    gold_offsets (ndarray): Half-open offsets. Shape (n_gold, 2).
    gold_labels (ndarray): Label indices. Shape (n_gold,).
    n_labels (int): Number of labels.
    boundary_smoothing (float): Share given to near misses, from 0 to below 1.
    RETURNS (ndarray): Shape (n, n_labels), float32.
    """
    targets = np.zeros((len(candidates), n_labels), dtype="f")
    if boundary_smoothing:
        shifts = [[-1, 0], [1, 0], [0, -1], [0, 1]]
        for shift in np.asarray(shifts, dtype="i"):
            rows = find_spans(gold_offsets + shift, candidates)
            found = rows >= 0
            np.add.at(targets, (rows[found], gold_labels[found]), boundary_smoothing / len(shifts))
    rows = find_spans(gold_offsets, candidates)
    found = rows >= 0
    targets[rows[found], gold_labels[found]] = 1.0 - boundary_smoothing
    return targets


def with_null_class(targets: FloatArray) -> FloatArray:
    """Put a class for "no label" first, and make every row sum to 1.

    targets (ndarray): Shape (n, n_labels). Rows that sum to more than 1 share it out.
    RETURNS (ndarray): Shape (n, 1 + n_labels), float32.
    """
    total = targets.sum(axis=1, keepdims=True)
    null = np.maximum(0.0, 1.0 - total)
    return np.concatenate([null, targets / np.maximum(1.0, total)], axis=1).astype("f")


def boundary_targets(gold_offsets: IntArray, n_tokens: int) -> FloatArray:
    """Mark the first and the last token of every gold span.

    RETURNS (ndarray): Column 0 for starts, 1 for ends. Shape (n_tokens, 2), float32.
    """
    targets = np.zeros((n_tokens, 2), dtype="f")
    targets[gold_offsets[:, 0], 0] = 1.0
    targets[gold_offsets[:, 1] - 1, 1] = 1.0
    return targets


def sample_negatives(
    positive: npt.NDArray[np.bool_], *, ratio: float, random: np.random.RandomState
) -> tuple[Keys, FloatArray]:
    """Keep every positive row and `ratio` times as many negatives, chosen at random.

    The kept negatives weigh more, so that the expected loss stays that of all of them and a
    threshold tuned with sampling holds without.

    positive (ndarray): Which rows are positive. Shape (n,).
    ratio (float): Negatives kept per positive; at least one positive is assumed.
    RETURNS (tuple): Kept rows, ascending, and the weight of each. Shapes (n_kept,).
    """
    rows = np.flatnonzero(~positive)
    n_kept = min(len(rows), math.ceil(ratio * max(1, int(positive.sum())) - ROUNDING))
    kept = random.choice(rows, size=n_kept, replace=False) if n_kept < len(rows) else rows
    weights = np.ones(len(positive), dtype="f")
    weights[kept] = len(rows) / max(1, n_kept)
    chosen = np.sort(np.concatenate([np.flatnonzero(positive), kept]))
    return chosen, weights[chosen]
