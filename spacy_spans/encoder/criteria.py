"""Registered criteria: by what words are chosen at a gate.

The learned gate is the one to use: the others show what it is worth. Per-token tasks lose most of
their F1 under training-free criteria, which keep what summarises a text, not what is in a span.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

# Odd numbers with scattered bits, for hashing.
FACTORS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
LOW_BITS = (1 << 31) - 1


class AtGate(NamedTuple):
    """What is known at a gate.

    hidden (Tensor): Shape (n_windows, n_pieces, width), of the pieces that are left.
    mask (Tensor): Which of them are none of the padding. Shape (n_windows, n_pieces), bool.
    words (Tensor): Number of each piece's word in its window, or -1. The same shape.
    attention (Tensor | None): Of the layer before, from each piece (third axis) to each (last).
        Shape (n_windows, n_heads, n_pieces, n_pieces).
    window_ids, window_mask (Tensor): The whole windows: pieces, and which are none of the padding.
    """

    hidden: Tensor
    mask: Tensor
    words: Tensor
    attention: Tensor | None
    window_ids: Tensor
    window_mask: Tensor


# A dataclass, since validation of a config would turn a named tuple into a plain one.
@dataclass(frozen=True)
class Criterion:
    """score (Callable | None): A score for each piece, shape (n_windows, n_pieces); a word has that
    of its best piece. None: the gates that were learned. needs_attention (bool): Whether `score`
    reads the attention of the layer before.
    """

    name: str
    score: Callable[[AtGate], Tensor] | None
    needs_attention: bool = False

    @property
    def learns(self) -> bool:
        return self.score is None


def build_gate_criterion_v1() -> Criterion:
    """What a small network at each gate says, trained on gold spans: a probability for each word.
    Until it is trained all is kept.
    """
    return Criterion("gate", None)


def build_attention_criterion_v1() -> Criterion:
    """The attention that a piece receives in one layer, the last before the gate, averaged over
    heads and over the pieces that look. It is no sum over the layers so far. Needs no training,
    only a keep ratio, and a layer: there is no attention at gate 0.

    That layer computes attention eagerly instead of in one fused step; the others do not. With one
    gate, after the first of MiniLM's six layers, half of the words kept, this costs 6 % of the
    encoder's words/s in windows of 128 pieces, 10 % of 256, 17 % of 512 (one thread, float32,
    against `norm`), and memory for heads x pieces x pieces numbers of each window.
    """
    return Criterion("attention", _attention_received, needs_attention=True)


def build_norm_criterion_v1() -> Criterion:
    """The length of a piece's hidden state. Needs no training, only a keep ratio."""
    return Criterion("norm", _norm)


def build_random_criterion_v1() -> Criterion:
    """Chance, as a baseline. Needs no training, only a keep ratio.

    The same window always gives the same choice, whatever it is in a batch with.
    """
    return Criterion("random", _chance)


def _attention_received(seen: AtGate) -> Tensor:
    assert seen.attention is not None
    weights = seen.mask.to(seen.attention.dtype)
    weights = weights / weights.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.einsum("whqk,wq->wk", seen.attention, weights) / seen.attention.shape[1]


def _norm(seen: AtGate) -> Tensor:
    return seen.hidden.float().norm(dim=-1)


def _chance(seen: AtGate) -> Tensor:
    """A hash of all pieces of the window and the number of the word. A word, not a piece: of many
    draws the best is higher, so words of many pieces would stay.
    """
    positions = torch.arange(seen.window_ids.shape[1], device=seen.window_ids.device)
    mixed = _mix(seen.window_ids * FACTORS[0] + positions * FACTORS[1])
    seeds = (mixed * seen.window_mask).sum(dim=1, keepdim=True)
    return _mix(seeds + (seen.words + 1) * FACTORS[2]).double().div(LOW_BITS + 1).float()


def _mix(numbers: Tensor) -> Tensor:
    """Scatter numbers over 31 bits. No product is above 63 bits: past them devices may differ."""
    numbers = numbers & LOW_BITS
    for shift, factor in zip((15, 13, 16), FACTORS, strict=True):
        numbers = ((numbers ^ (numbers >> shift)) * factor) & LOW_BITS
    return numbers ^ (numbers >> 15)
