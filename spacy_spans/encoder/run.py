"""Run an encoder layer by layer, with gates between layers that make sequences shorter."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from spacy_spans.encoder.families import Family
from spacy_spans.encoder.pruning import best_words, kept_pieces, restore, shorten, word_scores

GATE_WIDTH = 64


class Gates(nn.Module):
    """Score how relevant the word of each piece is, from its hidden state: one small network for
    each gate.
    """

    def __init__(self, width: int, n_gates: int) -> None:
        super().__init__()
        self.gates = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, GATE_WIDTH),
                nn.GELU(),
                nn.Linear(GATE_WIDTH, 1),
            )
            for _ in range(n_gates)
        )

    def forward(self, hidden: Tensor, gate: int) -> Tensor:
        """hidden (Tensor): Shape (..., width). RETURNS (Tensor): Logits. Shape (...)."""
        logits: Tensor = self.gates[gate](hidden).squeeze(-1)
        return logits


class Pruning(NamedTuple):
    """How to prune.

    after (tuple): Layers after which words are dropped, ascending, counted from 1.
    keep_ratio (float | None): Share of each window's words kept at every gate; None: those whose
        probability reaches the threshold.
    threshold (float): See keep_ratio.
    pool (bool): Whether the mean of a dropped run stands in for it.
    """

    after: tuple[int, ...]
    keep_ratio: float | None
    threshold: float
    pool: bool


class Encoded(NamedTuple):
    """hidden (Tensor): Shape (n_windows, n_pieces, width). gate_logits (list): Word scores of each
    gate, shape (n_windows, n_words), -inf where there is no word. n_rows (int): Rows that the
    layers computed, padding included, summed over layers.
    """

    hidden: Tensor
    gate_logits: list[Tensor]
    n_rows: int


def encode(
    model: Any,
    family: Family,
    gates: Gates | None,
    pruning: Pruning,
    *,
    input_ids: Tensor,
    mask: Tensor,
    token_types: Tensor | None,
    words: Tensor,
) -> Encoded:
    """Encode windows.

    model (PreTrainedModel): The encoder. gates (Gates | None): None: nothing is dropped.
    input_ids, token_types (Tensor): Pieces. Shape (n_windows, n_pieces).
    mask (Tensor): Which are none of the padding. The same shape, bool.
    words (Tensor): Number of each piece's word in its window; -1 for special pieces and padding.
    """
    hidden = family.embed(model, input_ids, token_types)
    positions = torch.arange(hidden.shape[1], device=hidden.device).expand_as(input_ids)
    is_padded = not bool(mask.all())
    way_back = []
    logits = []
    n_rows = 0
    for number, layer in enumerate(family.layers(model), start=1):
        hidden = family.run(layer, hidden, mask if is_padded else None, positions)
        n_rows += hidden.shape[0] * hidden.shape[1]
        if gates is not None and number in pruning.after:
            scores = word_scores(gates(hidden, pruning.after.index(number)), words)
            logits.append(scores)
            if pruning.keep_ratio is not None:
                kept_words = best_words(scores.detach(), pruning.keep_ratio)
            else:
                kept_words = scores.sigmoid() >= pruning.threshold
            kept = kept_pieces(kept_words, words, mask)
            short = shorten(hidden, kept, mask, pool=pruning.pool)
            way_back.append((hidden, short))
            # A pooled row is of no word that another gate could drop.
            is_kept = kept.gather(1, short.source)
            words = words.gather(1, short.source).masked_fill(~is_kept | ~short.mask, -1)
            positions = positions.gather(1, short.source)
            hidden, mask = short.hidden, short.mask
            is_padded = not bool(mask.all())
    for before, short in reversed(way_back):
        hidden = restore(before, short, hidden)
    return Encoded(family.finish(model, hidden), logits, n_rows)


def encode_whole(
    model: Any, *, input_ids: Tensor, mask: Tensor, token_types: Tensor | None
) -> Encoded:
    """Encode windows by the model's own forward pass: any family, without gates.

    Arguments as of `encode`.
    """
    types = {} if token_types is None else {"token_type_ids": token_types}
    output = model(input_ids=input_ids, attention_mask=mask.long(), **types)
    hidden: Tensor = output.last_hidden_state
    return Encoded(hidden, [], hidden.shape[0] * hidden.shape[1] * model.config.num_hidden_layers)
