"""Score every token: how likely it is to be needed."""

import torch
from torch import Tensor, nn

from spacy_spans.modules.token_projector import ContextLayer


class TokenScorer(nn.Module):
    """A context layer and one linear layer, one logit per token."""

    def __init__(self, width: int, window: int) -> None:
        """width (int): Features per token. window (int): Tokens of context on each side; 0 for
        none.
        """
        super().__init__()
        self.context = ContextLayer(width, window) if window else None
        self.project = nn.Linear(width, 1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens (Tensor): Documents end to end. Shape (n_tokens, width).
        lengths (Tensor): Tokens per document. Shape (n_docs,).
        RETURNS (Tensor): Logits. Shape (n_tokens, 1).
        """
        if self.context is not None and len(tokens):
            tokens = self.context(tokens, lengths)
        logits: Tensor = self.project(tokens)
        return logits

    def set_bias(self, bias: float) -> None:
        """Start at the given logit, e.g. that of the share of tokens that are needed."""
        with torch.no_grad():
            self.project.bias.fill_(bias)
