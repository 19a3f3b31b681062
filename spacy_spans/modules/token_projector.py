"""Per-token part of the span classifier: context, then one projection for each role."""

import torch
from torch import Tensor, nn


class ContextLayer(nn.Module):
    """Let each token see its neighbours: a residual depthwise convolution over tokens.

    Costs O(tokens), and shows an endpoint the tokens just outside the span.
    """

    def __init__(self, width: int, window: int) -> None:
        """width (int): Features per token. window (int): Tokens seen on each side."""
        super().__init__()
        self.window = window
        self.taps = nn.Parameter(torch.randn(2 * window + 1, width) * (2 * window + 1) ** -0.5)
        self.mix = nn.Linear(width, width)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens (Tensor): Documents end to end. Shape (n_tokens, width).
        lengths (Tensor): Tokens per document. Shape (n_docs,).
        RETURNS (Tensor): Shape (n_tokens, width).
        """
        window = self.window
        # Zeros between documents keep them from seeing each other.
        document = torch.repeat_interleave(
            torch.arange(len(lengths), device=tokens.device), lengths
        )
        rows = torch.arange(len(tokens), device=tokens.device) + window * (document + 1)
        n_rows = len(tokens) + window * (len(lengths) + 1)
        padded = tokens.new_zeros(n_rows, tokens.shape[1]).index_copy(0, rows, tokens)
        # A sum of shifted copies is as fast as a convolution here, and transposes nothing.
        n_centres = n_rows - 2 * window
        mixed = padded[:n_centres] * self.taps[0]
        for shift in range(1, 2 * window + 1):
            mixed = torch.addcmul(mixed, padded[shift : shift + n_centres], self.taps[shift])
        seen = mixed.index_select(0, rows - window)
        mixed_in: Tensor = self.mix(nn.functional.gelu(seen))
        return tokens + mixed_in


class TokenProjector(nn.Module):
    """Project every token once as start, as end and as content of a span, and score it as
    boundary.

    The output's columns are: start (hidden), end (hidden), content (hidden), start score (1),
    end score (1).
    """

    def __init__(self, width: int, hidden: int, window: int) -> None:
        """width (int): Features per token. hidden (int): Features per role. window (int):
        Tokens of context on each side; 0 for none.
        """
        super().__init__()
        self.context = ContextLayer(width, window) if window else None
        self.project = nn.Linear(width, 3 * hidden + 2)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens (Tensor): Documents end to end. Shape (n_tokens, width).
        lengths (Tensor): Tokens per document. Shape (n_docs,).
        RETURNS (Tensor): Shape (n_tokens, 3 * hidden + 2).
        """
        if self.context is not None and len(tokens):
            tokens = self.context(tokens, lengths)
        projected: Tensor = self.project(tokens)
        return projected
