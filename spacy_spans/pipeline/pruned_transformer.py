"""`pruned_transformer`: the stock `transformer` pipe, with gold for the gates of its encoder.

Gates (`spacy-spans.PrunedTransformerModel.v1`) learn which words matter from the gold spans of some
keys. The stock pipe never looks at gold, so this one reads it in `update` and hands it to the model
beside the documents; all else is inherited. A trained pipeline runs the same under the stock
`transformer` factory, with the gates that are stored.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import srsly
from spacy import util
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example, validate_examples
from spacy.vocab import Vocab
from spacy_transformers import Transformer
from spacy_transformers.data_classes import FullTransformerBatch
from thinc.api import Model, Optimizer

from spacy_spans.alignment import gold_ranges, is_annotated
from spacy_spans.encoder.forward import UNKNOWN, Supervision
from spacy_spans.encoder.kept import KeptTokensSetter, PrunedTransformerBatch
from spacy_spans.encoder.model import PrunedTransformerModel
from spacy_spans.encoder.settings import NAME as CONFIGURED
from spacy_spans.errors import SettingsError, SpansError, SpansWarning
from spacy_spans.kept import DRAWN
from spacy_spans.kernels.pruning import runs_to_mask
from spacy_spans.pipeline.kept_scores import KEPT_SCORES, score_kept
from spacy_spans.pipeline.stored_pipe import (
    check_digest,
    digest_of,
    follow_key_in_score_weights,
    naming_what_is_damaged,
    no_spans_message,
)
from spacy_spans.types import FloatArray

# Beside the weights, not in cfg: what the stock factory stores again would keep an old one there.
CHECKSUM = "model.sha256"
# Attributes of the model where there is too little to drop.
SWITCHED_OFF = {"keep_ratio": 1.0, "train_keep_ratio": 1.0}


class PrunedTransformer(Transformer):
    """A transformer whose gates learn from gold spans which words to keep.

    spans_keys (Sequence[str]): Keys of `doc.spans` whose gold spans make their words relevant;
        "doc.ents" for the entities that `ner` learns.
    max_span_share (Optional[float]): With a larger share of the training data's tokens in gold
        spans, pruning is switched off at `initialize`, since there is too little to drop. None:
        never.
    """

    def __init__(
        self,
        vocab: Vocab,
        model: Model,
        set_extra_annotations: Callable = KeptTokensSetter("kept_tokens"),  # noqa: B008 (frozen)
        *,
        name: str = "pruned_transformer",
        max_batch_items: int = 4096,
        spans_keys: Sequence[str] = ("sc",),
        max_span_share: float | None = 0.4,
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
        if max_span_share is not None and not 0 <= max_span_share <= 1:
            raise SettingsError(f"Got max_span_share = {max_span_share}. Expected 0 to 1, or null.")
        self.spans_keys = list(spans_keys)
        self.max_span_share = max_span_share

    @property
    def kept_key(self) -> str | None:
        """The key that kept tokens are written to; None where they are written nowhere."""
        return getattr(self.set_extra_annotations, "kept_key", None)

    @property
    def score_prefix(self) -> str:
        """What the names of its scores begin with."""
        return f"{self.kept_key}_"

    def score(self, examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
        """Score what the gates kept, against the gold spans it is to keep.

        RETURNS (Dict[str, Any]): See `score_kept`; empty where kept tokens are written nowhere.
        """
        if self.kept_key is None:
            return {}
        return score_kept(list(examples), self.kept_key, self.spans_keys)

    def initialize(
        self, get_examples: Callable[[], Iterable[Example]], *, nlp: Language | None = None
    ) -> None:
        """As the stock pipe's; with gates, the gold spans are looked at as well.

        RAISES (SpansError): When there are gates that learn, and no example has any of the keys.
        """
        super().initialize(get_examples, nlp=nlp)
        self._switch_on()
        follow_key_in_score_weights(self, nlp, KEPT_SCORES if self.kept_key else {})
        if self.model.attrs["gates"]:
            self._check_gold(list(get_examples()))

    def _switch_on(self) -> None:
        """Undo what an earlier `initialize` did on denser data; it may have been stored since."""
        attrs = self.model.attrs
        if all(attrs[key] == value for key, value in SWITCHED_OFF.items()):
            attrs.update({key: attrs[CONFIGURED].values[key] for key in SWITCHED_OFF})

    def _check_gold(self, examples: list[Example]) -> None:
        attrs = self.model.attrs
        keys = self.spans_keys
        if not any(is_annotated(own, keys) for own in examples):
            if attrs["criterion"].learns:
                raise SpansError(no_spans_message(examples, keys, self.name, "spans_keys"))
            return
        relevance = np.concatenate([mark_relevant(own, keys) for own in examples])
        known = relevance[relevance != UNKNOWN]
        share = float(known.mean()) if len(known) else 0.0
        if self.max_span_share is not None and share > self.max_span_share:
            message = (
                f"{self.name}: {share:.0%} of tokens are in gold spans of {keys}, above "
                f"max_span_share = {self.max_span_share}. Dropping words would cost more than it "
                "saves, so none is dropped, in training neither: keep_ratio and train_keep_ratio "
                "are 1.0 now. To prune such data set max_span_share = null."
            )
            warnings.warn(SpansWarning(message), stacklevel=3)
            attrs.update(SWITCHED_OFF)

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """As the stock pipe's; the loss of the gates joins what the listeners send back.

        RETURNS (Dict[str, float]): Under the name of the component the cross-entropy of the gates,
            per word and gate. Without gates that learn it is stock's number: the squares of all
            that the listeners sent back.
        """
        examples = list(examples)
        validate_examples(examples, "PrunedTransformer.update")
        losses = {} if losses is None else losses
        supervision = Supervision([mark_relevant(own, self.spans_keys) for own in examples])
        self._pruned_model.supervision = supervision
        try:
            # Listeners go on adding to what stock gets here, after this update.
            stock_losses = {} if self._gates_learn else losses
            super().update(examples, drop=drop, sgd=sgd, losses=stock_losses)
        finally:
            self._pruned_model.supervision = None
        if supervision.loss is not None:
            losses[self.name] = losses.get(self.name, 0.0) + supervision.loss
        self._set_kept([example.predicted for example in examples], supervision.batch)
        return losses

    def _set_kept(self, docs: list[Doc], batch: PrunedTransformerBatch | None) -> None:
        """Let components that come after see what was kept of the very vectors they learn on."""
        setter = self.set_extra_annotations
        if not isinstance(setter, KeptTokensSetter):
            return
        setter(docs, batch if batch is not None else FullTransformerBatch.empty(len(docs)))
        if batch is not None and batch.piece_scores is not None:
            for doc in docs:
                doc.spans[setter.kept_key].attrs[DRAWN] = True

    def to_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> None:
        """As the stock pipe's, with a checksum beside the weights."""
        model = self.model.to_bytes()
        serialize: dict[str, Any] = {
            "cfg": lambda file: srsly.write_json(file, self.cfg),
            "vocab": lambda folder: self.vocab.to_disk(folder, exclude=exclude),
            "model": lambda file: file.write_bytes(model),
            CHECKSUM: lambda file: file.write_text(digest_of(model)),
        }
        util.to_disk(path, serialize, exclude)

    def from_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> "PrunedTransformer":
        """Load what `to_disk` of this or of the stock pipe wrote.

        RAISES (DataError): On a file that is missing, cut off or altered, which it names, and on
            weights that do not fit.
        """

        def read_cfg(file: Any) -> None:
            with naming_what_is_damaged(f"The file {str(file)!r}"):
                self.cfg.update(srsly.read_json(file))

        def read_model(file: Any) -> None:
            checksum = read_checksum(file.with_name(CHECKSUM))
            with naming_what_is_damaged(f"The file {str(file)!r}"):
                data = file.read_bytes()
                # The stock pipe writes over the weights alone.
                check_digest(
                    data,
                    checksum,
                    f" (if the factory transformer was stored into this folder since, {CHECKSUM} "
                    "there is of older weights: delete it)",
                )
                self.model.from_bytes(data)

        deserialize: dict[str, Any] = {
            "cfg": read_cfg,
            "vocab": lambda folder: self.vocab.from_disk(folder, exclude=exclude),
            "model": read_model,
        }
        util.from_disk(path, deserialize, exclude)
        return self

    @property
    def _pruned_model(self) -> Any:
        return self.model

    @property
    def _gates_learn(self) -> bool:
        return bool(self.model.attrs["gates"]) and self.model.attrs["criterion"].learns


def read_checksum(file: Path) -> str | None:
    """The checksum of the weights; None where the stock pipe stored them.

    RAISES (DataError): On anything else, naming the file.
    """
    if not file.is_file():
        return None
    with naming_what_is_damaged(f"The file {str(file)!r}"):
        checksum = file.read_text(encoding="ascii").strip()
        if not re.fullmatch("[0-9a-f]{64}", checksum):
            raise ValueError(f"it holds {checksum!r}, expected a SHA-256 checksum")
    return checksum


def mark_relevant(example: Example, keys: Sequence[str]) -> FloatArray:
    """1 for each token of the predicted document inside of a gold span, 0 for others, UNKNOWN where
    the reference has none of the keys. Shape (n_tokens,).

    keys (Sequence[str]): As of `gold_ranges`.
    """
    n_tokens = len(example.predicted)
    if not is_annotated(example, keys):
        return np.full(n_tokens, UNKNOWN, dtype="f")
    return runs_to_mask(gold_ranges(example, keys), n_tokens).astype("f")
