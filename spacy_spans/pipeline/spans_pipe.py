"""What every component that learns labelled spans from a `doc.spans` key shares."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any

from spacy.language import Language
from spacy.training import Example, validate_examples
from spacy.vocab import Vocab
from thinc.api import Model

from spacy_spans.errors import DataError, SettingsError, SpansError, SpansWarning
from spacy_spans.kernels.calibration import apply_score_map, check_score_map
from spacy_spans.pipeline.data_report import (
    describe_oddities,
    describe_truncation,
    find_encoders,
)
from spacy_spans.pipeline.span_settings import check_storable
from spacy_spans.pipeline.stored_pipe import StoredPipe, no_spans_message
from spacy_spans.types import FloatArray

# In cfg: the map that makes scores probabilities; None before `spacy spans calibrate`.
SCORE_MAP = "score_map"


def _check_label(label: Any) -> None:
    if not isinstance(label, str) or not label:
        raise SettingsError(
            f"Got the label {label!r}. Expected a string that is not empty; spans in the training "
            "data need one too."
        )


class SpansPipe(StoredPipe):
    """A trainable pipe with labels, a spans key, and settings that may change after training.

    `cfg` holds the labels and these settings.
    """

    scorer: Callable | None

    def __init__(self, vocab: Vocab, model: Model, name: str, settings: dict[str, Any]) -> None:
        """
        settings (dict): With at least `spans_key`, `threshold` and `label_thresholds`; stored with
            the weights once changed.
        """
        check_storable(settings["label_thresholds"])
        super().__init__(vocab, model, name, settings, learned={"labels": [], SCORE_MAP: None})

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
        _check_label(label)
        if label in self.labels:
            return 0
        self.cfg["labels"].append(label)
        self.vocab.strings.add(label)
        if self._has_weights:
            self.set_output(self.n_classes)
        return 1

    @property
    def n_classes(self) -> int:
        """Outputs of the model for one span."""
        return len(self.labels)

    @property
    def _has_weights(self) -> bool:
        """Whether the layers above the token vectors have weights."""
        raise NotImplementedError

    @property
    def score_prefix(self) -> str:
        """What the names of its scores begin with."""
        return f"spans_{self.key}_"

    def thresholds(self) -> list[float]:
        """The threshold of each label. RAISES (SettingsError): For one of an unknown label."""
        own = self.cfg["label_thresholds"]
        unknown = sorted(set(own) - set(self.labels))
        if unknown:
            raise SettingsError(
                f"label_thresholds names {unknown}, but the labels are {list(self.labels)}."
            )
        return [own.get(label, self.cfg["threshold"]) for label in self.labels]

    def calibrated(self, scores: FloatArray) -> FloatArray:
        """What scores of the model are as probabilities: thresholds are compared with these."""
        return apply_score_map(self.cfg[SCORE_MAP], scores)

    @property
    def fitted_by(self) -> str:
        """See `StoredPipe.fitted_by`."""
        return "" if self.cfg[SCORE_MAP] is None else "spacy spans calibrate"

    def require_initialized(self) -> None:
        """Raise SpansError while there are no labels or no weights."""
        if not self.labels or not self._has_weights:
            raise SpansError(
                f"The component {self.name!r} has no labels or no weights yet. Train it, load it, "
                "or call nlp.initialize() with examples first."
            )

    def set_labels(self, examples: Iterable[Example], labels: Iterable[str] | None) -> None:
        """Add the given labels, or else all in the examples.

        RAISES (SpansError): When no example has the key or there are no labels, naming the keys
            that the examples have.
        """
        self._forget_fitted()
        examples = list(examples)
        if isinstance(labels, str):
            raise SettingsError(f"Got labels = {labels!r}. Expected a list of strings.")
        if not any(self.key in example.reference.spans for example in examples):
            raise SpansError(no_spans_message(examples, [self.key], self.name, "spans_key"))
        if labels is None:
            groups = (example.reference.spans.get(self.key, ()) for example in examples)
            labels = sorted({span.label_ for group in groups for span in group})
        for label in labels:
            _check_label(label)
            if label not in self.cfg["labels"]:
                self.cfg["labels"].append(label)
                self.vocab.strings.add(label)
        if not self.labels:
            raise SpansError(
                f"All training documents that have doc.spans[{self.key!r}] have no span in it. "
                "Add annotations, or give labels."
            )

    def _forget_fitted(self) -> None:
        """Undo what `spacy spans calibrate` fitted to the scores of other weights."""
        if self.fitted_by:
            fitted = ("threshold", "label_thresholds")
            self.cfg.update({key: deepcopy(self._configured[key]) for key in fitted})
            self.cfg[SCORE_MAP] = None

    def warn_of_oddities(self, examples: Sequence[Example], nlp: Language | None) -> None:
        """Warn of what looks wrong in the training data. What an earlier component of the pipeline
        says of the same key is not said again.

        Whether train and dev have documents in common is not known at `initialize`: see
        `spacy spans debug`.
        """
        pipes = [pipe for _, pipe in nlp.pipeline] if nlp is not None else []
        before = pipes[: pipes.index(self)] if self in pipes else []
        same = [pipe for pipe in before if isinstance(pipe, SpansPipe) and pipe.key == self.key]
        messages = [] if same else describe_oddities(examples, self.key)
        told = [model for pipe in same for _, model in find_encoders(pipe, nlp)]
        for name, model in find_encoders(self, nlp):
            if model not in told:
                messages += describe_truncation(examples, self.key, name, model)
        for message in messages:
            warnings.warn(SpansWarning(message), stacklevel=3)

    def score(self, examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
        """Score predicted spans. RETURNS (Dict[str, Any]): What the scorer returns, if any."""
        examples = list(examples)
        validate_examples(examples, f"{type(self).__name__}.score")
        if self.scorer is None:
            return {}
        # What `scorer_cfg` of `nlp.evaluate` says is for all components: it may name a key as well.
        scores: dict[str, Any] = self.scorer(examples, **{**kwargs, "spans_key": self.key})
        return scores

    def _check_stored(self, stored: dict[str, Any]) -> None:
        labels = stored.get("labels")
        if (
            not isinstance(labels, list)
            or not all(isinstance(label, str) and label for label in labels)
            or len({*labels}) < len(labels)
        ):
            raise ValueError(f"its labels are {labels!r}, expected a list of different strings")
        check_score_map(stored.get(SCORE_MAP))

    def _check_loaded(self) -> None:
        super()._check_loaded()
        # Labels may have been added before `initialize`, and stored.
        if self._has_weights:
            self._check_weights()

    def _check_weights(self) -> None:
        """Raise DataError unless the weights that there are fit labels and settings."""
        n_outputs = self.model.maybe_get_dim("nO")
        if n_outputs is not None and n_outputs != self.n_classes:
            raise DataError(
                f"The weights of {self.name!r} have {n_outputs} outputs, but its labels and its "
                f"loss make {self.n_classes}. Restore the settings it was trained with (such as "
                "`loss`, or those of [model]), or train again."
            )
