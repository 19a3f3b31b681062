"""From gold mentions to what the model is to say, for a whole batch. `tag_decoding` goes back.

Tokens of a batch are counted end to end. Nothing here knows spaCy or the model.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spacy_spans.alignment import GoldMentions
from spacy_spans.kernels.decoding import select_flat
from spacy_spans.kernels.fragments import linked_sets
from spacy_spans.kernels.schemes import (
    BoolArray,
    TagTable,
    encode_boundaries,
    encode_chain,
    expressible,
    lay_out,
)
from spacy_spans.kernels.targets import find_spans
from spacy_spans.pipeline.tag_layout import FRAGMENT_TABLE, TagLayout
from spacy_spans.types import FloatArray, IntArray, Integers, LongArray

# The longest fragment of a discontinuous mention that is looked for.
MAX_FRAGMENT_LENGTH = 8


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


def link_targets(pairs: LongArray, links: LongArray, n_labels: int) -> FloatArray:
    """1 for each pair and label that are linked. Shape (n_pairs, n_labels)."""
    targets = np.zeros((len(pairs), n_labels), dtype="f")
    at = find_spans(links[:, :2], pairs)
    targets[at[at >= 0], links[at >= 0, 2]] = 1
    return targets


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
    # Longer ones would never be proposed.
    (short,) = np.nonzero(fragments[:, 1] - fragments[:, 0] <= MAX_FRAGMENT_LENGTH)
    # One layer holds fragments that share no token: as many uses of them as possible.
    is_kept = np.zeros(len(fragments), dtype=bool)
    is_kept[short[select_flat(fragments[short], uses[short].astype("f"))]] = True
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
