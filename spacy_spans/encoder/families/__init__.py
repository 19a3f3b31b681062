"""How each family of encoders runs layer by layer: one small adapter a file.

An adapter says how pieces are embedded, which the layers are, how one is called, and what travels
with the pieces once some are gone (a mask, their positions). To add a family, write such a file and
list it below under the `model_type` of its Hugging Face config.
"""

from typing import Any, Protocol

from torch import Tensor

from spacy_spans.encoder.families.bert import BertFamily
from spacy_spans.encoder.families.distilbert import DistilBertFamily
from spacy_spans.encoder.families.modernbert import ModernBertFamily
from spacy_spans.errors import SettingsError


class Family(Protocol):
    """Runs the parts of one family's model."""

    def embed(self, model: Any, input_ids: Tensor, token_types: Tensor | None) -> Tensor:
        """Pieces (n_windows, n_pieces) to hidden states (n_windows, n_pieces, width)."""

    def layers(self, model: Any) -> list[Any]:
        """The layers, in order."""

    def run(self, layer: Any, hidden: Tensor, mask: Tensor | None, positions: Tensor) -> Tensor:
        """One layer. mask: which pieces are none of the padding, shape (n_windows, n_pieces), None
        if all. positions: where each piece stood in its window, of the same shape.
        """

    def attend(
        self, layer: Any, hidden: Tensor, mask: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `run`, and the layer's attention, shape (n_windows, n_heads, n_pieces, n_pieces): to
        each piece (last axis) from each.
        """

    def finish(self, model: Any, hidden: Tensor) -> Tensor:
        """What follows the last layer."""


FAMILIES: dict[str, Family] = {
    "bert": BertFamily(),
    "roberta": BertFamily(),
    "xlm-roberta": BertFamily(),
    "camembert": BertFamily(),
    "electra": BertFamily(),
    "distilbert": DistilBertFamily(),
    "modernbert": ModernBertFamily(),
}


def family_of(model: Any) -> Family:
    """The adapter of a Hugging Face model. RAISES (SettingsError): For a family without one."""
    name = model.config.model_type
    if name not in FAMILIES:
        raise SettingsError(
            f"Got an encoder of the family {name!r}. Expected one of {sorted(FAMILIES)}: take "
            "another encoder, leave gates empty, or add an adapter as "
            "spacy_spans/encoder/families/__init__.py says."
        )
    return FAMILIES[name]
