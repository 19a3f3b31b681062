"""Tag schemes: spans of one layer to tags and back.

A layer gives each token one tag. A chain scheme (`io`, `bio`, `bioes`) is described by which of
its tags stand on the first, the inner, the last and the only token of a span; which tags may
follow each other, encoding and decoding all derive from that. The `boundary` scheme gives each
token two independent bits instead, "a span starts here" and "a span ends here".

All spans live on one axis of positions. `lay_out` puts documents and layers there one after the
other with a gap between them, so that spans never touch across.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from spacy_spans.kernels.decoding import select_flat
from spacy_spans.types import IntArray, Integers, LongArray

BoolArray: TypeAlias = npt.NDArray[np.bool_]
# The tag of tokens outside of all spans.
OUTSIDE = 0


@dataclass(frozen=True)
class ChainScheme:
    """A scheme whose tags form a chain.

    tags (Tuple[str]): Names of the tags of one label, without O.
    begin, inside, end (int): The tag of the first, the inner and the last token of a span of
        several tokens, as indices into `tags`.
    single (int): The tag of the only token of a span.
    loses (str): What it cannot express, for messages.
    """

    name: str
    tags: tuple[str, ...]
    begin: int
    inside: int
    end: int
    single: int
    loses: str


@dataclass(frozen=True)
class BoundaryScheme:
    """A start bit and an end bit for each token; each start takes the nearest end.

    Sharing an end is fine (two starts, one end). The multi-span decode of hierarchical boundary
    tagging (ETL-Span, https://arxiv.org/abs/1909.04273).
    """

    name: str
    tags: tuple[str, ...]
    loses: str


TagScheme: TypeAlias = ChainScheme | BoundaryScheme

IO = ChainScheme("io", ("I",), 0, 0, 0, 0, "spans of one label that touch or overlap")
BIO = ChainScheme("bio", ("B", "I"), 0, 1, 1, 0, "spans of one label that overlap")
BIOES = ChainScheme("bioes", ("B", "I", "E", "S"), 0, 1, 2, 3, "spans of one label that overlap")
BOUNDARY = BoundaryScheme(
    "boundary", ("START", "END"), "spans of one label that overlap and do not end together"
)


class TagTable(NamedTuple):
    """The tags of a layer: O, then those of its first label, of its second label and so on.

    n_labels (int): 1 for a layer of one label, more for a layer that labels share.
    continues (ndarray): Whether the second tag goes on with the span of the first. (n_tags, n_tags)
    legal (ndarray): Whether the second tag may follow the first. Shape (n_tags, n_tags).
    may_start, may_end (ndarray): Whether a document may start, and end, with it. Shape (n_tags,).
    """

    scheme: ChainScheme
    n_labels: int
    continues: BoolArray
    legal: BoolArray
    may_start: BoolArray
    may_end: BoolArray

    @property
    def n_tags(self) -> int:
        return len(self.legal)

    def tag(self, role: int, labels: Integers) -> Integers:
        """The tag for a role (an index into the scheme's tags) of each label."""
        return 1 + labels * len(self.scheme.tags) + role


@cache
def tag_table(scheme: ChainScheme, n_labels: int) -> TagTable:
    """Derive which tags may follow which; once for each scheme and number of labels.

    >>> tag_table(BIO, 1).legal.astype(int).tolist()  # rows: from O, B, I; columns: to O, B, I
    [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    """
    n_roles = len(scheme.tags)
    roles = np.concatenate([[-1], np.tile(np.arange(n_roles), n_labels)])
    labels = np.concatenate([[-1], np.repeat(np.arange(n_labels), n_roles)])
    outside = roles < 0
    goes_on = np.isin(roles, (scheme.begin, scheme.inside))
    follows = np.isin(roles, (scheme.inside, scheme.end))
    continues = goes_on[:, None] & follows & (labels[:, None] == labels)
    may_end = outside | np.isin(roles, (scheme.end, scheme.single))
    may_start = outside | np.isin(roles, (scheme.begin, scheme.single))
    legal = continues | (may_end[:, None] & may_start)
    return TagTable(scheme, n_labels, continues, legal, may_start, may_end)


def lay_out(
    offsets: Integers, layers: Integers, docs: Integers, doc_lengths: npt.ArrayLike
) -> LongArray:
    """Positions of spans on one axis, on which those of two documents or layers never touch.

    offsets (ndarray): Document-local. Shape (n, 2).
    layers, docs (ndarray): Layer and document of each span. Shape (n,).
    doc_lengths (ArrayLike): Tokens per document.
    RETURNS (ndarray): Shape (n, 2), int64.
    """
    lengths = np.asarray(doc_lengths, dtype=np.int64).reshape(-1)
    first = np.cumsum(lengths + 1) - (lengths + 1)
    shift = layers.astype(np.int64) * int((lengths + 1).sum()) + first[docs]
    return offsets.astype(np.int64) + shift[:, None]


def expressible(scheme: TagScheme, spans: LongArray, labels: Integers) -> BoolArray:
    """Choose the spans that are encoded: as many as possible of those that exclude each other.

    spans (ndarray): As from `lay_out`, without duplicates of one label. Shape (n, 2).
    labels (ndarray): Label of each within its layer. Shape (n,).
    RETURNS (ndarray): Mask. Encoding and decoding what it marks gives back exactly that.
    """
    if isinstance(scheme, BoundaryScheme):
        return _nearest_ends(spans)
    kept = np.zeros(len(spans), dtype=bool)
    # Where a span may go on with what another starts with, those of one label may not touch.
    flat = (
        not tag_table(scheme, 1)
        .continues[
            np.ix_([scheme.end + 1, scheme.single + 1], [scheme.begin + 1, scheme.single + 1])
        ]
        .any()
    )
    rows = select_flat(spans, np.ones(len(spans), dtype="f")) if flat else _apart(spans, labels)
    kept[rows] = True
    return kept


def _apart(spans: LongArray, labels: Integers) -> list[int]:
    """Choose as many spans as possible that share no token and, with one label, do not touch.

    The next one is always one that ends first. Where several do, all stay in view until it shows
    which of them leave room for the one after.
    """
    order = np.lexsort((spans[:, 0], spans[:, 1]))
    before: dict[int, int] = {}
    # By label, rows that can be the last one so far and end together, and those one place earlier.
    last: tuple[int, dict[int, int]] = (-1, {-1: -1})
    earlier: tuple[int, dict[int, int]] = (-1, {})
    for row in order.tolist():
        start, end = spans[row].tolist()
        label = int(labels[row])
        limit, choices = last if end > last[0] else earlier
        fits = (other for own, other in choices.items() if start > limit or own != label)
        found = next(fits, None) if start >= limit else None
        if found is None:
            continue
        if end > last[0]:
            earlier, last = last, (end, {})
        before[row] = found
        last[1][label] = row
    chosen = [next(iter(last[1].values()))]
    while chosen[-1] in before:
        chosen.append(before[chosen[-1]])
    return [row for row in chosen if row >= 0]


def _nearest_ends(spans: LongArray) -> BoolArray:
    """Spans can stand together if they share no token, or end together and start apart."""
    kept = np.zeros(len(spans), dtype=bool)
    if not len(spans):
        return kept
    _, first = np.unique(spans, axis=0, return_index=True)
    # Of spans that end together the innermost k are worth k, and take the room of the k-th.
    order = first[np.lexsort((-spans[first, 0], spans[first, 1]))]
    ends = spans[order, 1]
    is_innermost = np.append(True, ends[1:] != ends[:-1])
    positions = np.arange(len(order))
    worth = positions - np.maximum.accumulate(np.where(is_innermost, positions, 0)) + 1
    for row in select_flat(spans[order], worth.astype("f")).tolist():
        kept[order[row - worth[row] + 1 : row + 1]] = True
    return kept


def overlap_across(offsets: IntArray, labels: Integers) -> bool:
    """Whether two spans of different labels share a token.

    offsets (ndarray): Of one document. Shape (n, 2). labels (ndarray): Shape (n,).
    """
    order = np.lexsort((offsets[:, 1], offsets[:, 0]))
    starts, ends, labels = offsets[order, 0], offsets[order, 1], labels[order]
    for label in np.unique(labels):
        # How far spans of this label reach, among those that start no later.
        reach = np.maximum.accumulate(np.where(labels == label, ends, 0))
        others = labels != label
        if (starts[others] < reach[others]).any():
            return True
    return False


def encode_chain(table: TagTable, spans: LongArray, labels: Integers, n_positions: int) -> IntArray:
    """Tags of all positions.

    spans (ndarray): Such as `expressible` marks. Shape (n, 2).
    labels (ndarray): Label of each within the layer. Shape (n,).
    RETURNS (ndarray): Shape (n_positions,), int32.
    """
    scheme = table.scheme
    starts, ends = spans[:, 0], spans[:, 1]
    # Differences of the tag's number, which is constant inside a span.
    change = np.zeros(n_positions + 1, dtype="i")
    inner = table.tag(scheme.inside, labels)
    np.add.at(change, starts, inner)
    np.add.at(change, ends, -inner)
    tags = np.cumsum(change[:-1], dtype="i")
    tags[starts] = table.tag(scheme.begin, labels)
    tags[ends - 1] = table.tag(scheme.end, labels)
    single = ends - starts == 1
    tags[starts[single]] = table.tag(scheme.single, labels[single])
    return tags


def decode_chain(
    table: TagTable, tags: IntArray, is_first: BoolArray
) -> tuple[LongArray, IntArray]:
    """Spans of tags. A tag that continues nothing starts a span of its own.

    tags (ndarray): Shape (n_positions,).
    is_first (ndarray): Whether a document, or a layer, starts at a position. Shape (n_positions,).
    RETURNS (tuple): Spans (n, 2) in order, and their labels (n,).
    """
    goes_on = np.zeros(len(tags) + 1, dtype=bool)
    goes_on[1:-1] = table.continues[tags[:-1], tags[1:]] & ~is_first[1:]
    inside = tags != OUTSIDE
    starts = np.flatnonzero(inside & ~goes_on[:-1])
    ends = np.flatnonzero(inside & ~goes_on[1:]) + 1
    labels = (tags[starts] - 1) // len(table.scheme.tags)
    return np.stack([starts, ends], axis=1), labels.astype("i")


def encode_boundaries(spans: LongArray, n_positions: int) -> BoolArray:
    """Start and end bits of all positions; the end bit stands on a span's last token.

    spans (ndarray): Such as `expressible` marks. Shape (n, 2).
    RETURNS (ndarray): Shape (n_positions, 2).
    """
    bits = np.zeros((n_positions, 2), dtype=bool)
    bits[spans[:, 0], 0] = True
    bits[spans[:, 1] - 1, 1] = True
    return bits


def decode_boundaries(bits: BoolArray, is_first: BoolArray) -> LongArray:
    """Let each start take the nearest end, its own token included; a start without one has none.

    bits (ndarray): Start and end bits. Shape (n_positions, 2).
    is_first (ndarray): As for `decode_chain`.
    RETURNS (ndarray): Spans in order of their starts. Shape (n, 2).
    """
    starts = np.flatnonzero(bits[:, 0])
    lasts = np.flatnonzero(bits[:, 1])
    stops = np.append(np.flatnonzero(is_first), len(bits))
    stop = stops[np.searchsorted(stops, starts, side="right")]
    nearest = np.append(lasts, len(bits))[np.searchsorted(lasts, starts)]
    found = nearest < stop
    return np.stack([starts[found], nearest[found] + 1], axis=1)
