"""`token_pruner`: score tokens, and write the runs of those that are worth an encoder's work.

It runs before the encoder, on cheap token vectors of its own. `spacy-spans.kept_spans.v1` then has
only these runs encoded, and `span_enumerator` with `within_kept` looks for spans inside of them.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Model
from thinc.types import Floats2d

from spacy_spans.alignment import gold_ranges, is_annotated
from spacy_spans.errors import SettingsError, SpansError, SpansWarning
from spacy_spans.groups import describe_keys, read_offsets, write_group
from spacy_spans.kernels.calibration import round_down
from spacy_spans.kernels.losses import rarity_bias, sigmoid, sigmoid_loss
from spacy_spans.kernels.pruning import (
    BoolArray,
    drop_short_runs,
    fit_threshold,
    keep_above,
    mask_to_runs,
    runs_to_mask,
    widen,
    widen_scores,
)
from spacy_spans.keys import check_spans_key
from spacy_spans.pipeline.kept_scores import KEPT_SCORES, count_kept, score_kept
from spacy_spans.pipeline.stored_pipe import (
    N_SAMPLE_DOCS,
    StoredPipe,
    check_upstream,
    follow_key_in_score_weights,
    no_spans_message,
)
from spacy_spans.policies import RecallTarget
from spacy_spans.torch_layer import layer_shim
from spacy_spans.types import FloatArray, IntArray, SpanArrays, TokenPolicy

SCORE_WEIGHTS: dict[str, float | None] = {"f": 1.0, **KEPT_SCORES}
# In cfg: the threshold that was fitted for a recall, and the recall that it was fitted for.
THRESHOLD, RECALL = "fitted_threshold", "fitted_recall"
# In cfg: whether anything was learned since `initialize`. Where nothing is stored, it was.
TRAINED = "trained"
# A score that every threshold keeps.
CERTAIN = np.float32(1.0)


class Kept(NamedTuple):
    """What `predict` decides for one document.

    runs (ndarray): Half-open offsets. Shape (n_runs, 2), int32.
    scores (ndarray): The best score among the tokens of each run. Shape (n_runs,), float32.
    """

    runs: IntArray
    scores: FloatArray


class Calibration(NamedTuple):
    """What a threshold does to data that it was fitted on.

    threshold (float): The highest that keeps enough whole spans.
    span_recall, keep_ratio (float): Share of spans, and of tokens, that it keeps.
    """

    threshold: float
    span_recall: float
    keep_ratio: float


class TokenPruner(StoredPipe):
    """Keep the tokens that spans are likely to be found in.

    Writes `doc.spans[kept_key]`: unlabelled runs that do not touch each other, with the best token
    score of each run in `attrs["scores"]`. Untrained it keeps everything.
    """

    def __init__(
        self,
        vocab: Vocab,
        model: Model[list[Doc], Floats2d],
        policy: TokenPolicy | RecallTarget,
        name: str = "token_pruner",
        *,
        kept_key: str = "kept_tokens",
        spans_keys: Sequence[str] = ("sc",),
        context: int = 0,
        min_run: int = 1,
        always_keep: Sequence[str] = (),
        keep_sentence_starts: bool = False,
        positive_weight: float = 1.0,
    ) -> None:
        """
        vocab (Vocab): The shared vocabulary.
        model (Model): Scores tokens, see `spacy_spans.architectures.build_token_pruner_v1`.
        policy (TokenPolicy | RecallTarget): Chooses by these scores, see `spacy_spans.policies`.
        name (str): Name of the component, used for its loss.
        kept_key (str): Key of `doc.spans` to write to.
        spans_keys (Sequence[str]): Keys of `doc.spans` whose gold spans are to be kept; "doc.ents"
            for the entities that `ner` learns.
        context (int): Tokens kept on each side of what the policy chose. They are not learned:
            "inside of a span" is a better target than "near one" at the same share of tokens.
        min_run (int): Shorter runs of what the policy chose are dropped as noise.
        always_keep (Sequence[str]): Keys of `doc.spans` whose tokens always stay, such as a
            matcher's hits.
        keep_sentence_starts (bool): The first token of each sentence always stays.
        positive_weight (float): In training, what tokens inside of gold spans count; above 1 keeps
            more.
        RAISES (SettingsError): On settings out of range.
        """
        settings = {"context": context, "min_run": min_run}
        learned = {THRESHOLD: None, RECALL: None, TRAINED: True}
        super().__init__(vocab, model, name, settings, learned=learned)
        self.policy = policy
        self.kept_key = kept_key
        self.spans_keys = list(spans_keys)
        self.always_keep = list(always_keep)
        self.keep_sentence_starts = keep_sentence_starts
        self.positive_weight = positive_weight
        self._has_warned = False
        self._has_warned_of_missing = False
        if isinstance(spans_keys, str) or isinstance(always_keep, str):
            raise SettingsError(
                f"Got spans_keys = {spans_keys!r}, always_keep = {always_keep!r}. Expected lists "
                "of keys."
            )
        self.check_settings()

    @property
    def key(self) -> str:
        """The key that is written."""
        return self.kept_key

    @property
    def score_prefix(self) -> str:
        """What the names of its scores begin with."""
        return f"{self.kept_key}_"

    def check_settings(self) -> None:
        """Raise SettingsError on settings out of range."""
        context, min_run = self.cfg["context"], self.cfg["min_run"]
        if context < 0 or min_run < 1 or self.positive_weight <= 0:
            raise SettingsError(
                f"Got context = {context}, min_run = {min_run}, positive_weight = "
                f"{self.positive_weight}. Expected at least 0, at least 1, above 0."
            )
        if not self.spans_keys and self.learns:
            raise SettingsError("Got spans_keys = []. Expected at least one key to learn from.")
        for key in (self.kept_key, *self.spans_keys, *self.always_keep):
            check_spans_key(key)
        if self.kept_key in {*self.spans_keys, *self.always_keep}:
            raise SettingsError(
                f"Got kept_key = {self.kept_key!r}, which is among spans_keys or always_keep. "
                "Expected a key that nothing else is in: its groups are replaced."
            )

    def _check_stored(self, stored: dict[str, Any]) -> None:
        for key in (THRESHOLD, RECALL):
            value = stored.get(key)
            if value is not None and not (isinstance(value, (int, float)) and 0 <= value <= 1):
                raise ValueError(f"its {key} is {value!r}, expected 0 to 1, or null")

    # Prediction

    def predict(self, docs: Iterable[Doc]) -> list[Kept]:
        """Choose tokens, without writing them. RETURNS (list): One entry per document."""
        docs = list(docs)
        self.check_settings()
        self._warn_of_missing(docs)
        reason = self._keeps_everything
        if reason and any(len(doc) for doc in docs) and not self._has_warned:
            self._has_warned = True
            warnings.warn(SpansWarning(f"{self.name} keeps every token: {reason}"), stacklevel=2)
        scores = self.score_tokens(docs)
        return [self._choose(doc, own) for doc, own in zip(docs, scores, strict=True)]

    def score_tokens(self, docs: Sequence[Doc]) -> list[FloatArray]:
        """How likely each token is to be in a span; 1 without weights. Shape (n_tokens,) each."""
        lengths = [len(doc) for doc in docs]
        if not sum(lengths) or not self._has_weights:
            # Encoders stumble over batches without any token.
            return [np.ones(length, dtype="f") for length in lengths]
        check_upstream(self.model, docs, self.name)
        logits = self.model.predict(docs)
        self.check_finite(logits)
        scores = self._ops.to_numpy(sigmoid(logits))[:, 0]
        return [own.copy() for own in np.split(scores, np.cumsum(lengths)[:-1])]

    def set_annotations(self, docs: Iterable[Doc], kept: Sequence[Kept]) -> None:
        """Write what `predict` chose to `doc.spans`, empty groups included."""
        for doc, own in zip(docs, kept, strict=True):
            unlabelled = np.zeros(len(own.runs), dtype="i")
            write_group(doc, self.kept_key, SpanArrays(own.runs, unlabelled, own.scores), [""])

    def _choose(self, doc: Doc, scores: FloatArray) -> Kept:
        if self._keeps_everything:
            mask = np.ones(len(doc), dtype=bool)
        else:
            mask = drop_short_runs(self._apply_policy(scores), self.cfg["min_run"])
        mask = widen(mask | self._always_kept(doc), self.cfg["context"])
        runs = mask_to_runs(mask)
        best = [scores[start:end].max() for start, end in runs.tolist()]
        return Kept(runs, np.asarray(best, dtype="f"))

    def _apply_policy(self, scores: FloatArray) -> BoolArray:
        if isinstance(self.policy, RecallTarget):
            return keep_above(scores, self.cfg[THRESHOLD])
        return self.policy(scores)

    def _always_kept(self, doc: Doc) -> BoolArray:
        mask = np.zeros(len(doc), dtype=bool)
        for key in self.always_keep:
            if key in doc.spans:
                mask |= runs_to_mask(read_offsets(doc, key), len(doc))
        if self.keep_sentence_starts and len(doc):
            if not doc.has_annotation("SENT_START"):
                raise SpansError(
                    f"{self.name!r} is to keep sentence starts, but the document has no sentence "
                    "boundaries. Add e.g. `sentencizer` earlier in the pipeline (for training also "
                    "to [training] annotating_components), or set keep_sentence_starts = false."
                )
            mask |= doc.to_array("SENT_START") == 1
            # Some components, such as `senter`, may say no of it.
            mask[0] = True
        return mask

    def _warn_of_missing(self, docs: Sequence[Doc]) -> None:
        """Warn once of a key that always stays and that no document of a batch has: it may be
        misspelt.
        """
        missing = [key for key in self.always_keep if not any(key in doc.spans for doc in docs)]
        if missing and any(len(doc) for doc in docs) and not self._has_warned_of_missing:
            self._has_warned_of_missing = True
            message = (
                f"{self.name}: none of the {len(docs)} documents of a batch has doc.spans "
                f"{missing}, of always_keep (keys that are there: {describe_keys(docs)}). "
                "Put the component that writes them earlier in the pipeline, for training also "
                "into [training] annotating_components."
            )
            warnings.warn(SpansWarning(message), stacklevel=2)

    @property
    def _keeps_everything(self) -> str:
        """Why nothing can be dropped yet; "" if something can."""
        if not self._is_trained:
            return "it is not trained yet. Train it, or load it."
        if isinstance(self.policy, RecallTarget) and self.cfg[RECALL] != self.policy.recall:
            return (
                f"no threshold has been fitted for recall = {self.policy.recall}. Run `spacy spans "
                "calibrate-pruner` on the trained pipeline and data that it was not trained on."
            )
        return ""

    # Training

    @property
    def fitted_by(self) -> str:
        """See `StoredPipe.fitted_by`."""
        return "" if self.cfg[THRESHOLD] is None else "spacy spans calibrate-pruner"

    def require_initialized(self) -> None:
        """Raise SpansError while there are no weights."""
        if not self._has_weights:
            raise SpansError(
                f"The component {self.name!r} has no weights yet. Load it, or call "
                "nlp.initialize() with examples first."
            )

    def begin_loss(
        self, examples: list[Example], docs: list[Doc]
    ) -> tuple[float, Callable[[], Any]]:
        """See `StoredPipe.begin_loss`."""
        logits, backprop = self.model.begin_update(docs)
        loss, gradient = self.get_loss(examples, logits)
        self.cfg[TRAINED] |= any(map(self._is_annotated, examples))
        return loss, partial(backprop, gradient)

    def get_loss(self, examples: Iterable[Example], scores: Floats2d) -> tuple[float, Floats2d]:
        """Cross-entropy of each token's logit with being in a gold span, per token of annotated
        documents. Those with none of the keys count nothing.

        scores (Floats2d): Logits of the predicted documents' tokens. Shape (n_tokens, 1).
        RETURNS (Tuple[float, Floats2d]): Loss, and gradient of the shape of the logits.
        """
        examples = list(examples)
        validate_examples(examples, "TokenPruner.get_loss")
        masks = [self._is_gold(example) for example in examples]
        targets = self._ops.asarray(np.concatenate([np.zeros(0, bool), *masks]).reshape(-1, 1))
        loss, gradient = sigmoid_loss(scores, targets.astype("f"))
        known = np.asarray([self._is_annotated(example) for example in examples], dtype="f")
        known = np.repeat(known, np.asarray([len(mask) for mask in masks], dtype="i"))
        others = self._ops.asarray(known.reshape(-1, 1))
        weights = self._ops.xp.where(targets, self.positive_weight, others).astype("f")
        n_tokens = max(1.0, float(known.sum()))
        return float((loss * weights).sum()) / n_tokens, gradient * weights / n_tokens

    def _is_annotated(self, example: Example) -> bool:
        return is_annotated(example, self.spans_keys)

    def _is_gold(self, example: Example) -> BoolArray:
        return runs_to_mask(gold_ranges(example, self.spans_keys), len(example.predicted))

    # Initialisation

    def initialize(
        self, get_examples: Callable[[], Iterable[Example]], *, nlp: Language | None = None
    ) -> None:
        """Set the model's sizes, and start its scores at the share of tokens in gold spans.

        get_examples (Callable): Returns the training examples.
        nlp (Language): The pipeline.
        RAISES (SpansError): When no document has any of the spans keys.
        """
        validate_get_examples(get_examples, "TokenPruner.initialize")
        if self.learns:
            annotated = self._check_gold(list(get_examples()))
            sample = [example.predicted for example in islice(get_examples(), N_SAMPLE_DOCS)]
            self.model.initialize(X=sample)
            counts = count_kept(annotated, self.kept_key, self.spans_keys)
            # Weighted as the loss is, so that this is where training would lead.
            n_positive = counts.n_gold * self.positive_weight
            bias = rarity_bias(n_positive, counts.n_tokens - counts.n_gold + n_positive)
            layer_shim(self.model.get_ref("scorer")).module.set_bias(bias)
        self.cfg.update({THRESHOLD: None, RECALL: None, TRAINED: not self.learns})
        follow_key_in_score_weights(self, nlp, SCORE_WEIGHTS)
        self.warn_of_shared_key(nlp)

    def _check_gold(self, examples: Sequence[Example]) -> list[Example]:
        """Those with any of the keys; warns of others."""
        annotated = [example for example in examples if self._is_annotated(example)]
        if not annotated:
            raise SpansError(no_spans_message(examples, self.spans_keys, self.name, "spans_keys"))
        if len(annotated) < len(examples):
            message = (
                f"{self.name}: {len(examples) - len(annotated)} of {len(examples)} training "
                f"documents have none of doc.spans {self.spans_keys}; nothing is learned from "
                "them. Those that are annotated and have no span need an empty group."
            )
            warnings.warn(SpansWarning(message), stacklevel=3)
        return annotated

    def calibrate(self, examples: Iterable[Example]) -> Calibration:
        """Fit the threshold of the policy `recall_target`, and use it from now on.

        examples (Iterable[Example]): As of `trade_off`.
        RETURNS (Calibration): What it does to these examples.
        RAISES (SettingsError): For another policy.
        """
        if not isinstance(self.policy, RecallTarget):
            raise SettingsError(
                f"The policy of {self.name!r} needs no threshold from data. Set @misc = "
                '"spacy-spans.recall_target_policy.v1" and recall in its [policy] block.'
            )
        (fitted,) = self.trade_off(examples, [self.policy.recall])
        self.cfg.update({THRESHOLD: fitted.threshold, RECALL: self.policy.recall})
        return fitted

    def trade_off(self, examples: Iterable[Example], recalls: Sequence[float]) -> list[Calibration]:
        """What it takes to keep so many gold spans whole, with `context` and what always stays.

        examples (Iterable[Example]): Data that the component was not trained on. What runs before
            it in the pipeline has processed the predicted documents.
        recalls (Sequence[float]): Shares of spans.
        RETURNS (list): One entry for each recall.
        RAISES (SpansError): Without gold spans, before training, or with min_run above 1, where a
            lower threshold may keep less.
        """
        examples = list(examples)
        if not self._is_trained:
            raise SpansError(
                f"No threshold can be fitted for {self.name!r}: it is not trained yet. Train it "
                "first."
            )
        if self.cfg["min_run"] > 1:
            raise SpansError(
                f"No threshold can be fitted for {self.name!r} with min_run = "
                f"{self.cfg['min_run']}: a lower threshold may then keep less. Set min_run = 1."
            )
        lowest, widened = [], [np.zeros(0, dtype="f")]
        for example in examples:
            doc = example.predicted
            (scores,) = self.score_tokens([doc])
            always = self._always_kept(doc)
            own = widen_scores(np.where(always, CERTAIN, scores), self.cfg["context"])
            widened.append(own)
            for start, end in gold_ranges(example, self.spans_keys).tolist():
                lowest.append(own[start:end].min())
        if not lowest:
            raise SpansError(no_spans_message(examples, self.spans_keys, self.name, "spans_keys"))
        of_spans, of_tokens = np.asarray(lowest, dtype="f"), np.concatenate(widened)
        thresholds = [round_down(fit_threshold(of_spans, recall)) for recall in recalls]
        return [
            Calibration(
                value, float((of_spans >= value).mean()), float((of_tokens >= value).mean())
            )
            for value in thresholds
        ]

    # Scoring

    def score(self, examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
        """Score what was kept, against the gold spans it is to keep.

        RETURNS (Dict[str, Any]): See `score_kept`.
        """
        examples = list(examples)
        validate_examples(examples, "TokenPruner.score")
        return score_kept(examples, self.kept_key, self.spans_keys)

    # Helpers

    @property
    def learns(self) -> bool:
        return self.model.has_ref("scorer") is True

    @property
    def _is_trained(self) -> bool:
        return self._has_weights and bool(self.cfg[TRAINED])

    @property
    def _has_weights(self) -> bool:
        return not self.learns or layer_shim(self.model.get_ref("scorer")).module is not None
