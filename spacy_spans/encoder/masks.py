"""Masks as attention wants them."""

import torch
from torch import Tensor


def additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What to add to attention scores: 0 for pieces that are there, the lowest number for others.

    mask (Tensor): Shape (n_windows, n_pieces), bool.
    RETURNS (Tensor): Shape (n_windows, 1, n_pieces, n_pieces); rows are alike.
    """
    n_windows, n_pieces = mask.shape
    added = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    added = added.masked_fill(~mask, torch.finfo(dtype).min)
    return added[:, None, None, :].expand(n_windows, 1, n_pieces, n_pieces)
