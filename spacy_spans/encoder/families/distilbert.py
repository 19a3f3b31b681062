"""DistilBERT: as BERT, with names of its own, and no token types."""

from typing import Any

from torch import Tensor

from spacy_spans.encoder.masks import additive_mask


class DistilBertFamily:
    def embed(self, model: Any, input_ids: Tensor, token_types: Tensor | None) -> Tensor:
        hidden: Tensor = model.embeddings(input_ids)
        return hidden

    def layers(self, model: Any) -> list[Any]:
        return list(model.transformer.layer)

    def run(self, layer: Any, hidden: Tensor, mask: Tensor | None, positions: Tensor) -> Tensor:
        wide = None if mask is None else additive_mask(mask, hidden.dtype)
        output: Tensor = layer(x=hidden, attn_mask=wide)[0]
        return output

    def attend(
        self, layer: Any, hidden: Tensor, mask: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        # The code that gives attention away wants a mask: 0 where there is padding.
        here = hidden.new_ones(hidden.shape[:2]) if mask is None else mask
        attention, output = layer(x=hidden, attn_mask=here, output_attentions=True)
        return output, attention

    def finish(self, model: Any, hidden: Tensor) -> Tensor:
        return hidden
