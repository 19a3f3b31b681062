"""Between gold mentions, tags, and found spans, for a whole batch at once.

Tokens of a batch are counted end to end. Nothing here knows spaCy or the model.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spacy_spans.alignment import GoldMentions
from spacy_spans.kernels.chains import (
    DoubleArray,
    infer,
    make_chain,
    span_log_probabilities,
    viterbi,
)
from spacy_spans.kernels.decoding import select_flat
from spacy_spans.kernels.fragments import linked_sets, pair_fragments
from spacy_spans.kernels.losses import sigmoid
from spacy_spans.kernels.schemes import (
    BoolArray,
    TagTable,
    decode_boundaries,
    decode_chain,
    encode_boundaries,
    encode_chain,
    expressible,
    lay_out,
)
from spacy_spans.kernels.targets import find_spans
from spacy_spans.pipeline.tag_layout import FRAGMENT_TABLE, TagLayout
from spacy_spans.types import FloatArray, IntArray, Integers, LongArray

# From this probability on a start or an end is there.
EVEN = 0.5
# From this one on a link. The threshold that is best for F1 is half the best F1 there is to reach
# (Lipton et al. 2014, https://arxiv.org/abs/1402.1892), and of mentions in pieces that is little.
LINKED = 0.2
# The second of O, B and I.
FRAGMENT_BEGINS = 1
# From this probability on a span is tried as a fragment, up to this length, and no more of a
# document than it has tokens: before training all are alike.
FRAGMENT_PROBABILITY = 0.002
MAX_FRAGMENT_LENGTH = 8
# Tag scores that one chain holds; it takes some ten times as many numbers to work on them.
SCORES_PER_CHAIN = 1 << 20


class Batch(NamedTuple):
    """Where the documents of a batch lie. With kept tokens, each run of these is a document of its
    own here, so that no span reaches out of it; only links join fragments of one text.

    lengths (ndarray): Tokens per document. Shape (n_docs,).
    doc_of (ndarray): Document of each token. Shape (n_tokens,).
    is_first (ndarray): Whether a document starts at a token. Shape (n_tokens,).
    text_of (ndarray): Text of each document. Shape (n_docs,).
    text_starts (ndarray): First token of each text, tokens that are not kept included. (n_texts,)
    tokens (ndarray): Number of each token among those of all texts. Shape (n_tokens,).
    """

    lengths: LongArray
    doc_of: LongArray
    is_first: BoolArray
    text_of: LongArray
    text_starts: LongArray
    tokens: LongArray

    @property
    def starts(self) -> LongArray:
        """First token of each document. Shape (n_docs,)."""
        return np.cumsum(self.lengths) - self.lengths

    def place(self, offsets: IntArray, texts: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Find spans of texts in documents.

        offsets (ndarray): Shape (n, 2). texts (ndarray): Shape (n,).
        RETURNS (tuple): Offsets within a document (n, 2), document (n,), and whether one holds all
            of the span (n,); otherwise the first two mean nothing.
        """
        ends = offsets + self.text_starts[texts][:, None] - [0, 1]
        at = np.searchsorted(self.tokens, ends)
        docs = np.append(self.doc_of, -1)[at]
        inside = (np.append(self.tokens, -1)[at] == ends).all(axis=1) & (docs[:, 0] == docs[:, 1])
        placed = at - np.append(self.starts, 0)[docs[:, :1]] + [0, 1]
        return placed.astype("i"), docs[:, 0].astype("i"), inside


def make_batch(doc_lengths: Sequence[int], kept: BoolArray | None = None) -> Batch:
    """kept (ndarray): Which of all tokens there are; None for every one. Shape (n_tokens,)."""
    lengths = np.asarray(doc_lengths, dtype=np.int64)
    doc_of = np.repeat(np.arange(len(lengths)), lengths)
    text_starts = np.cumsum(lengths) - lengths
    text_of = np.arange(len(lengths))
    tokens = np.arange(len(doc_of)) if kept is None else np.flatnonzero(kept)
    is_first = np.ones(len(tokens), dtype=bool)
    is_first[1:] = (doc_of[tokens][1:] != doc_of[tokens][:-1]) | (np.diff(tokens) > 1)
    if kept is not None:
        text_of = doc_of[tokens[is_first]]
        doc_of = np.cumsum(is_first) - 1
        lengths = np.bincount(doc_of, minlength=len(text_of))
    return Batch(lengths, doc_of, is_first, text_of, text_starts, tokens)


