"""Losses on logits, with their gradients. Written for numpy and cupy arrays alike."""

import math
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


def weighted_tag_loss(scores: Any, tags: Any, outside_weight: float) -> tuple[float, Any]:
    """Cross-entropy of each token's tag, each token for itself, summed.

    scores (ndarray): Shape (n_tokens, n_layers, n_tags).
    tags (ndarray): Gold, 0 for outside. Shape (n_tokens, n_layers).
    outside_weight (float): What tokens outside of spans count.
    RETURNS (tuple): Loss, and its gradient, of the shape of the scores.
    """
    targets = (tags[..., None] == np.arange(scores.shape[-1])).astype(scores.dtype)
    flat = scores.reshape(-1, scores.shape[-1])
    loss, gradient = softmax_loss(flat, targets.reshape(flat.shape))
    weights = np.where(tags.reshape(-1) == 0, outside_weight, 1.0).astype(scores.dtype)
    return float((loss * weights).sum()), (gradient * weights[:, None]).reshape(scores.shape)


def weighted_bit_loss(scores: Any, bits: Any, outside_weight: float) -> tuple[float, Any]:
    """Cross-entropy of each start and each end bit, summed.

    scores (ndarray): Logits. Shape (n_tokens, n_layers, 2).
    bits (ndarray): Gold. The same shape, bool.
    outside_weight (float): What bits count that are not set.
    RETURNS (tuple): Loss, and its gradient, of the shape of the scores.
    """
    loss, gradient = sigmoid_loss(scores, bits.astype(scores.dtype))
    weights = np.where(bits, 1.0, outside_weight).astype(scores.dtype)
    return float((loss * weights).sum()), gradient * weights


def log_share(n: float, n_total: float) -> float:
    """The logarithm of a share, smoothed as in `rarity_bias`: where scores compete by softmax.

    >>> round(log_share(1, 2), 2)
    -0.69
    """
    return math.log((n + 1) / (n_total + 2))


def rarity_bias(n_positive: float, n_total: float) -> float:
    """The logit of how rare positives are, smoothed, so that training starts there.

    >>> round(rarity_bias(1, 199), 2)
    -4.6
    """
    rate = (n_positive + 1) / (n_total + 2)
    return math.log(rate / (1 - rate))
