"""`multispan_tagger`: tag tokens, and turn tags into spans.

How a batch passes. The model turns documents into one row of tag scores per token. A layer per
label, or one that labels share, is decoded by constrained Viterbi over the transitions that the
scheme allows; every span of the best path gets its exact marginal probability as score. Cost and
memory grow with tokens, not with the length of spans. Where the data has discontinuous mentions, a
further layer finds their fragments, pairs of fragments are scored for each label, and maximal
cliques of linked fragments become mentions.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.util import minibatch
from spacy.vocab import Vocab
from thinc.api import Model

from spacy_spans.alignment import GoldMentions, gold_mentions
from spacy_spans.errors import DataError, SpansWarning
from spacy_spans.groups import write_group
from spacy_spans.kept import KeptRuns
from spacy_spans.kernels.losses import log_share, rarity_bias, sigmoid
from spacy_spans.kernels.schemes import TagScheme
from spacy_spans.pipeline.span_settings import check_tagger_settings
from spacy_spans.pipeline.spans_pipe import SpansPipe
from spacy_spans.pipeline.stored_pipe import (
    N_SAMPLE_DOCS,
    check_upstream,
    follow_key_in_score_weights,
    warn_of_unencoded,
)
from spacy_spans.pipeline.tag_decoding import (
    Found,
    append_mentions,
    decode,
    find_fragments,
    join_links,
    link_offsets,
    list_pairs,
    nothing_found,
    split_by_doc,
)
from spacy_spans.pipeline.tag_layout import FRAGMENT_TABLE, TagLayout, choose_layout
from spacy_spans.pipeline.tag_loss import link_loss, tag_loss
from spacy_spans.pipeline.tag_report import TagReport
from spacy_spans.pipeline.tagging import Batch, Targets, encode, make_batch
from spacy_spans.torch_layer import keeping_gradients, layer_shim
from spacy_spans.types import FloatArray, SpanArrays

SCORE_WEIGHTS: dict[str, float | None] = {"f": 1.0, "p": 0.0, "r": 0.0, "partial_f": 0.0}
# In cfg: what `layers` and `discontinuous` came to.
SHARED, LINKS = "shared", "links"
LAYERS_SHARED = {"shared": True, "per_label": False}
# Documents whose gold is encoded at once before training.
DOCS_AT_ONCE = 64
# Pairs of fragments scored at once: bounds what the linker holds.
PAIRS_PER_BLOCK = 1 << 16


class MultispanTagger(SpansPipe):
    """Find spans by tagging tokens: many, long, touching, overlapping and discontinuous ones.

    Writes `doc.spans[spans_key]` with `attrs["scores"]`, one probability per span; fragments of one
    mention share a `Span.id`, see `spacy_spans.fragments`.
    """

    def __init__(
        self,
        vocab: Vocab,
        model: Model,
        scheme: TagScheme,
        name: str = "multispan_tagger",
        *,
        spans_key: str = "sc",
        kept_key: str = "kept_tokens",
        within_kept: bool = False,
        layers: str = "auto",
        discontinuous: bool | str = "auto",
        max_gap: int = 32,
        loss: str = "crf",
        outside_weight: float = 1.0,
        alignment_mode: str = "expand",
        threshold: float = 0.0,
        label_thresholds: dict[str, float] | None = None,
        min_length: int = 1,
        max_length: int | None = None,
        scorer: Callable | None = None,
    ) -> None:
        """
        vocab (Vocab): The shared vocabulary.
        model (Model): The model, see `spacy_spans.architectures.build_multispan_tagger_v1`.
        scheme (TagScheme): How spans are tagged, see `spacy_spans.schemes`.
        name (str): Name of the component, used for its loss.
        spans_key (str): Key of `doc.spans` to learn from and to write to.
        kept_key (str): Key of `doc.spans` with the runs of tokens that a pruner kept.
        within_kept (bool): Tag only tokens of kept runs, where there are runs: no span starts, ends
            or goes on outside of one.
        layers (str): "per_label": a layer of tags for each label, so that spans of different
            labels overlap freely. "shared": one layer, where labels exclude each other. "auto":
            shared if no two spans of different labels overlap in the training data and the layer
            needs at most 16 tags, since a step costs their number cubed.
        discontinuous (bool | str): Whether to learn mentions of several fragments as such. "auto":
            if there are any in the training data.
        max_gap (int): Most tokens between any two fragments of one mention; with `within_kept`
            those that are not kept do not count.
        loss (str): "crf": the log-likelihood of whole tag sequences, with learned transitions.
            "token": cross-entropy of each tag, transitions only legal or not.
        outside_weight (float): What tokens outside of spans count against those inside: below 1
            finds more spans where they are rare. Scores are no shares of the data then.
        alignment_mode (str): For gold ends inside of a predicted token. "strict": not learned.
            "contract": to the tokens within. "expand": with the whole tokens.
        threshold (float): Lowest probability of a span that is written. Long spans with fuzzy
            edges share their probability with near misses, hence 0: all of the best path.
        label_thresholds (Optional[Dict[str, float]]): Thresholds of single labels.
        min_length, max_length (int): Tokens of a span that is written, all fragments together.
        scorer (Optional[Callable]): The scoring method.
        RAISES (SettingsError): On settings out of range.
        """
        settings = {
            "spans_key": spans_key,
            "threshold": threshold,
            "label_thresholds": dict(label_thresholds or {}),
            "min_length": min_length,
            "max_length": max_length,
        }
        super().__init__(vocab, model, name, settings)
        self.scheme = scheme
        self._kept = KeptRuns(kept_key, "all their tokens are tagged") if within_kept else None
        self.layers = layers
        self.discontinuous = discontinuous
        self.max_gap = max_gap
        self.loss = loss
        self.outside_weight = outside_weight
        self.alignment_mode = alignment_mode
        self.scorer = scorer
        self.check_settings()

    @property
    def layout(self) -> TagLayout:
        """Layers and columns for the labels as they are."""
        return TagLayout(
            self.scheme,
            len(self.labels),
            shared=bool(self.cfg.get(SHARED, False)),
            links=bool(self.cfg.get(LINKS, False)),
        )

    @property
    def n_classes(self) -> int:
        """Tag scores of one token."""
        return self.layout.n_scores

    def check_settings(self) -> None:
        """Raise SettingsError on settings out of range."""
        check_tagger_settings(
            self.cfg,
            scheme=self.scheme,
            layers=self.layers,
            discontinuous=self.discontinuous,
            max_gap=self.max_gap,
            loss=self.loss,
            outside_weight=self.outside_weight,
            alignment_mode=self.alignment_mode,
            kept_key=self._kept.key if self._kept is not None else None,
        )

    def set_output(self, nO: int) -> None:
        """Give the model outputs for a label that was just added; what is there is kept."""
        old = TagLayout(self.scheme, len(self.labels) - 1, self.cfg[SHARED], self.cfg[LINKS])
        self.model.attrs["resize_output"](self.model, old, self.layout)

    # Prediction

    def predict(self, docs: Iterable[Doc]) -> list[Found]:
        """Find spans in documents, without writing them.

        RETURNS (List[Found]): One entry per document, empty ones included.
        RAISES (SpansError): Before `initialize`, if any document has tokens; and SettingsError on
            settings out of range.
        """
        # They may have been changed since the component was made.
        self.check_settings()
        docs = list(docs)
        if not any(len(doc) for doc in docs):
            # Encoders stumble over batches without any token.
            return [nothing_found() for _ in docs]
        self.require_initialized()
        check_upstream(self.model, docs, self.name)
        batch = self._batch(docs)
        if not len(batch.tokens):
            return [nothing_found() for _ in docs]
        rows, edges = self.model.get_ref("tokens").predict(docs)
        self.check_finite(rows)
        self.check_finite(edges)
        if self._kept is not None:
            rows = rows[self._ops.asarray(batch.tokens)]
        found = self._decode(rows, self._ops.to_numpy(edges), batch)
        return split_by_doc(found, batch)

    def _batch(self, docs: Sequence[Doc]) -> Batch:
        """Where the tokens to be tagged lie. Warns once if no document has kept runs."""
        lengths = [len(doc) for doc in docs]
        return make_batch(lengths, self._kept.mask(docs) if self._kept is not None else None)

    def set_annotations(self, docs: Iterable[Doc], found: Sequence[Found]) -> None:
        """Write what `predict` found to `doc.spans`, empty groups included."""
        for doc, own in zip(docs, found, strict=True):
            write_group(doc, self.key, own.spans, self.labels, own.mentions)

    def _decode(self, rows: Any, edges: FloatArray, batch: Batch) -> Found:
        """Mentions of the whole batch that pass the settings, offsets in tokens of the batch."""
        layout = self.layout
        scores = self._ops.to_numpy(rows[:, : layout.n_scores])
        offsets, labels, values = decode(layout, scores, edges, batch)
        fragments, joined = np.zeros((0, 2), dtype=np.int64), []
        if layout.links:
            fragments = find_fragments(layout, scores, edges, batch)
            pairs = list_pairs(fragments, batch, self.max_gap)
            likely = self._score_pairs(layout.link_features(rows), fragments, pairs)
            joined = join_links(pairs, likely)
        return self._within_limits(*append_mentions(offsets, labels, values, fragments, joined))

    def _score_pairs(self, features: Any, fragments: Any, pairs: Any) -> FloatArray:
        """Probability of each label for each pair of fragments. Shape (n_pairs, n_labels)."""
        links = self.model.get_ref("links")
        likely = [np.zeros((0, len(self.labels)), dtype="f")]
        for first in range(0, len(pairs), PAIRS_PER_BLOCK):
            offsets = link_offsets(fragments, pairs[first : first + PAIRS_PER_BLOCK])
            logits = links.predict((features, self._ops.asarray(offsets)))
            self.check_finite(logits)
            likely.append(self._ops.to_numpy(sigmoid(logits)))
        return np.concatenate(likely)

    def _within_limits(self, offsets: Any, labels: Any, values: Any, mentions: Any) -> Found:
        # As written: a threshold that is a score keeps the span that has it.
        values = self.calibrated(values.astype("f"))
        thresholds = np.asarray(self.thresholds())
        lengths = np.bincount(mentions, weights=offsets[:, 1] - offsets[:, 0])[mentions]
        kept = (values >= thresholds[labels]) & (lengths >= self.cfg["min_length"])
        if self.cfg["max_length"] is not None:
            kept &= lengths <= self.cfg["max_length"]
        spans = SpanArrays(offsets[kept], labels[kept].astype("i"), values[kept])
        return Found(spans, mentions[kept].astype("i"))

    # Training

    def begin_loss(
        self, examples: list[Example], docs: list[Doc]
    ) -> tuple[float, Callable[[], Any]]:
        """See `StoredPipe.begin_loss`."""
        rows_edges, backprop = self.model.get_ref("tokens").begin_update(docs)
        loss, gradients = self._loss(examples, *rows_edges)
        return loss, partial(backprop, gradients)

    def get_loss(
        self, examples: Iterable[Example], rows_edges: tuple[Any, Any]
    ) -> tuple[float, tuple[Any, Any]]:
        """Loss of tag scores per token of annotated documents, and its gradient.

        rows_edges (tuple): What the model returns for the predicted documents.
        RETURNS (tuple): Loss, and gradients of the shapes of both.
        """
        examples = list(examples)
        validate_examples(examples, "MultispanTagger.get_loss")
        with keeping_gradients(self.model.get_ref("links")):
            return self._loss(examples, *rows_edges)

    def _loss(
        self, examples: Sequence[Example], rows: Any, edges: Any
    ) -> tuple[float, tuple[Any, Any]]:
        # Other documents may be annotated for another component: they teach this one nothing.
        annotated = [eg for eg in examples if self.key in eg.reference.spans]
        mask = np.repeat(
            [self.key in eg.reference.spans for eg in examples],
            [len(eg.predicted) for eg in examples],
        ).astype(bool)
        layout = self.layout
        docs = [example.predicted for example in annotated]
        batch = self._batch(docs)
        own = self._ops.asarray(np.flatnonzero(mask)[batch.tokens])
        targets = encode(layout, [self._gold(eg) for eg in annotated], batch, self.max_gap)
        if self._kept is not None:
            lost = targets.outside
            self._kept.warn_of_lost(docs, self.name, self.key, int(lost.sum()), len(lost))
        own_rows = rows[own]
        scores = self._ops.to_numpy(own_rows[:, : layout.n_scores])
        edge_scores = self._ops.to_numpy(edges)
        loss, d_scores, d_edges = tag_loss(
            layout,
            scores,
            edge_scores,
            batch,
            targets,
            crf=self.loss == "crf",
            outside_weight=self.outside_weight,
        )
        d_own = self._ops.alloc2f(*own_rows.shape)
        n_tokens = max(1, int(mask.sum()))
        d_own[:, : layout.n_scores] = self._ops.asarray(d_scores / n_tokens, dtype="f")
        if layout.links:
            found = find_fragments(layout, scores, edge_scores, batch)
            links = self.model.get_ref("links")
            more, d_links = link_loss(
                layout, links, own_rows, batch, targets, found, self.max_gap, n_tokens
            )
            loss += more
            d_own[:, layout.n_scores :] = d_links / n_tokens
        d_rows = self._ops.alloc2f(*rows.shape)
        d_rows[own] = d_own
        return loss / n_tokens, (d_rows, self._ops.asarray(d_edges / n_tokens, dtype="f"))

    def _gold(self, example: Example) -> GoldMentions:
        return gold_mentions(example, self.key, self.label_ids, self.alignment_mode)

    # Initialisation

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Language | None = None,
        labels: list[str] | None = None,
    ) -> None:
        """Set labels, layers and model sizes from the training data, and report what is lost and
        what looks wrong there.

        get_examples (Callable): Returns the training examples.
        nlp (Language): The pipeline.
        labels (Optional[List[str]]): Labels, as stored by `spacy init labels`.
        RAISES (SpansError): When no document has the spans key, or no labels are found.
        """
        validate_get_examples(get_examples, "MultispanTagger.initialize")
        # Once: a corpus is read from disk and tokenized each time.
        examples = list(get_examples())
        self.set_labels(examples, labels)
        self.thresholds()
        self.set_layout(examples)
        layout = self.layout
        self.model.attrs["sizes"] = {
            "n_scores": layout.n_scores,
            "n_edges": layout.n_edges,
            "n_links": layout.n_links,
            "n_labels": layout.n_labels,
        }
        self.model.set_dim("nO", layout.n_scores, force=True)
        sample = [example.predicted for example in examples[:N_SAMPLE_DOCS]]
        self.model.initialize(X=sample)
        self._report_and_set_bias(examples)
        self.warn_of_oddities(examples, nlp)
        follow_key_in_score_weights(self, nlp, SCORE_WEIGHTS)
        self.warn_of_shared_key(nlp)
        warn_of_unencoded(self, nlp, self._kept.key if self._kept is not None else None)

    def set_layout(self, examples: Iterable[Example]) -> None:
        layout = choose_layout(
            map(self._gold, examples),
            self.scheme,
            len(self.labels),
            layers=self.layers,
            discontinuous=self.discontinuous,
            name=self.name,
        )
        self.cfg[SHARED], self.cfg[LINKS] = layout.shared, layout.links

    def new_report(self) -> TagReport:
        """Counts nothing yet; for labels and layers as they are."""
        return TagReport(
            self.labels,
            self.layout,
            max_gap=self.max_gap,
            min_length=self.cfg["min_length"],
            max_length=self.cfg["max_length"],
        )

    def count_gold(self, report: TagReport, examples: Iterable[Example]) -> Iterator[Targets]:
        """Count examples that nothing has been predicted for, and give what their tags are to be.

        A batch at a time: one by one takes several times as long. Those without the key are only
        counted.
        """
        for some in minibatch(examples, DOCS_AT_ONCE):
            annotated = [eg for eg in some if self.key in eg.reference.spans]
            gold = [self._gold(example) for example in annotated]
            batch = self._batch_before([example.predicted for example in annotated])
            targets = encode(report.layout, gold, batch, self.max_gap)
            report.add(some, self.key, gold, targets)
            yield targets

    def _report_and_set_bias(self, examples: Iterable[Example]) -> None:
        """Count what the scheme loses, warn once, and start the tags at their shares."""
        layout, report = self.layout, self.new_report()
        spans = np.zeros((layout.n_layers, layout.n_tags))
        fragments = np.zeros((1, FRAGMENT_TABLE.n_tags))
        for targets in self.count_gold(report, examples):
            spans += _count_tags(targets.tags, layout.n_tags)
            if layout.links:
                fragments += _count_tags(targets.fragment_tags, FRAGMENT_TABLE.n_tags)
        for message in report.messages(self.name, self.key):
            warnings.warn(SpansWarning(message), stacklevel=3)
        # Scores of tags compete: their exponentials are to be in proportion to the shares. Start
        # and end bits stand for themselves.
        bias = [log_share(count, report.n_tokens) for count in fragments.ravel()] * layout.links
        start = rarity_bias if layout.table is None else log_share
        bias += [start(count, report.n_tokens) for count in spans.ravel()]
        layer_shim(self.model.get_ref("projector")).module.set_bias(bias)

    def _batch_before(self, docs: Sequence[Doc]) -> Batch:
        """Of documents for which nothing may have been kept yet."""
        if self._kept is None or not any(self._kept.key in doc.spans for doc in docs):
            return make_batch([len(doc) for doc in docs])
        # What is lost is counted by label.
        self._kept.has_warned_of_lost = True
        return self._batch(docs)

    # Helpers

    def _check_weights(self) -> None:
        super()._check_weights()
        asked = {SHARED: LAYERS_SHARED.get(self.layers), LINKS: self.discontinuous}
        for key, value in asked.items():
            if isinstance(value, bool) and value != self.cfg.get(key):
                raise DataError(
                    f"{self.name!r} was trained with {key} = {self.cfg.get(key)}, but its settings "
                    f"say layers = {self.layers!r}, discontinuous = {self.discontinuous!r}. "
                    "Restore these, or train again."
                )
        sizes = layer_shim(self.model.get_ref("projector")).sizes
        # Two schemes may have equally many tags, but not sequence scores.
        if sizes is not None and sizes[1:3] != (self.layout.n_scores, self.layout.n_edges):
            raise DataError(
                f"The weights of {self.name!r} are those of another scheme than "
                f"{self.scheme.name!r}. Restore the scheme it was trained with, or train again."
            )

    @property
    def _has_weights(self) -> bool:
        return layer_shim(self.model.get_ref("projector")).module is not None


def _count_tags(tags: Any, n_tags: int) -> Any:
    """How many tokens have each tag, or each bit. Shape (n_layers, n_tags)."""
    if tags.ndim == 3:
        return tags.sum(axis=0)
    return (tags[..., None] == np.arange(n_tags)).sum(axis=0)
