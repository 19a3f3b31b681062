"""Per-span part of the span classifier: add what the tokens prepared, and classify."""

import torch
from torch import Tensor, nn

# Features of the spans scored in one go. Bounds memory in prediction, and keeps the working set in
# the cache: with four times as many each span took twice as long.
FEATURES_PER_CHUNK = 1 << 18
# Prefix sums over more tokens than this are subtracted in double precision.
EXACT_IN_SINGLE = 512
# Length 1 to 8 have an embedding each, longer ones share: four to each doubling.
N_LENGTH_BUCKETS = 48


class SpanClassifier(nn.Module):
    """Classify spans from start, end, length and mean content, each looked up, none gathered
    token by token.

    hidden = start[first] + end[last] + length + mean(content[first..last]), then an activation
    and one linear layer. The mean comes from prefix sums, so that a span of any length costs the
    same.
    """

    def __init__(self, hidden: int, n_classes: int) -> None:
        """hidden (int): Features per role. n_classes (int): Outputs per span."""
        super().__init__()
        self.hidden = hidden
        self.length = nn.Embedding(N_LENGTH_BUCKETS, hidden)
        nn.init.normal_(self.length.weight, std=0.1)
        self.classify = nn.Linear(hidden, n_classes)

    def forward(self, tokens: Tensor, offsets: Tensor) -> Tensor:
        """tokens (Tensor): Output of `TokenProjector`. Shape (n_tokens, 3 * hidden + 2).
        offsets (Tensor): Half-open, into `tokens`. Shape (n_spans, 2).
        RETURNS (Tensor): Logits. Shape (n_spans, n_classes).
        """
        chunks = offsets.split(max(1, FEATURES_PER_CHUNK // self.hidden))
        if len(chunks) <= 1:
            return self._score(tokens, offsets)
        return torch.cat([self._score(tokens, chunk) for chunk in chunks])

    def set_bias(self, bias: list[float]) -> None:
        """Start each class at the given logit, e.g. the rarity of its positives."""
        with torch.no_grad():
            self.classify.bias.copy_(torch.tensor(bias))

    def resized(self, n_classes: int) -> "SpanClassifier":
        """A copy with more outputs: the first ones as here, the new ones unlikely for any span."""
        new = type(self)(self.hidden, n_classes).to(self.classify.weight.device)
        new.length.load_state_dict(self.length.state_dict())
        n_old = self.classify.out_features
        with torch.no_grad():
            # Random weights would make much of what the features have become by now.
            new.classify.weight.zero_()
            new.classify.weight[:n_old] = self.classify.weight
            new.classify.bias.fill_(self.classify.bias.min())
            new.classify.bias[:n_old] = self.classify.bias
        return new

    def _score(self, tokens: Tensor, offsets: Tensor) -> Tensor:
        features = self.combine(tokens, offsets) if len(offsets) else tokens[:0, : self.hidden]
        logits: Tensor = self.classify(nn.functional.gelu(features))
        return logits

    def combine(self, tokens: Tensor, offsets: Tensor) -> Tensor:
        """Add up what the tokens prepared. Shape (n_spans, hidden); at least one span."""
        # Only the tokens that these spans touch: prefix sums stay short, hence exact.
        low, high = int(offsets[:, 0].min()), int(offsets[:, 1].max())
        starts, ends = offsets[:, 0] - low, offsets[:, 1] - low
        start, end, content = tokens[low:high, : 3 * self.hidden].split(self.hidden, dim=1)
        features = segment_means(content, starts, ends).add_(start.index_select(0, starts))
        features = features.add_(end.index_select(0, ends - 1))
        return features.add_(self.length(length_buckets(ends - starts)))


def segment_means(values: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """The mean over each segment, from prefix sums: a long one costs what a short one costs.

    values (Tensor): Shape (n_tokens, width).
    starts, ends (Tensor): Half-open, none empty. Shape (n,).
    RETURNS (Tensor): Shape (n, width).
    """
    # Apple's GPUs have no double precision.
    exact = values if values.device.type == "mps" else values.double()
    sums = nn.functional.pad(exact.cumsum(0), (0, 0, 1, 0))
    if len(values) <= EXACT_IN_SINGLE:
        sums = sums.to(values.dtype)
    totals = sums.index_select(0, ends).sub_(sums.index_select(0, starts))
    return totals.div_((ends - starts).unsqueeze(1)).to(values.dtype)


def length_buckets(lengths: Tensor) -> Tensor:
    """Bucket of each length: one each up to 8, then four to each doubling, the last for the rest.

    lengths (Tensor): At least 1. Shape (n,).
    RETURNS (Tensor): From 0 to N_LENGTH_BUCKETS - 1. Shape (n,), int64.
    """
    long = 8 + (4 * (lengths.clamp(min=8) / 8).log2()).floor()
    return torch.where(lengths <= 8, lengths - 1, long).clamp(max=N_LENGTH_BUCKETS - 1).long()
