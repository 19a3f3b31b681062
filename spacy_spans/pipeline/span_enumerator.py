"""`span_enumerator`: list candidate spans, score them for every label, decode.

How a batch passes. The model's token part turns documents into one row per token (`tokens`),
among it a start and an end score. The candidate function lists spans; learned candidates read
the two scores. The classifier then scores candidates block by
block: in prediction only what reaches the threshold leaves a block, in training each block is
sent back at once and leaves a gradient per token. Memory so grows with tokens and found spans, not
with candidates times labels; only the offsets of all candidates are held, in numpy.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Model
from thinc.types import Floats2d, Ragged

from spacy_spans.alignment import GoldSpans, gold_spans
from spacy_spans.candidates import HOST, split_offsets, to_ragged, write_boundary_scores
from spacy_spans.errors import DataError, SpansError, SpansWarning
from spacy_spans.groups import write_candidates, write_group
from spacy_spans.kernels.calibration import invert_score_map
from spacy_spans.kernels.decoding import select_best
from spacy_spans.kernels.enumeration import batch_offsets
from spacy_spans.kernels.losses import sigmoid, softmax
from spacy_spans.pipeline.candidate_scoring import backprop_blocks, find_likely
from spacy_spans.pipeline.listing import Listing
from spacy_spans.pipeline.reach import Reach
from spacy_spans.pipeline.span_loss import boundary_loss, candidate_loss
from spacy_spans.pipeline.span_settings import check_settings
from spacy_spans.pipeline.spans_pipe import SCORE_MAP, SpansPipe
from spacy_spans.pipeline.stored_pipe import (
    N_SAMPLE_DOCS,
    check_upstream,
    follow_key_in_score_weights,
    warn_of_unencoded,
)
from spacy_spans.torch_layer import layer_shim
from spacy_spans.types import CandidateFunction, FloatArray, IntArray, SpanArrays

SCORE_WEIGHTS: dict[str, float | None] = {"f": 1.0, "p": 0.0, "r": 0.0, "candidate_recall": 0.0}
# In cfg: whether start and end scores were trained.
BOUNDARIES = "boundaries"


class Prediction(NamedTuple):
    """What `predict` finds in a batch.

    spans (List[SpanArrays]): Decoded spans of each document.
    candidates (Optional[Ragged]): Listed candidates, kept only if they are to be written.
    boundary_scores (Optional[List[ndarray]]): Start and end scores of each document, kept only if
        the candidates are learned.
    """

    spans: list[SpanArrays]
    candidates: Ragged | None
    boundary_scores: list[FloatArray] | None


class SpanEnumerator(SpansPipe):
    """Label candidate spans of any length; nested and overlapping ones by default.

    Writes `doc.spans[spans_key]` with `attrs["scores"]`, one probability per span.
    """

    def __init__(
        self,
        vocab: Vocab,
        model: Model[tuple[list[Doc], Ragged], Floats2d],
        candidates: CandidateFunction,
        name: str = "span_enumerator",
        *,
        spans_key: str = "sc",
        candidates_key: str | None = None,
        kept_key: str = "kept_tokens",
        within_kept: bool = False,
        loss: str = "sigmoid",
        add_gold_candidates: bool = True,
        negative_ratio: float | None = None,
        boundary_smoothing: float = 0.0,
        threshold: float = 0.5,
        label_thresholds: dict[str, float] | None = None,
        overlap: str = "any",
        top_k: int | None = None,
        scorer: Callable | None = None,
    ) -> None:
        """
        vocab (Vocab): The shared vocabulary.
        model (Model): The model, see `spacy_spans.architectures.build_span_enumerator_v1`.
        candidates (CandidateFunction): Lists the spans to score.
        name (str): Name of the component, used for its loss.
        spans_key (str): Key of `doc.spans` to learn from and to write to.
        candidates_key (Optional[str]): Also write all candidates under this key, for inspection.
        kept_key (str): Key of `doc.spans` with the runs of tokens that a pruner kept.
        within_kept (bool): Score only candidates inside one kept run, where there are runs.
        loss (str): "sigmoid": each label for itself, a span can have several. "softmax": one
            label or none for each span.
        add_gold_candidates (bool): In training, score gold spans even if they are not listed.
        negative_ratio (Optional[float]): In training, score only so many random negatives for
            each positive, weighted up to stand for all; all of them by default.
        boundary_smoothing (float): Share of a gold span's target given to near misses.
        threshold (float): Lowest probability of a span that is written.
        label_thresholds (Optional[Dict[str, float]]): Thresholds of single labels.
        overlap (str): "any": keep all. "nested": best first, none that crosses a better one.
            "flat": the set without overlap with the highest sum of scores.
        top_k (Optional[int]): Keep at most so many spans per document, the best.
        scorer (Optional[Callable]): The scoring method.
        RAISES (SettingsError): On settings out of range.
        """
        settings = {
            "spans_key": spans_key,
            "threshold": threshold,
            "label_thresholds": dict(label_thresholds or {}),
            "overlap": overlap,
            "top_k": top_k,
        }
        super().__init__(vocab, model, name, settings)
        self.listing = Listing(candidates, kept_key if within_kept else None)
        self.scorer = scorer
        self.candidates_key = candidates_key
        self.loss = loss
        self.add_gold_candidates = add_gold_candidates
        self.negative_ratio = negative_ratio
        self.boundary_smoothing = boundary_smoothing
        self.check_settings()

    @property
    def n_classes(self) -> int:
        """One for each label; with "softmax" one more, the first, for no label."""
        return len(self.labels) + (self.loss == "softmax")

    def check_settings(self) -> None:
        """Raise SettingsError on settings out of range."""
        check_settings(
            self.cfg,
            loss=self.loss,
            negative_ratio=self.negative_ratio,
            boundary_smoothing=self.boundary_smoothing,
            read={self.listing.kept_key, self.listing.read_key},
            candidates_key=self.candidates_key,
        )

    # Prediction

    def predict(self, docs: Iterable[Doc]) -> Prediction:
        """Find spans in documents, without writing them.

        RETURNS (Prediction): One entry per document, empty ones included.
        RAISES (SpansError): Before `initialize`, if any document has tokens; and SettingsError on
            settings out of range.
        """
        docs = list(docs)
        # They may have been changed since the component was made.
        self.check_settings()
        tokens, boundary_scores = self._predict_tokens(docs)
        candidates = self.listing(docs, boundary_scores)
        offsets, counts = candidates.dataXd, candidates.lengths
        rows, labels, scores = self._above_threshold(tokens, candidates, [len(doc) for doc in docs])
        ends = np.searchsorted(rows, np.cumsum(counts))
        columns = (np.split(column, ends)[:-1] for column in (offsets[rows], labels, scores))
        spans = [self._decode(SpanArrays(*own)) for own in zip(*columns, strict=True)]
        return Prediction(spans, candidates if self.candidates_key else None, boundary_scores)

    def set_annotations(self, docs: Iterable[Doc], prediction: Prediction) -> None:
        """Write what `predict` found to `doc.spans`, empty groups included."""
        docs = list(docs)
        for doc, spans in zip(docs, prediction.spans, strict=True):
            write_group(doc, self.key, spans, self.labels)
        if prediction.boundary_scores is not None:
            for doc, scores in zip(docs, prediction.boundary_scores, strict=True):
                write_boundary_scores(doc, self.key, scores)
        if prediction.candidates is not None and self.candidates_key is not None:
            self._write_candidates(docs, prediction.candidates, self.candidates_key)

    def set_candidates(self, docs: Iterable[Doc], *, candidates_key: str = "candidates") -> None:
        """Write all candidates to `doc.spans[candidates_key]`, for debugging."""
        docs = list(docs)
        scores = self._predict_tokens(docs)[1] if self.listing.is_learned else None
        self._write_candidates(docs, self.listing(docs, scores), candidates_key)

    def _predict_tokens(self, docs: Sequence[Doc]) -> tuple[Any, list[FloatArray] | None]:
        """One row for each token of the batch, and, where they are learned, boundary scores."""
        if any(len(doc) for doc in docs):
            self.require_initialized()
            check_upstream(self.model, docs, self.name)
            tokens = self.model.get_ref("tokens").predict(docs)
            self.check_finite(tokens)
        else:
            # Encoders stumble over batches without any token.
            tokens = self._ops.alloc2f(0, 2)
        return tokens, self._split_boundary_scores(docs, tokens)

    def _split_boundary_scores(
        self, docs: Sequence[Doc], tokens: Floats2d
    ) -> list[FloatArray] | None:
        if not self.listing.is_learned:
            return None
        ends = np.cumsum([len(doc) for doc in docs], dtype="i")
        scores = self._ops.to_numpy(tokens[:, -2:])
        return [part.copy() for part in np.split(scores, ends)[:-1]]

    def _above_threshold(
        self, tokens: Floats2d, candidates: Any, doc_lengths: Sequence[int]
    ) -> tuple[Any, Any, Any]:
        """Row, label and score of what is likely enough."""
        thresholds = np.asarray(self.thresholds(), dtype="f")
        # The score map is applied only to what can reach a threshold after it.
        lowest = invert_score_map(self.cfg[SCORE_MAP], thresholds)
        classifier = self.model.get_ref("classifier")
        rows, labels, scores = find_likely(
            classifier, tokens, candidates, doc_lengths, lowest, self._probabilities
        )
        probabilities = self.calibrated(scores)
        kept = probabilities >= thresholds[labels]
        return rows[kept], labels[kept], probabilities[kept]

    def _probabilities(self, logits: Floats2d) -> Floats2d:
        """Of each label; with softmax 0 for all but the best, so that a span has one label."""
        self.check_finite(logits)
        if self.loss == "sigmoid":
            return sigmoid(logits)
        scores = softmax(logits)[:, 1:]
        best = scores.argmax(axis=1).reshape(-1, 1) == self._ops.xp.arange(scores.shape[1])
        return scores * best

    def _decode(self, spans: SpanArrays) -> SpanArrays:
        """Apply the overlap policy, then the limit per document."""
        policy, top_k = self.cfg["overlap"], self.cfg["top_k"]
        rows: Any = select_best(spans.offsets, spans.scores, policy, top_k)
        return SpanArrays(*(column[rows] for column in spans))

    # Training

    def begin_loss(
        self, examples: list[Example], docs: list[Doc]
    ) -> tuple[float, Callable[[], Any]]:
        """See `StoredPipe.begin_loss`. The classifier learns here, block by block."""
        tokens, backprop = self.model.get_ref("tokens").begin_update(docs)
        gold = [self._gold(example) for example in examples]
        boundary_scores = self._split_boundary_scores(docs, tokens)
        # Other documents may be annotated for another component: they teach this one nothing.
        annotated = [self.key in example.reference.spans for example in examples]
        reachable = self.listing.kept_gold(gold, docs, self.name, self.key)
        candidates, weights = self.listing.in_training(
            docs,
            [own.offsets for own in gold],
            boundary_scores,
            annotated,
            add_gold=self.add_gold_candidates,
            negative_ratio=self.negative_ratio,
        )
        doc_lengths = [len(doc) for doc in docs]

        def loss_of(rows: slice, offsets: IntArray, logits: Floats2d) -> tuple[float, Floats2d]:
            own = weights[rows] if weights is not None else None
            return self._loss(gold, doc_lengths, annotated, offsets, logits, own)

        classifier = self.model.get_ref("classifier")
        loss, d_tokens = backprop_blocks(classifier, tokens, candidates, doc_lengths, loss_of)
        if boundary_scores is not None:
            extra_loss, d_scores = self._boundary_loss(docs, reachable, annotated, tokens)
            loss += extra_loss
            d_tokens[:, -2:] += d_scores
        return loss, partial(backprop, d_tokens)

    def _boundary_loss(
        self,
        docs: Sequence[Doc],
        gold: Sequence[IntArray],
        annotated: Sequence[bool],
        tokens: Floats2d,
    ) -> tuple[float, Floats2d]:
        """Loss of start and end scores, of kept tokens of annotated documents only, and its
        gradient. Shape (n_tokens, 2).
        """
        own = [row for row, is_annotated in enumerate(annotated) if is_annotated]
        in_own = np.flatnonzero(np.repeat(annotated, [len(doc) for doc in docs]))
        mask = self.listing.kept_tokens([docs[row] for row in own])
        kept = None if mask is None else np.flatnonzero(mask)
        rows = self._ops.asarray(in_own if kept is None else in_own[kept])
        gradient = self._ops.alloc2f(len(tokens), 2)
        loss, gradient[rows] = boundary_loss(
            [gold[row] for row in own],
            [len(docs[row]) for row in own],
            tokens[rows, -2:],
            ops=self._ops,
            kept=kept,
        )
        return loss, gradient

    def get_loss(
        self, examples: Iterable[Example], candidates_logits: tuple[Ragged, Floats2d]
    ) -> tuple[float, Floats2d]:
        """Loss of logits for candidates, per token of annotated documents, and its gradient.

        candidates_logits (tuple): Candidates of each document, and logits of shape
            (n_candidates, n_classes), as the model returns them.
        RETURNS (Tuple[float, Floats2d]): Loss, and gradient of the shape of the logits.
        """
        examples = list(examples)
        validate_examples(examples, "SpanEnumerator.get_loss")
        candidates, logits = candidates_logits
        gold = [self._gold(example) for example in examples]
        doc_lengths = [len(example.predicted) for example in examples]
        listed: Any = to_ragged(split_offsets(candidates), HOST)
        offsets = batch_offsets(listed.dataXd, listed.lengths, doc_lengths)
        annotated = [self.key in example.reference.spans for example in examples]
        weights = np.repeat(np.asarray(annotated, dtype="f"), listed.lengths)
        return self._loss(gold, doc_lengths, annotated, offsets, logits, weights)

    def _gold(self, example: Example) -> GoldSpans:
        return gold_spans(example, self.key, self.label_ids)

    def _loss(
        self,
        gold: Sequence[GoldSpans],
        doc_lengths: Sequence[int],
        annotated: Sequence[bool],
        offsets: IntArray,
        logits: Floats2d,
        weights: FloatArray | None,
    ) -> tuple[float, Floats2d]:
        return candidate_loss(
            gold,
            doc_lengths,
            offsets,
            logits,
            n_labels=len(self.labels),
            softmax=self.loss == "softmax",
            boundary_smoothing=self.boundary_smoothing,
            weights=weights,
            n_tokens=int(np.dot(doc_lengths, annotated)),
            ops=self._ops,
        )

    # Initialisation

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Language | None = None,
        labels: list[str] | None = None,
    ) -> None:
        """Set labels and model sizes from the training data, and report what it cannot learn and
        what looks wrong there.

        get_examples (Callable): Returns the training examples.
        nlp (Language): The pipeline.
        labels (Optional[List[str]]): Labels, as stored by `spacy init labels`.
        RAISES (SpansError): When no document has the spans key, or no labels are found.
        """
        validate_get_examples(get_examples, "SpanEnumerator.initialize")
        # Once: a corpus is read from disk and tokenized each time.
        examples = list(get_examples())
        self.set_labels(examples, labels)
        self.thresholds()
        sample = [example.predicted for example in examples[:N_SAMPLE_DOCS]]
        self.model.set_dim("nO", self.n_classes, force=True)
        self.model.initialize(X=(sample, to_ragged([], self._ops)))
        self._report_and_set_bias(examples)
        self.warn_of_oddities(examples, nlp)
        self.cfg[BOUNDARIES] = self.listing.is_learned
        follow_key_in_score_weights(self, nlp, SCORE_WEIGHTS)
        self.warn_of_shared_key(nlp)
        warn_of_unencoded(self, nlp, self.listing.kept_key)

    def _report_and_set_bias(self, examples: Iterable[Example]) -> None:
        """Count what the settings lose, warn once, and start the classifier at the positives'
        rarity.
        """
        reach = Reach(
            self.labels,
            softmax=self.loss == "softmax",
            overlap=self.cfg["overlap"],
            explain=self.listing.explain,
        )
        known = True
        for example in examples:
            if self.key not in example.reference.spans:
                reach.add_without_key()
                continue
            gold = self._gold(example)
            listed = None
            if known:
                try:
                    listed = self.listing.before_training(example.predicted)
                except (SpansError, ValueError, KeyError) as error:
                    known = False
                    reach.forget_candidates()
                    reach.add_note(
                        "which gold spans are candidates is not known before training, since the "
                        f"candidate function cannot list them yet ({error}). Watch "
                        f"spans_{self.key}_candidate_recall."
                    )
            reach.add(example, gold, listed, band=self.listing.band)
        for message in reach.messages(self.name, self.key):
            warnings.warn(SpansWarning(message), stacklevel=3)
        bias = reach.rarity_bias()
        if self.loss == "softmax":
            bias = [0.0, *bias]
        layer_shim(self.model.get_ref("classifier")).module.set_bias(bias)

    def _check_weights(self) -> None:
        super()._check_weights()
        if self.listing.is_learned and not self.cfg.get(BOUNDARIES):
            raise DataError(
                f"The candidates of {self.name!r} come from start and end scores, which it never "
                "learned, having been trained with other candidates. Restore these, or train again."
            )

    # Scoring

    def score(self, examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
        """Score predicted spans, and the candidates that they were chosen from.

        RETURNS (Dict[str, Any]): What the scorer returns, and `spans_{key}_candidate_recall`: the
            share of gold spans that were candidates, None without gold.
        """
        examples = list(examples)
        scores = super().score(examples, **kwargs)
        if self.scorer is not None:
            scores[f"spans_{self.key}_candidate_recall"] = self._candidate_recall(examples)
        return scores

    def _candidate_recall(self, examples: Sequence[Example]) -> float | None:
        # A label that was never learned is a miss of the model, not of the candidates.
        reach = Reach(["any"])
        for example in examples:
            group = example.reference.spans.get(self.key, ())
            gold = gold_spans(example, self.key, {span.label_: 0 for span in group})
            reach.add(example, gold, self.listing.of_predicted(example.predicted, self.key))
        return reach.recall()

    # Helpers

    @property
    def _has_weights(self) -> bool:
        return layer_shim(self.model.get_ref("classifier")).module is not None

    def _write_candidates(self, docs: Sequence[Doc], candidates: Ragged, key: str) -> None:
        for doc, own in zip(docs, split_offsets(candidates), strict=True):
            write_candidates(doc, key, own)
