"""How `span_enumerator` scores candidates: block by block. In prediction only what is likely enough
leaves a block; in training each block is sent back at once and leaves a gradient per token.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from thinc.api import Model
from thinc.types import Floats2d

from spacy_spans.kernels.enumeration import batch_offsets
from spacy_spans.types import IntArray

# Candidates scored before the threshold is applied: bounds what prediction holds at once.
SPANS_PER_BLOCK = 1 << 16
# Candidates scored at once in training, where all that led to their scores is kept.
SPANS_PER_TRAINING_BLOCK = 1 << 14


def find_likely(
    classifier: Model[tuple[Floats2d, Any], Floats2d],
    tokens: Floats2d,
    candidates: Any,
    doc_lengths: Sequence[int],
    lowest: npt.NDArray[Any],
    probabilities: Callable[[Floats2d], Any],
) -> tuple[Any, Any, Any]:
    """Score candidates; keep what is likely enough.

    tokens (Floats2d): One row for each token of the batch.
    candidates (Ragged): Of each document, in numpy. Offsets of shape (n_candidates, 2).
    lowest (ndarray): The lowest probability of each label that is kept; 0 is never.
    probabilities (Callable): Of each label, from logits. Shape (n, n_labels).
    RETURNS (tuple): Row among the candidates, label and probability of what is kept, in numpy.
        Shapes (n,), of 0 without candidates.
    """
    ops: Any = classifier.ops
    lowest = ops.asarray(lowest, dtype="f")
    found = []
    for first in range(0, len(candidates.dataXd), SPANS_PER_BLOCK):
        offsets = candidates.dataXd[first : first + SPANS_PER_BLOCK]
        block = batch_offsets(offsets, candidates.lengths, doc_lengths, first_row=first)
        scores = probabilities(classifier.predict((tokens, ops.asarray(block))))
        rows, labels = ((scores >= lowest) & (scores > 0)).nonzero()
        found.append((rows + first, labels, scores[rows, labels]))
    if not found:
        return np.zeros(0, "i"), np.zeros(0, "i"), np.zeros(0, "f")
    rows, labels, scores = (
        np.concatenate(list(map(ops.to_numpy, parts))) for parts in zip(*found, strict=True)
    )
    return rows, labels, scores


def backprop_blocks(
    classifier: Model[tuple[Floats2d, Any], Floats2d],
    tokens: Floats2d,
    candidates: Any,
    doc_lengths: Sequence[int],
    loss_of: Callable[[slice, IntArray, Floats2d], tuple[float, Floats2d]],
) -> tuple[float, Any]:
    """Score candidates, and collect their loss and the gradient of the tokens.

    tokens, candidates: As of `find_likely`.
    loss_of (Callable): Takes rows among the candidates, their offsets in tokens of the batch and
        their logits; returns their loss and its gradient.
    RETURNS (tuple): Loss, and gradient of the shape of the tokens. A loss that is no number any
        more is returned before its gradient reaches the classifier.
    """
    ops: Any = classifier.ops
    d_tokens = ops.alloc2f(*tokens.shape)
    loss = 0.0
    for first in range(0, len(candidates.dataXd), SPANS_PER_TRAINING_BLOCK):
        rows = slice(first, first + SPANS_PER_TRAINING_BLOCK)
        offsets = batch_offsets(
            candidates.dataXd[rows], candidates.lengths, doc_lengths, first_row=first
        )
        logits, backprop = classifier.begin_update((tokens, ops.asarray(offsets)))
        block_loss, d_logits = loss_of(rows, offsets, logits)
        loss += block_loss
        if not math.isfinite(loss):
            break
        d_tokens += backprop(d_logits)
    return loss, d_tokens
