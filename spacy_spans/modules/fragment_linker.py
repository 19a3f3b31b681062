"""Score pairs of fragments: do they belong to one mention, and with which label?"""

import torch
from torch import Tensor, nn

from spacy_spans.modules.span_classifier import N_LENGTH_BUCKETS, length_buckets, segment_means

# Logit of a label for which nothing speaks yet: links are rare.
START_BIAS = -3.0
# What a token prepares: for each end of the earlier and of the later fragment, and for the gap.
N_ROLES = 5


class FragmentLinker(nn.Module):
    """Add what the first and the last token of both fragments and all of the gap prepared, and the
    gap's length.

    What stands between often decides: "wall of | the | aorta", "B | and T | cells". Links between
    fragments, from which mentions are put together: Wang et al. 2021, Discontinuous named entity
    recognition as maximal clique discovery (https://aclanthology.org/2021.acl-long.63).
    """

    def __init__(self, n_links: int, n_labels: int) -> None:
        """n_links (int): Features per token, N_ROLES of the same width. n_labels (int)"""
        super().__init__()
        self.hidden = n_links // N_ROLES
        self.gap = nn.Embedding(N_LENGTH_BUCKETS, self.hidden)
        self.classify = nn.Linear(self.hidden, n_labels)
        nn.init.constant_(self.classify.bias, START_BIAS)

    def forward(self, features: Tensor, pairs: Tensor) -> Tensor:
        """features (Tensor): Shape (n_tokens, N_ROLES * hidden).
        pairs (Tensor): Offsets (start, end) of the first and of the second fragment, with at
            least one token between them. Shape (n_pairs, 4).
        RETURNS (Tensor): Logits. Shape (n_pairs, n_labels).
        """
        start, end, next_start, next_end = pairs.unbind(1)
        rows = torch.stack([start, end - 1, next_start, next_end - 1], dim=1)
        roles = features.view(len(features), N_ROLES, self.hidden)
        role = torch.arange(N_ROLES - 1, device=features.device)
        hidden = roles[rows, role].sum(dim=1) + self.gap(length_buckets(next_start - end))
        hidden = hidden + segment_means(roles[:, -1], end, next_start)
        logits: Tensor = self.classify(nn.functional.gelu(hidden))
        return logits

    def resized(self, n_labels: int) -> "FragmentLinker":
        """A copy with more labels: the first ones as here, the new ones unlikely."""
        new = type(self)(N_ROLES * self.hidden, n_labels).to(self.classify.weight.device)
        new.gap.load_state_dict(self.gap.state_dict())
        n_old = self.classify.out_features
        with torch.no_grad():
            new.classify.weight.zero_()
            new.classify.weight[:n_old] = self.classify.weight
            new.classify.bias[:n_old] = self.classify.bias
        return new
