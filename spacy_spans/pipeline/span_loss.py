"""Training losses of `span_enumerator`: summed over candidates or tokens, divided by the tokens of
the annotated documents, so that neither a document's length nor others in the batch scale a
gradient.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from spacy_spans.alignment import GoldSpans, join_gold
from spacy_spans.kernels.enumeration import batch_offsets
from spacy_spans.kernels.losses import sigmoid_loss, softmax_loss
from spacy_spans.kernels.targets import boundary_targets, span_targets, with_null_class
from spacy_spans.types import FloatArray, IntArray, LongArray


def candidate_loss(
    gold: Sequence[GoldSpans],
    doc_lengths: Sequence[int],
    offsets: IntArray,
    logits: Any,
    *,
    n_labels: int,
    softmax: bool,
    boundary_smoothing: float,
    weights: FloatArray | None,
    n_tokens: int,
    ops: Any,
) -> tuple[float, Any]:
    """Cross-entropy of every candidate's labels.

    offsets (ndarray): Candidates, as offsets into the batch's tokens. Shape (n, 2).
    logits (Floats2d): Shape (n, n_labels), or with `softmax` (n, 1 + n_labels).
    weights (ndarray): What each candidate counts, or None for 1. Shape (n,).
    n_tokens (int): Tokens of the annotated documents.
    ops (Ops): thinc's, for the device of the logits.
    RETURNS (tuple): Loss per token, and its gradient, of the shape of the logits.
    """
    gold_offsets, gold_labels = join_gold(gold, doc_lengths)
    targets = span_targets(
        offsets,
        gold_offsets,
        gold_labels,
        n_labels=n_labels,
        boundary_smoothing=boundary_smoothing,
    )
    if softmax:
        loss, gradient = softmax_loss(logits, ops.asarray(with_null_class(targets)))
    else:
        loss, gradient = sigmoid_loss(logits, ops.asarray(targets))
    if weights is not None:
        scale = ops.asarray(weights)
        loss = loss * (scale if softmax else scale.reshape(-1, 1))
        gradient = gradient * scale.reshape(-1, 1)
    n_tokens = max(1, n_tokens)
    return float(loss.sum()) / n_tokens, gradient / n_tokens


def boundary_loss(
    gold: Sequence[IntArray],
    doc_lengths: Sequence[int],
    scores: Any,
    *,
    ops: Any,
    kept: LongArray | None = None,
) -> tuple[float, Any]:
    """Cross-entropy of every token's start and end score, in annotated documents.

    gold (Sequence[ndarray]): Offsets of each document's gold spans. Shape (n, 2) each.
    scores (Floats2d): Logits. Shape (n_tokens, 2).
    kept (ndarray | None): Tokens that the scores are of, the only ones that count; None for all.
    RETURNS (tuple): Loss per token, and its gradient, of the shape of the scores.
    """
    n_tokens = max(1, sum(doc_lengths))
    offsets = np.concatenate([np.zeros((0, 2), "i"), *gold])
    offsets = batch_offsets(offsets, [len(own) for own in gold], doc_lengths)
    targets = boundary_targets(offsets, sum(doc_lengths))
    if kept is not None:
        targets = targets[kept]
    loss, gradient = sigmoid_loss(scores, ops.asarray(targets))
    return float(loss.sum()) / n_tokens, gradient / n_tokens
