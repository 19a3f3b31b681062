"""What every component that learns labelled spans from a `doc.spans` key shares."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.training import Example
from spacy.vocab import Vocab
from thinc.api import Model

from spacy_spans.alignment import count_keys
from spacy_spans.errors import DataError, SettingsError, SpansError


@contextmanager
def _naming_what_is_damaged(what: str) -> Iterator[None]:
    try:
        yield
    # What msgpack, JSON, thinc and this package raise on data that is cut off, altered or foreign.
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise DataError(
            f"{what} cannot be read: {error}. It is damaged, or was saved with other [model] "
            "settings: copy the pipeline again, restore the config it was trained with, or train "
            "again."
        ) from error


class SpansPipe(TrainablePipe):
    """A trainable pipe with labels, a spans key, and settings that may change after training.

    `cfg` holds the labels and these settings. They are read when they are needed, because
    `spacy find-threshold` rewrites them in place.
    """

    def __init__(self, vocab: Vocab, model: Model, name: str, settings: dict[str, Any]) -> None:
        """settings (dict): With at least `spans_key`; stored with the weights once changed."""
        self.vocab = vocab
        self.model = model
        self.name = name
        self.cfg: dict[str, Any] = {"labels": [], **settings}
        self._configured = deepcopy(settings)

    @property
    def key(self) -> str:
        """The spans key that is learned and written."""
        return str(self.cfg["spans_key"])

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of the model's outputs."""
        return tuple(self.cfg["labels"])

    @property
    def label_data(self) -> list[str]:
        """What `spacy init labels` stores, and `initialize` takes as `labels`."""
        return list(self.labels)

    @property
    def label_ids(self) -> dict[str, int]:
        """The index of each label."""
        return {label: i for i, label in enumerate(self.labels)}

    def add_label(self, label: str) -> int:
        """Add a label; after `initialize` as well, with an output that starts from nothing.

        RETURNS (int): 0 if the label was there already, otherwise 1.
        """
        if not isinstance(label, str) or not label:
            raise SettingsError(f"Got the label {label!r}. Expected a string that is not empty.")
        if label in self.labels:
            return 0
        self.cfg["labels"].append(label)
        self.vocab.strings.add(label)
        if self.model.has_dim("nO"):
            self.set_output(self.n_classes)
        return 1

    @property
    def n_classes(self) -> int:
        """Outputs of the model for one span."""
        return len(self.labels)

    def check_settings(self) -> None:
        """Raise SettingsError on settings out of range."""

    def set_labels(self, examples: Iterable[Example], labels: Iterable[str] | None) -> None:
        """Add the given labels, or else all in the examples.

        RAISES (SpansError): When no example has the key or there are no labels, naming the keys
            that the examples have.
        """
        examples = list(examples)
        if not any(self.key in example.reference.spans for example in examples):
            raise SpansError(self._no_spans_message(examples))
        if labels is None:
            groups = (example.reference.spans.get(self.key, ()) for example in examples)
            labels = sorted({span.label_ for group in groups for span in group})
        for label in labels:
            if label not in self.cfg["labels"]:
                self.cfg["labels"].append(label)
                self.vocab.strings.add(label)
        if not self.labels:
            raise SpansError(self._no_spans_message(examples))

    def _no_spans_message(self, examples: Sequence[Example]) -> str:
        keys = count_keys(examples)
        present = ", ".join(f"{key!r} ({n} documents)" for key, n in sorted(keys.items()))
        return (
            f"No training document has a span in doc.spans[{self.key!r}]. Keys that are there: "
            f"{present or 'none'}. Set spans_key of {self.name!r} to one of these, or write the "
            "annotations under the key with `spacy spans convert --spans-key`."
        )

    def follow_key_in_score_weights(
        self, nlp: Language | None, weights: dict[str, float | None]
    ) -> None:
        """Weigh the scores of the key in use: the weights of a factory are fixed when it is
        registered, when no key is known yet.

        weights (dict): Weight of each score, without the prefix `spans_{key}_`.
        """
        if nlp is None or self.name not in nlp.component_names:
            return
        named = {f"spans_{self.key}_{score}": weight for score, weight in weights.items()}
        meta = nlp.get_pipe_meta(self.name)
        stale = set(meta.default_score_weights or {}) - set(named)
        # spaCy offers no other way to give one instance its own default weights.
        nlp._pipe_meta[self.name] = replace(meta, default_score_weights=named, scores=list(named))
        # spaCy keeps weights once it has merged them. Those of the default key go, unless another
        # component has that key: a score that nothing computes would stop the training.
        others = [pipe for name, pipe in nlp.pipeline if name != self.name]
        if not any(f"spans_{getattr(pipe, 'key', None)}_f" in stale for pipe in others):
            kept = nlp._config["training"].get("score_weights", {})
            for score in stale:
                kept.pop(score, None)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Serialise labels, settings that were changed, vocab and weights."""
        with self._only_changed_settings():
            return super().to_bytes(exclude=exclude)

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "SpansPipe":
        """Load what `to_bytes` made. RAISES (DataError): On weights that do not fit."""
        with _naming_what_is_damaged(f"The stored bytes of {self.name!r}"):
            super().from_bytes(bytes_data, exclude=exclude)
        self._check_loaded()
        return self

    def to_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> None:
        """Write labels, settings that were changed, vocab and weights to a folder."""
        with self._only_changed_settings():
            super().to_disk(path, exclude=exclude)

    def from_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> "SpansPipe":
        """Load what `to_disk` wrote. RAISES (DataError): On weights that do not fit."""
        with _naming_what_is_damaged(f"A file in {str(path)!r} (model, cfg or vocab)"):
            super().from_disk(path, exclude=exclude)
        self._check_loaded()
        return self

    def _check_loaded(self) -> None:
        self.check_settings()
        n_outputs = self.model.maybe_get_dim("nO")
        if n_outputs is not None and n_outputs != self.n_classes:
            raise DataError(
                f"The weights of {self.name!r} have {n_outputs} outputs, but its labels and its "
                f"loss make {self.n_classes}. Restore the settings it was trained with (such as "
                "`loss`, or those of [model]), or train again."
            )

    @contextmanager
    def _only_changed_settings(self) -> Iterator[None]:
        """Store only settings that differ from the config, so that editing or overriding the
        config of a saved pipeline has an effect; those changed at run time are kept.
        """
        cfg = self.cfg
        self.cfg = {
            key: value
            for key, value in cfg.items()
            if key not in self._configured or value != self._configured[key]
        }
        try:
            yield
        finally:
            self.cfg = cfg