class Targets(NamedTuple):
    """What the model is to say.

    tags (ndarray): Tag of each token in each span layer, shape (n_tokens, n_layers); for the
        `boundary` scheme start and end bits, shape (n_tokens, n_layers, 2).
    fragment_tags (ndarray): Tags of the fragment layer. Shape (n_tokens, 1).
    fragments (ndarray): Fragments of discontinuous mentions, each once, in tokens of the batch.
        Shape (n, 2), in order.
    links (ndarray): Rows of two linked fragments, and the label. Shape (n_links, 3).
    expressed (ndarray): Which mentions these tags and links express. Shape (n_mentions,).
    outside (ndarray): Which mentions are not inside of what was kept. Shape (n_mentions,).
    """

    tags: npt.NDArray[Any]
    fragment_tags: IntArray
    fragments: LongArray
    links: LongArray
    expressed: BoolArray
    outside: BoolArray


def encode(layout: TagLayout, gold: Sequence[GoldMentions], batch: Batch, max_gap: int) -> Targets:
    """Turn the gold of a batch into targets.

    gold (Sequence[GoldMentions]): One for each text.
    max_gap (int): Most tokens between two fragments of one mention; kept ones are counted.
    """
    offsets, labels, mentions, texts = _join(gold)
    sizes = np.bincount(mentions)
    offsets, own_docs, inside = batch.place(offsets, texts)
    outside = np.isin(np.arange(len(sizes)), mentions[~inside])
    learned = ~outside[mentions]
    offsets, own_docs = offsets[learned], own_docs[learned]
    labels, mentions = labels[learned], mentions[learned]
    expressed = np.zeros(len(sizes), dtype=bool)
    is_span = sizes[mentions] == 1
    if not layout.links:
        # Fragments are learned as spans of their own; the mention is lost. A whole mention goes
        # before fragments like it.
        order = np.argsort(sizes[mentions], kind="stable")
        columns = np.column_stack([own_docs, labels, offsets])
        _, first = np.unique(columns[order], axis=0, return_index=True)
        is_span = np.isin(np.arange(len(offsets)), order[first])
    rows = np.flatnonzero(is_span)
    tags, kept = _encode_spans(layout, offsets[rows], labels[rows], own_docs[rows], batch)
    expressed[mentions[rows[kept]]] = True
    expressed &= sizes == 1
    fragments, links = np.zeros((0, 2), np.int64), np.zeros((0, 3), np.int64)
    fragment_tags = np.zeros((len(batch.doc_of), 1), "i")
    if layout.links and not is_span.all():
        rows = np.flatnonzero(~is_span)
        parts = offsets[rows] + batch.starts[own_docs[rows]][:, None]
        fragments, links, whole = _encode_links(parts, labels[rows], mentions[rows], max_gap)
        expressed[whole] = True
        docs = batch.doc_of[fragments[:, 0]]
        where = lay_out(fragments - batch.starts[docs][:, None], 0 * docs, docs, batch.lengths)
        fragment_tags = _encode_positions(FRAGMENT_TABLE, where, 0 * docs, 1, batch)
    return Targets(tags, fragment_tags, fragments, links, expressed, outside)


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
        ranks < batch.lengths[docs[best]]
    )
    return spans[kept]


def list_pairs(fragments: LongArray, batch: Batch, max_gap: int) -> LongArray:
    """Rows of fragments that may belong to one mention. Shape (n_pairs, 2)."""
    texts = batch.text_of[batch.doc_of[fragments[:, 0]]]
    return pair_fragments(fragments, texts, max_gap)


def link_targets(pairs: LongArray, links: LongArray, n_labels: int) -> FloatArray:
    """1 for each pair and label that are linked. Shape (n_pairs, n_labels)."""
    targets = np.zeros((len(pairs), n_labels), dtype="f")
    at = find_spans(links[:, :2], pairs)
    targets[at[at >= 0], links[at >= 0, 2]] = 1
    return targets


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


