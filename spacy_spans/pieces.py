"""From documents to rows of word pieces, and from tokens to where their pieces are.

A document is split into pieces once, as a whole; rows are cut from these. So rows hold as many
pieces as was counted, a row can join parts of a document that are apart, and a token with more
pieces than a row has room for goes on in the next one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from spacy.attrs import IDX, LENGTH
from spacy.tokens import Doc

from spacy_spans.errors import SettingsError
from spacy_spans.kernels.windows import spread_ranges
from spacy_spans.types import IntArray, LongArray


class Pieces(NamedTuple):
    """The pieces of one document.

    ids (ndarray): Of each piece. Shape (n_pieces,), int64.
    firsts, ends (ndarray): Half-open range of the pieces of each token, which is empty for tokens
        of white space. Two tokens may share a piece. Shape (n_tokens,), int64.
    """

    ids: LongArray
    firsts: LongArray
    ends: LongArray

    @property
    def counts(self) -> LongArray:
        """Pieces that each token adds to a window, those between two tokens included. A window has
        at most the sum over its tokens. Shape (n_tokens,).
        """
        before = np.append(0, self.ends[:-1])
        return self.ends - np.minimum(self.firsts, before)


class Windows(NamedTuple):
    """What of one document is encoded.

    ranges (ndarray): Half-open token offsets, ascending; they may overlap. Shape (n, 2), int32.
    rows (ndarray): The row that each range is put into, counted from 0, ascending. Shape (n,).
    """

    ranges: IntArray
    rows: IntArray


class Rows(NamedTuple):
    """Rows of one document, one at least, and where its tokens are in them.

    lengths (ndarray): Pieces of each row, without special ones. Shape (n_rows,).
    ids (ndarray): Pieces, row after row. Shape (sum of lengths,).
    spans (list): First token and end of each row.
    counts (ndarray): Places of each token; 0 for tokens that are not encoded. Shape (n_tokens,).
    places (ndarray): Row and position of each place. Shape (sum of counts, 2).
    n_split (int): Tokens that go on in another row.
    """

    lengths: LongArray
    ids: LongArray
    spans: list[tuple[int, int]]
    counts: LongArray
    places: LongArray
    n_split: int

    def places_in(self, width: int, n_before: int) -> LongArray:
        """Places as they are counted in padded rows of `width`, behind `n_before` special pieces.
        Shape (sum of counts,).
        """
        where: LongArray = self.places[:, 0] * width + self.places[:, 1] + n_before
        return where


def split_into_pieces(tokenizer: Any, docs: Sequence[Doc]) -> list[Pieces]:
    """Split documents as a whole.

    tokenizer (PreTrainedTokenizerFast): Of the encoder.
    RAISES (SettingsError): For a tokenizer that does not say where its pieces come from.
    """
    if not tokenizer.is_fast:
        raise SettingsError(
            f"The tokenizer {type(tokenizer).__name__} does not say where its pieces come from. "
            'Set tokenizer_config = {"use_fast": true}, or choose an encoder that has a fast one.'
        )
    if not docs:
        return []
    encoded = tokenizer(
        [doc.text for doc in docs],
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        return_offsets_mapping=True,
        truncation=False,
        verbose=False,
    )
    found = []
    for doc, ids, offsets in zip(
        docs, encoded["input_ids"], encoded["offset_mapping"], strict=True
    ):
        where = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
        starts, ends = np.maximum.accumulate(where, axis=0).T
        tokens = doc.to_array([IDX, LENGTH]).astype(np.int64).reshape(-1, 2)
        firsts = np.searchsorted(ends, tokens[:, 0], side="right")
        past = np.searchsorted(starts, tokens.sum(axis=1), side="left")
        found.append(Pieces(np.asarray(ids, dtype=np.int64), firsts, np.maximum(firsts, past)))
    return found


def lay_out_rows(pieces: Pieces, windows: Windows, capacity: int) -> Rows:
    """Put windows into rows. A row that would have more pieces than `capacity` is cut up.

    capacity (int): Most pieces of a row; at least 1.
    RETURNS (Rows): One row without pieces where there is nothing to encode: encoders want one.
    """
    if len(windows.ranges) == 1:
        start, end = windows.ranges[0].tolist()
        if 0 < pieces.ends[end - 1] - pieces.firsts[start] <= capacity:
            return _one_row(pieces, start, end)
    ranges, lasts = windows.ranges.astype(np.int64), windows.ranges[:, 1] - 1
    firsts = pieces.firsts[ranges[:, 0]]
    sizes = np.maximum(pieces.ends[lasts] - firsts, 0)
    which = spread_ranges(firsts, sizes)
    rows = np.repeat(windows.rows, sizes).astype(np.int64)
    # Position in the row that was asked for, then in the one that there is room in.
    positions = np.arange(len(rows)) - np.searchsorted(rows, rows, side="left")
    parts = rows * (len(rows) + 1) + positions // capacity
    _, rows = np.unique(parts, return_inverse=True)
    rows, positions = rows.reshape(-1).astype(np.int64), positions % capacity
    lengths = np.bincount(rows, minlength=1)
    # Tokens of every range, with their pieces counted over all ranges.
    n_of = ranges[:, 1] - ranges[:, 0]
    tokens = spread_ranges(ranges[:, 0], n_of)
    shifts = np.repeat(np.cumsum(sizes) - sizes - firsts, n_of)
    n_pieces = pieces.ends[tokens] - pieces.firsts[tokens]
    order = np.argsort(tokens, kind="stable")
    places = spread_ranges((pieces.firsts[tokens] + shifts)[order], n_pieces[order])
    counts = np.bincount(tokens, weights=n_pieces, minlength=len(pieces.firsts))
    used = n_pieces > 0
    low = (pieces.firsts[tokens] + shifts)[used]
    n_split = int((rows[low] != rows[low + n_pieces[used] - 1]).sum())
    return Rows(
        lengths,
        pieces.ids[which],
        _spans_of(rows, np.repeat(np.arange(len(ranges)), sizes), ranges, len(lengths)),
        counts.astype(np.int64),
        np.stack([rows[places], positions[places]], axis=1),
        n_split,
    )


def _one_row(pieces: Pieces, start: int, end: int) -> Rows:
    """Sentences and other short documents: one window that has room for all."""
    first = pieces.firsts[start]
    sizes = pieces.ends[start:end] - pieces.firsts[start:end]
    counts = np.zeros(len(pieces.firsts), dtype=np.int64)
    counts[start:end] = sizes
    positions = spread_ranges(pieces.firsts[start:end] - first, sizes)
    ids = pieces.ids[first : pieces.ends[end - 1]]
    places = np.stack([np.zeros_like(positions), positions], axis=1)
    return Rows(np.asarray([len(ids)]), ids, [(start, end)], counts, places, 0)


def _spans_of(
    rows: LongArray, range_of: LongArray, ranges: LongArray, n_rows: int
) -> list[tuple[int, int]]:
    """From the first range of each row to its last."""
    if not len(rows):
        return [(0, 1)]
    first = range_of[np.searchsorted(rows, np.arange(n_rows), side="left")]
    last = range_of[np.searchsorted(rows, np.arange(n_rows), side="right") - 1]
    return list(zip(ranges[first, 0].tolist(), ranges[last, 1].tolist(), strict=True))
