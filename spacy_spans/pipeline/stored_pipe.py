"""What every trainable component of this package shares: settings, storage, score weights."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256
from typing import Any

import srsly
from spacy import util
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.tokens import Doc
from spacy.training import Example, validate_examples
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer, set_dropout_rate

from spacy_spans.alignment import count_keys
from spacy_spans.errors import DataError, SpansError, SpansWarning
from spacy_spans.keys import ENTITIES
from spacy_spans.span_getters import KeptSpans

# In the stored cfg: checksum of the stored weights.
MODEL_DIGEST = "model_sha256"
# Documents that model layers see to infer their sizes.
N_SAMPLE_DOCS = 10
# Name of the layer that spacy-transformers puts in the place of an encoder.
TRANSFORMER_LISTENER = "transformer-listener"


@contextmanager
def naming_what_is_damaged(what: str) -> Iterator[None]:
    """Turn what is raised on data that cannot be read into a DataError that names it.

    what (str): Subject of the sentence, such as "The file 'model'".
    """
    try:
        yield
    # What msgpack, JSON, thinc and this package raise on data that is cut off, altered or foreign,
    # or not there.
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RecursionError,
        OSError,
    ) as error:
        raise DataError(
            f"{what} cannot be read: {error}. It is damaged, or was saved with other [model] "
            "settings: copy the pipeline again, restore the config it was trained with, or train "
            "again."
        ) from error


def check_upstream(model: Model, docs: Sequence[Doc], name: str) -> None:
    """Raise SpansError when a listener has nothing to listen to.

    Stock listeners then hand out zeros without a word, from which no span would be found.
    """
    layers = {node.name for node in model.walk()}
    docs = [doc for doc in docs if len(doc)]
    if ("tok2vec-listener" in layers and any(doc.tensor.size == 0 for doc in docs)) or (
        TRANSFORMER_LISTENER in layers
        # Registered by the first transformer in the process.
        and (not Doc.has_extension("trf_data") or any(doc._.trf_data is None for doc in docs))
    ):
        raise SpansError(
            f"{name!r} listens to a tok2vec or transformer component, but that has not run on this "
            "document. Put it earlier in the pipeline, do not disable it, and where "
            f"{name!r} is among [training] annotating_components, list it there too."
        )


def warn_of_unencoded(pipe: Any, nlp: Language | None, kept_key: str | None) -> None:
    """Warn when a component looks for spans in tokens that its transformer does not encode.

    kept_key (str | None): Key of the runs that it looks for spans inside; None: anywhere.
    """
    nodes = list(pipe.model.walk())
    if nlp is not None and TRANSFORMER_LISTENER in {node.name for node in nodes}:
        models = [getattr(other, "model", None) for _, other in nlp.pipeline]
        nodes += [model for model in models if isinstance(model, Model)]
    getters = [node.attrs.get("get_spans") for node in nodes]
    keys = {getter.kept.key for getter in getters if isinstance(getter, KeptSpans)}
    for key in sorted(keys - {kept_key}):
        message = (
            f"{pipe.name} looks for spans in tokens that its transformer leaves out: "
            f"spacy-spans.kept_spans.v1 encodes the runs of doc.spans[{key!r}] only, and all other "
            f"vectors are zero. Set within_kept = true and kept_key = {key!r}."
        )
        warnings.warn(SpansWarning(message), stacklevel=3)


def no_spans_message(
    examples: Sequence[Example], keys: Sequence[str], name: str, setting: str
) -> str:
    """That no example has any of the keys that a setting of a component names."""
    counts = count_keys(examples)
    present = ", ".join(f"{key!r} ({n} documents)" for key, n in sorted(counts.items()))
    wanted = " or ".join(key if key == ENTITIES else f"doc.spans[{key!r}]" for key in keys)
    hint = ""
    if setting == "spans_keys" and any(len(example.reference.ents) for example in examples):
        hint = f' Or learn from its entities: spans_keys = ["{ENTITIES}"].'
    return (
        f"No training document has {wanted}. Keys that are there: {present or 'none'}. Set "
        f"{setting} of {name!r} to what is there, or write the annotations under the key with "
        f"`spacy spans convert --spans-key`.{hint}"
    )


class StoredPipe(TrainablePipe):
    """A trainable pipe that writes one key, with settings that may change after training.

    `cfg` holds these settings and what else was learned beside weights. Settings are read when they
    are needed, because `spacy find-threshold` rewrites them in place.
    """

    def __init__(
        self,
        vocab: Vocab,
        model: Model,
        name: str,
        settings: dict[str, Any],
        *,
        learned: dict[str, Any],
    ) -> None:
        """
        settings (dict): Stored with the weights once changed.
        learned (dict): Always stored; what it is before anything was learned.
        """
        self.vocab = vocab
        self.model = model
        self.name = name
        self.cfg: dict[str, Any] = {**deepcopy(learned), **settings}
        self._configured = deepcopy(settings)
        self._unlearned = deepcopy(learned)
        self._has_warned_of_fitted = False

    @property
    def key(self) -> str:
        """The key of `doc.spans` that is written."""
        raise NotImplementedError

    @property
    def score_prefix(self) -> str:
        """What the names of its scores begin with."""
        raise NotImplementedError

    def require_initialized(self) -> None:
        """Raise SpansError while there is nothing that could be trained or run."""
        raise NotImplementedError

    def begin_loss(
        self, examples: list[Example], docs: list[Doc]
    ) -> tuple[float, Callable[[], Any]]:
        """Run the model on the predicted documents, some with tokens.

        RETURNS (tuple): The loss per token, and what sends its gradient back.
        """
        raise NotImplementedError

    @property
    def _ops(self) -> Any:
        """thinc's array operations; untyped, since its stubs know no numpy arrays."""
        return self.model.ops

    @property
    def learns(self) -> bool:
        """Whether there is anything to train."""
        return True

    @property
    def fitted_by(self) -> str:
        """The command that fitted settings to the weights as they are; "" if none did."""
        return ""

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """Learn from a batch of examples; from documents without tokens there is nothing to learn.

        RETURNS (Dict[str, float]): The losses, with this component's loss per token added.
        RAISES (SpansError): Before `initialize`, and when the loss is not a number any more.
        """
        losses = losses if losses is not None else {}
        losses.setdefault(self.name, 0.0)
        examples = list(examples)
        validate_examples(examples, f"{type(self).__name__}.update")
        docs = [example.predicted for example in examples]
        if not self.learns or not any(len(doc) for doc in docs):
            return losses
        self.require_initialized()
        set_dropout_rate(self.model, drop)
        loss, backprop = self.begin_loss(examples, docs)
        self.check_loss(loss)
        backprop()
        if sgd is not None:
            self.finish_update(sgd)
        losses[self.name] += loss
        return losses

    def finish_update(self, sgd: Optimizer) -> None:
        """Change the weights. Warns once if settings were fitted to those that there are."""
        if self.learns and self.fitted_by and not self._has_warned_of_fitted:
            self._has_warned_of_fitted = True
            message = (
                f"{self.name} is trained further, but `{self.fitted_by}` fitted its settings to "
                f"the weights as they were. Run `{self.fitted_by}` again once it is trained."
            )
            warnings.warn(SpansWarning(message), stacklevel=2)
        super().finish_update(sgd)

    def check_settings(self) -> None:
        """Raise SettingsError on settings out of range."""

    def check_loss(self, loss: float) -> None:
        """Raise SpansError when the loss is not a number any more."""
        if not math.isfinite(loss):
            raise SpansError(
                f"The loss of {self.name!r} is {loss}: training has diverged. Lower the learning "
                "rate (or learn_rate_factor), warm it up for longer, or clip gradients."
            )

    def check_finite(self, scores: Any) -> None:
        """Raise SpansError when scores are no numbers: everything would compare as false, and
        nothing be found.
        """
        if not self.model.ops.xp.isfinite(scores).all():
            raise SpansError(
                f"The model of {self.name!r} gives scores that are not finite: its weights, or "
                "those of the tok2vec or transformer that it reads, hold NaN or infinity. Training "
                "has diverged, or a file is damaged: load an earlier checkpoint such as "
                "model-best, or train again with a lower learning rate."
            )

    def warn_of_shared_key(self, nlp: Language | None) -> None:
        """Warn when another component writes spans to the same key: the later one would win."""
        pipes = nlp.pipeline if nlp is not None else []
        same = [
            name
            for name, pipe in pipes
            if pipe is not self and getattr(pipe, "key", None) == self.key
        ]
        if same:
            message = (
                f"{self.name} and {', '.join(same)} all write doc.spans[{self.key!r}]: the last of "
                "them overwrites the others. Give each a spans_key of its own."
            )
            warnings.warn(SpansWarning(message), stacklevel=3)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Serialise what was learned, settings that were changed, vocab and weights."""
        model = self.model.to_bytes()
        serialize: dict[str, Any] = {
            "cfg": lambda: srsly.json_dumps(self._stored_cfg(model)),
            "vocab": lambda: self.vocab.to_bytes(exclude=exclude),
            "model": lambda: model,
        }
        return util.to_bytes(serialize, exclude)

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "StoredPipe":
        """Load what `to_bytes` made. RAISES (DataError): On weights that do not fit."""
        digest: list[str | None] = [None]

        def read_cfg(data: bytes) -> None:
            digest[0] = self._restore_cfg(srsly.json_loads(data))

        def read_model(data: bytes) -> None:
            check_digest(data, digest[0])
            self.model.from_bytes(data)

        deserialize: dict[str, Any] = {
            "cfg": read_cfg,
            "vocab": lambda data: self.vocab.from_bytes(data, exclude=exclude),
            "model": read_model,
        }
        with naming_what_is_damaged(f"The stored bytes of {self.name!r}"):
            util.from_bytes(bytes_data, deserialize, exclude)
        self._check_loaded()
        return self

    def to_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> None:
        """Write what was learned, settings that were changed, vocab and weights to a folder."""
        model = self.model.to_bytes()
        serialize: dict[str, Any] = {
            "cfg": lambda p: srsly.write_json(p, self._stored_cfg(model)),
            "vocab": lambda p: self.vocab.to_disk(p, exclude=exclude),
            "model": lambda p: p.write_bytes(model),
        }
        util.to_disk(path, serialize, exclude)

    def from_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> "StoredPipe":
        """Load what `to_disk` wrote.

        RAISES (DataError): On a file that is missing, cut off or altered, which it names, and on
            weights that do not fit.
        """
        digest: list[str | None] = [None]

        def read_cfg(file: Any) -> None:
            with naming_what_is_damaged(f"The file {str(file)!r}"):
                digest[0] = self._restore_cfg(srsly.read_json(file))

        def read_model(file: Any) -> None:
            with naming_what_is_damaged(f"The file {str(file)!r}"):
                data = file.read_bytes()
                check_digest(data, digest[0])
                self.model.from_bytes(data)

        deserialize: dict[str, Any] = {
            "cfg": read_cfg,
            "vocab": lambda p: self.vocab.from_disk(p, exclude=exclude),
            "model": read_model,
        }
        util.from_disk(path, deserialize, exclude)
        self._check_loaded()
        return self

    def _check_loaded(self) -> None:
        self.check_settings()

    def _check_stored(self, stored: dict[str, Any]) -> None:
        """Raise ValueError when what was learned, as stored, is no such thing."""

    def _stored_cfg(self, model: bytes) -> dict[str, Any]:
        """What was learned, each setting changed since the config, with both values, and a
        checksum of the weights.
        """
        changed = {
            key: {"config": configured, "value": self.cfg[key]}
            for key, configured in self._configured.items()
            if self.cfg[key] != configured
        }
        learned = {key: value for key, value in self.cfg.items() if key not in self._configured}
        return {**learned, "changed": changed, MODEL_DIGEST: digest_of(model)}

    def _restore_cfg(self, stored: Any) -> str | None:
        """Apply stored changes, except to settings that the config has changed since: what is
        written in the config of a saved pipeline, or given when it is loaded, has the last word.

        RETURNS (str | None): Checksum of the weights; None where none was stored.
        """
        if not isinstance(stored, dict) or not isinstance(stored.get("changed"), dict):
            raise ValueError("it does not hold what this component stores")
        changed = stored.pop("changed")
        digest: str | None = stored.pop(MODEL_DIGEST, None)
        self._check_stored(stored)
        self.cfg = {**deepcopy(self._unlearned), **stored, **deepcopy(self._configured)}
        for key, change in changed.items():
            if self._configured.get(key) == change["config"]:
                self.cfg[key] = change["value"]
        return digest


def digest_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def check_digest(data: bytes, digest: str | None, hint: str = "") -> None:
    """Raise ValueError unless these are the weights that were stored.

    thinc and safetensors notice what is cut off, but not a number that has changed.

    hint (str): What else may have happened, and what to do then.
    """
    if digest is not None and digest_of(data) != digest:
        raise ValueError(f"its checksum is not the one it was stored with{hint}")


def follow_key_in_score_weights(
    pipe: Any, nlp: Language | None, weights: dict[str, float | None]
) -> None:
    """Weigh the scores of the key in use: the weights of a factory are fixed when it is
    registered, when no key is known yet.

    pipe: A component with `score_prefix`, what the names of its scores begin with.
    weights (dict): Weight of each score, without `score_prefix`.
    """
    if nlp is None or pipe.name not in nlp.component_names:
        return
    named = {pipe.score_prefix + score: weight for score, weight in weights.items()}
    meta = nlp.get_pipe_meta(pipe.name)
    stale = set(meta.default_score_weights or {}) - set(named)
    # spaCy offers no other way to give one instance its own default weights.
    nlp._pipe_meta[pipe.name] = replace(meta, default_score_weights=named, scores=list(named))
    # Weights of the default key are switched off, unless another component has that key: a
    # score that nothing computes would stop the training. They cannot just be removed, since
    # spaCy adds them again whenever the pipeline is loaded.
    others = [other for name, other in nlp.pipeline if name != pipe.name]
    in_use = tuple(prefix for other in others for prefix in _score_prefixes(other))
    unused = dict.fromkeys(score for score in stale if not score.startswith(in_use))
    nlp._config["training"].setdefault("score_weights", {}).update(unused)


def _score_prefixes(pipe: Any) -> list[str]:
    """What the names of a component's scores may begin with, also those of stock components."""
    # Stock spancat and span_finder name their scores after the key they write.
    key = getattr(pipe, "key", None)
    own = [getattr(pipe, "score_prefix", None), f"spans_{key}_" if isinstance(key, str) else None]
    return [prefix for prefix in own if prefix]
