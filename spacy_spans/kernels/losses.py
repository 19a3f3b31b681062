"""Losses on logits, with their gradients. Written for numpy and cupy arrays alike."""

from typing import Any

import numpy as np


def sigmoid(logits: Any) -> Any:
    """Logistic function that overflows at neither end. Same shape and type as `logits`."""
    exp = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1, exp) / (1 + exp)


def softmax(logits: Any) -> Any:
    """Softmax over the last axis. Same shape and type as `logits`."""
    exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def sigmoid_loss(logits: Any, targets: Any) -> tuple[Any, Any]:
    """Binary cross-entropy of every logit with its target in [0, 1].

    RETURNS (tuple): Loss and gradient per logit, shapes as `logits`.
    """
    loss = np.maximum(logits, 0) - logits * targets + np.log1p(np.exp(-np.abs(logits)))
    return loss, sigmoid(logits) - targets


def softmax_loss(logits: Any, targets: Any) -> tuple[Any, Any]:
    """Cross-entropy of each row with a target distribution.

    logits (ndarray): Shape (n, n_classes).
    targets (ndarray): Rows sum to 1. Shape (n, n_classes).
    RETURNS (tuple): Loss per row, shape (n,), and gradient, shape (n, n_classes).
    """
    if logits.shape[0] == 0:
        return logits.sum(axis=-1), logits
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    loss = (targets * (log_sum - shifted)).sum(axis=-1)
    return loss, softmax(logits) - targets
