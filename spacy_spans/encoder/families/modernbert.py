"""ModernBERT: rotary positions, and layers that look only so far."""

from typing import Any

import torch
from torch import Tensor

from spacy_spans.encoder.masks import additive_mask


class ModernBertFamily:
    def embed(self, model: Any, input_ids: Tensor, token_types: Tensor | None) -> Tensor:
        hidden: Tensor = model.embeddings(input_ids=input_ids)
        return hidden

    def layers(self, model: Any) -> list[Any]:
        return list(model.layers)

    def run(self, layer: Any, hidden: Tensor, mask: Tensor | None, positions: Tensor) -> Tensor:
        if mask is None:
            mask = torch.ones_like(positions, dtype=torch.bool)
        everywhere = additive_mask(mask, hidden.dtype)
        # Distances are those in the text, also where pieces between are gone.
        distance = (positions[:, :, None] - positions[:, None, :]).abs()
        near = distance <= layer.config.local_attention // 2
        lowest = torch.finfo(hidden.dtype).min
        local = everywhere.masked_fill(~near[:, None], lowest)
        output: Tensor = layer(
            hidden,
            attention_mask=everywhere,
            sliding_window_mask=local,
            position_ids=positions,
        )[0]
        return output

    def finish(self, model: Any, hidden: Tensor) -> Tensor:
        output: Tensor = model.final_norm(hidden)
        return output
