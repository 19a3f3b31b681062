"""`pruned_transformer`: the stock `transformer` pipe, with gold for the gates of its encoder.

Gates (`spacy-spans.PrunedTransformerModel.v1`) learn which words matter from the gold spans of some
keys. The stock pipe never looks at gold, so this one reads it in `update` and hands it to the model
beside the documents; all else is inherited. A trained pipeline runs the same under the stock
`transformer` factory, with the gates that are stored.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from spacy.training import Example, validate_examples
from spacy.vocab import Vocab
from spacy_transformers import Transformer
from spacy_transformers.annotation_setters import null_annotation_setter
from thinc.api import Model, Optimizer

from spacy_spans.alignment import gold_mentions
from spacy_spans.encoder.model import PrunedTransformerModel
from spacy_spans.errors import SettingsError
from spacy_spans.types import FloatArray


class PrunedTransformer(Transformer):
    """A transformer whose gates learn from gold spans which words to keep.

    spans_keys (Sequence[str]): Keys of `doc.spans` whose gold spans make their words relevant.
    """

    def __init__(
        self,
        vocab: Vocab,
        model: Model,
        set_extra_annotations: Callable = null_annotation_setter,
        *,
        name: str = "pruned_transformer",
        max_batch_items: int = 4096,
        spans_keys: Sequence[str] = ("sc",),
    ) -> None:
        super().__init__(
            vocab, model, set_extra_annotations, name=name, max_batch_items=max_batch_items
        )
        if not isinstance(model, PrunedTransformerModel):
            raise SettingsError(
                f"Got a model {model.name!r} for {name!r}. Expected "
                "spacy-spans.PrunedTransformerModel.v1; other architectures have no gates and "
                "belong under the factory transformer."
            )
        if isinstance(spans_keys, str) or not spans_keys:
            raise SettingsError(
                f"Got spans_keys = {spans_keys!r}. Expected a list of keys of doc.spans."
            )
        self.spans_keys = list(spans_keys)

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """As the stock pipe's; the loss of the gates joins what the listeners send back."""
        examples = list(examples)
        validate_examples(examples, "PrunedTransformer.update")
        self._pruned_model.relevance = [
            mark_relevant(example, self.spans_keys) for example in examples
        ]
        try:
            result: dict[str, float] = super().update(examples, drop=drop, sgd=sgd, losses=losses)
        finally:
            self._pruned_model.relevance = None
        return result

    @property
    def _pruned_model(self) -> Any:
        return self.model


def mark_relevant(example: Example, keys: Sequence[str]) -> FloatArray:
    """1 for each token of the predicted document inside of a gold span. Shape (n_tokens,).

    keys (Sequence[str]): Keys of the reference's spans; those that are missing give none.
    """
    depth = np.zeros(len(example.predicted) + 1, dtype="i")
    for key in keys:
        label_ids = {span.label_: 0 for span in example.reference.spans.get(key, ())}
        gold = gold_mentions(example, key, label_ids, "expand")
        np.add.at(depth, gold.offsets[:, 0], 1)
        np.add.at(depth, gold.offsets[:, 1], -1)
    return (np.cumsum(depth[:-1]) > 0).astype("f")