def _join(gold: Sequence[GoldMentions]) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Offsets, labels, mentions counted over the batch, and document of each fragment."""
    counts = [int(own.mentions.max(initial=-1)) + 1 for own in gold]
    shifts = np.cumsum(counts) - counts
    docs = np.repeat(np.arange(len(gold)), [len(own.offsets) for own in gold])
    none = np.zeros(0, "i")
    offsets = np.concatenate([np.zeros((0, 2), "i"), *(own.offsets for own in gold)])
    labels = np.concatenate([none, *(own.labels for own in gold)])
    shifted = (own.mentions + shift for own, shift in zip(gold, shifts, strict=True))
    mentions = np.concatenate([none, *shifted]).astype("i")
    return offsets, labels, mentions, docs.astype("i")


def _encode_spans(
    layout: TagLayout, offsets: IntArray, labels: IntArray, docs: IntArray, batch: Batch
) -> tuple[npt.NDArray[Any], BoolArray]:
    """Tags of the span layers, and which spans they express."""
    where = lay_out(offsets, layout.layer_of(labels), docs, batch.lengths)
    within = layout.label_within(labels)
    kept = expressible(layout.scheme, where, within)
    if layout.table is None:
        positions = _n_positions(layout.n_layers, batch)
        bits = encode_boundaries(where[kept], positions)
        return _tokens_of(bits, layout.n_layers, batch), kept
    tags = _encode_positions(layout.table, where[kept], within[kept], layout.n_layers, batch)
    return tags, kept


def _encode_positions(
    table: TagTable, where: LongArray, within: Integers, n_layers: int, batch: Batch
) -> IntArray:
    tags = encode_chain(table, where, within, _n_positions(n_layers, batch))
    return _tokens_of(tags, n_layers, batch)


def _n_positions(n_layers: int, batch: Batch) -> int:
    return n_layers * int((batch.lengths + 1).sum())


def _tokens_of(values: Any, n_layers: int, batch: Batch) -> Any:
    """From positions as of `lay_out` to (n_tokens, n_layers, ...)."""
    tokens = np.arange(len(batch.doc_of)) + batch.doc_of
    by_layer = values.reshape(n_layers, -1, *values.shape[1:])
    return np.ascontiguousarray(by_layer[:, tokens].swapaxes(0, 1))


def _encode_links(
    parts: LongArray, labels: IntArray, mentions: IntArray, max_gap: int
) -> tuple[LongArray, LongArray, list[int]]:
    """Fragments, links between them, and the mentions that these give back.

    parts (ndarray): Fragments of discontinuous mentions in tokens of the batch. Shape (n, 2).
    """
    fragments, row_of, uses = np.unique(parts, axis=0, return_inverse=True, return_counts=True)
    row_of = row_of.reshape(-1)
    # One layer holds fragments that share no token: as many uses of them as possible.
    is_kept = np.zeros(len(fragments), dtype=bool)
    is_kept[select_flat(fragments, uses.astype("f"))] = True
    label_of: dict[int, int] = dict(zip(mentions.tolist(), labels.tolist(), strict=True))
    members: dict[int, list[int]] = {}
    for mention, row in zip(mentions.tolist(), row_of.tolist(), strict=True):
        members.setdefault(mention, []).append(row)
    usable = {
        mention: sorted(rows)
        for mention, rows in members.items()
        if is_kept[rows].all() and fragments[max(rows), 0] - fragments[min(rows), 1] <= max_gap
    }
    triples, kept = _consistent_links(usable, label_of)
    used = np.unique(triples[:, :2])
    triples[:, :2] = np.searchsorted(used, triples[:, :2])
    return fragments[used], triples, kept


def _consistent_links(
    mentions: dict[int, list[int]], label_of: dict[int, int]
) -> tuple[LongArray, list[int]]:
    """Links of as many of the mentions as give back themselves and nothing else.

    Links of three mentions a-b, b-c and a-c would make one mention a-b-c: then one of them goes.

    mentions (dict): Rows of the fragments of each.
    RETURNS (tuple): Pairs of rows and their label, shape (n, 3), and the mentions that stay.
    """
    triples = [np.zeros((0, 3), dtype=np.int64)]
    kept: list[int] = []
    for group in _sharing_fragments(mentions, label_of):
        links, own = _consistent_group({m: mentions[m] for m in group}, label_of)
        triples.append(links)
        kept += own
    return np.concatenate(triples), kept


def _sharing_fragments(mentions: dict[int, list[int]], label_of: dict[int, int]) -> list[list[int]]:
    """Mentions of one label that fragments connect: only these can be in each other's way."""
    group_of: dict[tuple[int, int], list[int]] = {}
    for mention, rows in mentions.items():
        joined = [mention]
        keys = [(label_of[mention], row) for row in rows]
        for group in {id(group_of[key]): group_of[key] for key in keys if key in group_of}.values():
            joined += group
        for other in joined:
            group_of.update(((label_of[other], row), joined) for row in mentions[other])
    return list({id(group): sorted(group) for group in group_of.values()}.values())


def _consistent_group(
    mentions: dict[int, list[int]], label_of: dict[int, int]
) -> tuple[LongArray, list[int]]:
    kept = dict(mentions)
    while True:
        links = {
            (one, other, label_of[mention])
            for mention, rows in kept.items()
            for i, one in enumerate(rows)
            for other in rows[i + 1 :]
        }
        triples = np.asarray(sorted(links), dtype=np.int64).reshape(-1, 3)
        found = {
            (label, *rows)
            for label in {*triples[:, 2].tolist()}
            for rows in linked_sets(triples[triples[:, 2] == label, :2])
        }
        wanted = {(label_of[mention], *rows): mention for mention, rows in kept.items()}
        made_up = [{*rows[1:]} for rows in found if rows not in wanted]
        inside_others = [mention for rows, mention in wanted.items() if rows not in found]
        if made_up:
            # The last mention with a link in a set that is none.
            linked = (m for m, rows in kept.items() if any(len(s & {*rows}) > 1 for s in made_up))
            del kept[max(linked)]
        elif inside_others:
            for mention in inside_others:
                del kept[mention]
        else:
            return triples, list(kept)


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
