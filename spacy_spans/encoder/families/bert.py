"""BERT and those built like it: absolute positions, added once to the embeddings."""

from typing import Any

from torch import Tensor

from spacy_spans.encoder.masks import additive_mask


class BertFamily:
    """BERT, MiniLM, RoBERTa, XLM-R, CamemBERT, ELECTRA."""

    def embed(self, model: Any, input_ids: Tensor, token_types: Tensor | None) -> Tensor:
        hidden: Tensor = model.embeddings(input_ids=input_ids, token_type_ids=token_types)
        # Small ELECTRA models have narrower embeddings than layers.
        project = getattr(model, "embeddings_project", None)
        return hidden if project is None else project(hidden)

    def layers(self, model: Any) -> list[Any]:
        return list(model.encoder.layer)

    def run(self, layer: Any, hidden: Tensor, mask: Tensor | None, positions: Tensor) -> Tensor:
        # One row of the mask per piece that looks: some attention code asks for it.
        wide = None if mask is None else additive_mask(mask, hidden.dtype)
        output: Tensor = layer(hidden, attention_mask=wide)[0]
        return output

    def attend(
        self, layer: Any, hidden: Tensor, mask: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        wide = None if mask is None else additive_mask(mask, hidden.dtype)
        output = layer(hidden, attention_mask=wide, output_attentions=True)
        return output[0], output[1]

    def finish(self, model: Any, hidden: Tensor) -> Tensor:
        return hidden
