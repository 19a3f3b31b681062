"""From what the model says to spans and mentions, for a whole batch at once.

Tokens of a batch are counted end to end. Nothing here knows spaCy or the model.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spacy_spans.kernels.chains import (
    DoubleArray,
    infer,
    make_chain,
    span_log_probabilities,
    viterbi,
)
from spacy_spans.kernels.fragments import linked_sets, pair_fragments
from spacy_spans.kernels.losses import sigmoid
from spacy_spans.kernels.schemes import (
    TagTable,
    decode_boundaries,
    decode_chain,
)
from spacy_spans.pipeline.tag_layout import FRAGMENT_TABLE, TagLayout
from spacy_spans.pipeline.tagging import MAX_FRAGMENT_LENGTH, Batch
from spacy_spans.types import FloatArray, IntArray, Integers, LongArray, SpanArrays

# From this probability on a start or an end is there.
EVEN = 0.5
# From this one on a link. The threshold that is best for F1 is half the best F1 there is to reach
# (Lipton et al. 2014, https://arxiv.org/abs/1402.1892), and of mentions in pieces that is little.
LINKED = 0.2
# The second of O, B and I.
FRAGMENT_BEGINS = 1
# From this probability on a span is tried as a fragment, and no more of a document than so many:
# before training all are alike, and pairs of all would take gigabytes.
FRAGMENT_PROBABILITY = 0.002
MIN_FRAGMENTS, FRAGMENTS_PER_TOKEN = 16, 0.25
# Tag scores that one chain holds; it takes some ten times as many numbers to work on them.
SCORES_PER_CHAIN = 1 << 20


class Found(NamedTuple):
    """Fragments that were found, in a batch or in a document; most are mentions of their own.

    mentions (ndarray): Mention of each fragment. Shape (n,), int32.
    """

    spans: SpanArrays
    mentions: IntArray


def nothing_found() -> Found:
    """No fragments."""
    none = np.zeros(0, "i")
    return Found(SpanArrays(np.zeros((0, 2), "i"), none, np.zeros(0, "f")), none)


def decode(
    layout: TagLayout, rows: FloatArray, edges: FloatArray, batch: Batch
) -> tuple[LongArray, IntArray, DoubleArray]:
    """Find the spans of the best tags.

    rows, edges (ndarray): What the model says, see `TagLayout`.
    RETURNS (tuple): Offsets in tokens of the batch (n, 2), label indices (n,) and probabilities
        (n,): with a chain those of `span_log_probabilities`, with boundaries that of a start
        there, an end there and none before.
    """
    scores = layout.scores(rows)
    if layout.table is None:
        spans, layers, values = _decode_boundaries(scores, batch)
        return spans, layers, values
    spans, layers, within, values = _decode_chain(layout.table, scores, layout.edges(edges), batch)
    return spans, layout.label_at(layers, within).astype("i"), values


def find_fragments(
    layout: TagLayout, rows: FloatArray, edges: FloatArray, batch: Batch
) -> LongArray:
    """Find what may be fragments of discontinuous mentions, rather too many than too few: links
    decide, and learn from the same proposals.

    Not the spans of the best path: fragments are so rare that it seldom has one, and where it has,
    only one way to cut it.

    RETURNS (ndarray): Offsets in tokens of the batch, in order; they may overlap. Shape (n, 2).
    """
    scores, edges = layout.fragment_scores(rows), layout.fragment_edges(edges)
    chain = make_chain(FRAGMENT_TABLE, scores, edges, batch.is_first)
    posterior = infer(chain)
    # No span is likelier than that one starts there.
    tags = posterior.forward * posterior.backward
    starts = tags[:, 0, FRAGMENT_BEGINS] / tags.sum(axis=(1, 2))
    at = np.flatnonzero(starts >= FRAGMENT_PROBABILITY)
    ends = at[:, None] + np.arange(1, MAX_FRAGMENT_LENGTH + 1)
    spans = np.stack(np.broadcast_arrays(at[:, None], ends), axis=-1).reshape(-1, 2)
    doc_ends = (batch.starts + batch.lengths)[batch.doc_of[spans[:, 0]]]
    spans = spans[spans[:, 1] <= doc_ends]
    none = np.zeros(len(spans), dtype="i")
    values = span_log_probabilities(FRAGMENT_TABLE, chain, posterior, spans, none, none)
    docs = batch.doc_of[spans[:, 0]]
    best = np.lexsort([-values, docs])
    ranks = np.arange(len(best)) - np.searchsorted(docs[best], docs[best])
    kept = np.zeros(len(spans), dtype=bool)
    kept[best] = (values[best] >= np.log(FRAGMENT_PROBABILITY)) & (
        ranks < MIN_FRAGMENTS + FRAGMENTS_PER_TOKEN * batch.lengths[docs[best]]
    )
    return spans[kept]


def list_pairs(fragments: LongArray, batch: Batch, max_gap: int) -> LongArray:
    """Rows of fragments that may belong to one mention. Shape (n_pairs, 2)."""
    texts = batch.text_of[batch.doc_of[fragments[:, 0]]]
    return pair_fragments(fragments, texts, max_gap)


def link_offsets(fragments: LongArray, pairs: LongArray) -> LongArray:
    """Offsets of the earlier and of the later fragment. Shape (n_pairs, 4)."""
    return fragments[pairs].reshape(-1, 4)


def join_links(
    pairs: LongArray, probabilities: npt.NDArray[Any]
) -> list[tuple[int, list[int], float]]:
    """Put mentions together from links.

    pairs (ndarray): Rows of fragments. Shape (n_pairs, 2).
    probabilities (ndarray): Of each label for each pair. Shape (n_pairs, n_labels).
    RETURNS (list): Label, rows of fragments, and score: the probability of the least likely link.
    """
    found = []
    for label in range(probabilities.shape[1]):
        linked = probabilities[:, label] >= LINKED
        own = (map(tuple, pairs[linked].tolist()), probabilities[linked, label].tolist())
        value_of = dict(zip(*own, strict=True))
        for members in linked_sets(pairs[linked]):
            value = min(value_of[pair] for pair in combinations(members, 2))
            found.append((label, members, value))
    return found


def append_mentions(
    spans: LongArray,
    labels: Integers,
    values: DoubleArray,
    fragments: LongArray,
    joined: Sequence[tuple[int, list[int], float]],
) -> tuple[LongArray, npt.NDArray[Any], DoubleArray, npt.NDArray[Any]]:
    """Spans, which are mentions of their own, and after them the fragments of joined mentions.

    joined (Sequence): As of `join_links`.
    RETURNS (tuple): Offsets, labels, scores, and mentions counted from 0, of every fragment.
    """
    sizes = [len(members) for _, members, _ in joined]
    rows = np.asarray([row for _, members, _ in joined for row in members], dtype=np.int64)
    numbers = np.repeat(np.arange(len(spans), len(spans) + len(joined)), sizes)
    more_labels = np.repeat(np.asarray([label for label, *_ in joined], dtype="i"), sizes)
    more_values = np.repeat(np.asarray([value for *_, value in joined], dtype=float), sizes)
    return (
        np.concatenate([spans, fragments[rows]]),
        np.concatenate([labels, more_labels]),
        np.concatenate([values, more_values]),
        np.concatenate([np.arange(len(spans)), numbers]),
    )


def split_by_doc(found: Found, batch: Batch) -> list[Found]:
    """What was found in each document, with offsets of its own."""
    docs = batch.text_of[batch.doc_of[found.spans.offsets[:, 0]]]
    half_open = np.asarray([0, 1])
    tokens = batch.tokens[found.spans.offsets - half_open] + half_open
    offsets = (tokens - batch.text_starts[docs][:, None]).astype("i")
    order = np.argsort(docs, kind="stable")
    ends = np.cumsum(np.bincount(docs, minlength=len(batch.text_starts)))[:-1]
    columns = (offsets, found.spans.labels, found.spans.scores, found.mentions)
    parts = (np.split(column[order], ends) for column in columns)
    return [
        Found(SpanArrays(own, labels, scores), mentions)
        for own, labels, scores, mentions in zip(*parts, strict=True)
    ]


def _decode_chain(
    table: TagTable, scores: npt.NDArray[Any], edges: npt.NDArray[Any], batch: Batch
) -> tuple[LongArray, npt.NDArray[Any], IntArray, DoubleArray]:
    """Spans of the best path with their layers, labels within these, and probabilities."""
    spans, layers, within = _best_spans(table, scores, edges, batch)
    values = np.zeros(len(spans))
    # Most documents have no span in most layers, and then need no probabilities.
    for used in _layer_groups(np.unique(layers), scores):
        own = np.flatnonzero(np.isin(layers, used))
        is_needed = np.zeros(len(batch.lengths), dtype=bool)
        is_needed[batch.doc_of[spans[own, 0]]] = True
        tokens = np.flatnonzero(is_needed[batch.doc_of])
        chain = make_chain(table, scores[np.ix_(tokens, used)], edges[used], batch.is_first[tokens])
        where = np.searchsorted(tokens, spans[own, 0])
        where = np.stack([where, where + spans[own, 1] - spans[own, 0]], axis=1)
        at = np.searchsorted(used, layers[own])
        values[own] = span_log_probabilities(table, chain, infer(chain), where, at, within[own])
    return spans, layers, within, np.exp(np.minimum(values, 0.0))


def _best_spans(
    table: TagTable, scores: npt.NDArray[Any], edges: npt.NDArray[Any], batch: Batch
) -> tuple[LongArray, npt.NDArray[Any], IntArray]:
    """Spans of the best path with their layers, and labels within these."""
    n_tokens, n_layers = scores.shape[:2]
    tags = np.zeros((n_layers, n_tokens), dtype="i")
    for group in _layer_groups(np.arange(n_layers), scores):
        chain = make_chain(table, scores[:, group], edges[group], batch.is_first)
        tags[group] = viterbi(chain).T
    # Layers one after the other: each starts with the first token of a document.
    spans, within = decode_chain(table, tags.reshape(-1), np.tile(batch.is_first, n_layers))
    layers = spans[:, 0] // max(1, n_tokens)
    return spans - (layers * n_tokens)[:, None], layers, within


def _layer_groups(layers: npt.NDArray[Any], scores: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Layers, which are independent, in groups whose scores bound the memory of a chain."""
    size = max(1, SCORES_PER_CHAIN // max(1, len(scores) * scores.shape[2]))
    return [layers[start : start + size] for start in range(0, len(layers), size)]


def _decode_boundaries(
    scores: npt.NDArray[Any], batch: Batch
) -> tuple[LongArray, IntArray, DoubleArray]:
    n_tokens, n_layers = scores.shape[:2]
    logits = scores.swapaxes(0, 1).reshape(-1, 2).astype(np.float64)
    probabilities = sigmoid(logits)
    first = np.tile(batch.is_first, n_layers)
    spans = decode_boundaries(probabilities >= EVEN, first)
    # An end there, and none from the start up to there.
    no_end = -np.logaddexp(0.0, logits[:, 1])
    sums = np.append(0.0, np.cumsum(no_end))
    before = sums[spans[:, 1] - 1] - sums[spans[:, 0]]
    values = probabilities[spans[:, 0], 0] * probabilities[spans[:, 1] - 1, 1] * np.exp(before)
    layers = spans[:, 0] // max(1, n_tokens)
    return spans - (layers * n_tokens)[:, None], layers.astype("i"), values
