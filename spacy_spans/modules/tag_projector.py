"""Per-token part of the tagger: context, then the scores of all tags; and scores of sequences."""

import torch
from torch import Tensor, nn

from spacy_spans.modules.token_projector import ContextLayer

# Score of a new tag for which nothing speaks yet.
START_BIAS = -5.0


class TagProjector(nn.Module):
    """Score the tags of every token, and hold the scores of tags following each other.

    The output's columns are: tag scores (n_scores), then features for linking fragments (n_links).
    """

    def __init__(self, width: int, n_scores: int, n_edges: int, n_links: int, window: int) -> None:
        """width (int): Features per token. n_scores (int): Tags of all layers. n_edges (int):
        Scores of tag sequences, which start at 0. n_links (int): Features for links; 0 for none.
        window (int): Tokens of context on each side; 0 for none.
        """
        super().__init__()
        self.window = window
        self.n_scores = n_scores
        self.context = ContextLayer(width, window) if window else None
        self.project = nn.Linear(width, n_scores + n_links)
        self.edges = nn.Parameter(torch.zeros(n_edges))

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """tokens (Tensor): Documents end to end. Shape (n_tokens, width).
        lengths (Tensor): Tokens per document. Shape (n_docs,).
        RETURNS (tuple): Shapes (n_tokens, n_scores + n_links) and (n_edges,).
        """
        if self.context is not None and len(tokens):
            tokens = self.context(tokens, lengths)
        return self.project(tokens), self.edges * 1.0

    def set_bias(self, bias: list[float]) -> None:
        """Start each tag at the given score, e.g. the logarithm of its share of tokens."""
        with torch.no_grad():
            self.project.bias[: self.n_scores].copy_(torch.tensor(bias))

    def resized(self, n_scores: int, n_edges: int, scores: Tensor, edges: Tensor) -> "TagProjector":
        """A copy with more tags. New ones start as unlikely.

        scores, edges (Tensor): Where each present score and edge stands in the copy.
        """
        old = self.project
        width, n_links = old.in_features, old.out_features - self.n_scores
        new = type(self)(width, n_scores, n_edges, n_links, self.window).to(old.weight.device)
        if self.context is not None and new.context is not None:
            new.context.load_state_dict(self.context.state_dict())
        links = torch.arange(n_links)
        to = torch.cat([scores, n_scores + links]).to(old.weight.device)
        with torch.no_grad():
            new.project.weight.zero_()
            new.project.bias.fill_(START_BIAS)
            new.project.weight[to] = old.weight
            new.project.bias[to] = old.bias
            new.edges[edges.to(old.weight.device)] = self.edges
        return new
