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
        output: Tensor = layer(hidden, **_masks(layer, hidden, mask, positions))[0]
        return output

    def attend(
        self, layer: Any, hidden: Tensor, mask: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        config = layer.config
        usual = config._attn_implementation
        # Only this code gives attention away, and it is chosen anew in every call.
        config._attn_implementation = "eager"
        try:
            masks = _masks(layer, hidden, mask, positions)
            output = layer(hidden, **masks, output_attentions=True)
        finally:
            config._attn_implementation = usual
        return output[0], output[1]

    def finish(self, model: Any, hidden: Tensor) -> Tensor:
        output: Tensor = model.final_norm(hidden)
        return output


def _masks(layer: Any, hidden: Tensor, mask: Tensor | None, positions: Tensor) -> dict[str, Tensor]:
    if mask is None:
        mask = torch.ones_like(positions, dtype=torch.bool)
    everywhere = additive_mask(mask, hidden.dtype)
    # Distances are those in the text, also where pieces between are gone.
    distance = (positions[:, :, None] - positions[:, None, :]).abs()
    near = distance <= layer.config.local_attention // 2
    local = everywhere.masked_fill(~near[:, None], torch.finfo(hidden.dtype).min)
    return {
        "attention_mask": everywhere,
        "sliding_window_mask": local,
        "position_ids": positions,
    }
