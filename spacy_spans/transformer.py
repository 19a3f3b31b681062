"""From documents to the rows of word pieces that an encoder runs on, and its output back."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from spacy.tokens import Doc, Span
from spacy_transformers.data_classes import TransformerData, WordpieceBatch
from spacy_transformers.layers.transformer_model import TransformerModel
from thinc.api import torch2xp
from thinc.types import Ragged
from transformers.file_utils import ModelOutput

from spacy_spans.errors import SettingsError, SpansWarning
from spacy_spans.pieces import Pieces, Rows, Windows, lay_out_rows, split_into_pieces
from spacy_spans.span_getters import PieceGetter
from spacy_spans.truncation import NO_LIMIT

# Positions that RoBERTa's table has for padding, not for pieces.
RESERVED_POSITIONS = 2


class Tokenized(NamedTuple):
    """A batch cut into rows of word pieces.

    spans (list): For each document what its rows cover; a row joins all between.
    wordpieces (WordpieceBatch): All rows, with special pieces, padded.
    rows (list): Rows of each document; None for one without tokens.
    windows (list): What was to be in these rows, of each document with tokens.
    n_before (int): Special pieces before the others.
    """

    spans: list[list[Span]]
    wordpieces: WordpieceBatch
    rows: list[Rows | None]
    windows: list[Windows]
    n_before: int

    @property
    def align(self) -> Ragged:
        """Pieces of each token of the batch, counted over all rows."""
        width = self.wordpieces.input_ids.shape[1]
        used = [own for own in self.rows if own is not None]
        n_rows = [len(own.lengths) for own in used]
        firsts = np.cumsum(n_rows) - n_rows
        data = [
            own.places_in(width, self.n_before) + first * width
            for own, first in zip(used, firsts, strict=True)
        ]
        return _ragged(np.concatenate(data), np.concatenate([own.counts for own in used]))


def tokenize(model: TransformerModel, docs: Sequence[Doc]) -> Tokenized:
    """Split documents into pieces, and these into rows.

    docs (Sequence[Doc]): At least one with tokens.
    """
    filled = [doc for doc in docs if len(doc)]
    limit = capacity(model)
    pieces = split_into_pieces(model.tokenizer, filled)
    windows = _windows(model.attrs["get_spans"], filled, pieces)
    used = [lay_out_rows(own, cut, limit) for own, cut in zip(pieces, windows, strict=True)]
    _report_split(model, sum(own.n_split for own in used), limit)
    n_before, wordpieces = make_batch(model.tokenizer, used)
    waiting = iter(used)
    rows = [next(waiting) if len(doc) else None for doc in docs]
    spans = [
        [doc[start:end] for start, end in own.spans] if own is not None else []
        for doc, own in zip(docs, rows, strict=True)
    ]
    return Tokenized(spans, wordpieces, rows, windows, n_before)


def split_by_doc(batch: Tokenized, output: ModelOutput) -> list[TransformerData]:
    """What each document gets of the output."""
    width = batch.wordpieces.input_ids.shape[1]
    arrays: dict[str, Any] = {}
    for key, value in output.items():
        several = isinstance(value, tuple)
        arrays[key] = [torch2xp(part) for part in value] if several else torch2xp(value)
    data = []
    start = 0
    for rows in batch.rows:
        if rows is None:
            data.append(TransformerData.empty())
            continue
        own = slice(start, start + len(rows.lengths))
        start = own.stop
        own_output = ModelOutput()
        for key, value in arrays.items():
            several = isinstance(value, list)
            own_output[key] = [part[own] for part in value] if several else value[own]
        align = _ragged(rows.places_in(width, batch.n_before), rows.counts)
        data.append(TransformerData(batch.wordpieces[own], own_output, align))
    return data


def capacity(model: TransformerModel) -> int:
    """Most pieces of a row, without special ones.

    RAISES (SettingsError): When windows are to be longer than the encoder takes.
    """
    limit = model.tokenizer.model_max_length
    if limit > NO_LIMIT:
        n_positions = getattr(model.transformer.config, "max_position_embeddings", NO_LIMIT)
        limit = n_positions - RESERVED_POSITIONS
    limit -= model.tokenizer.num_special_tokens_to_add()
    get_spans = model.attrs["get_spans"]
    if not isinstance(get_spans, PieceGetter):
        return int(limit)
    if get_spans.max_pieces > limit:
        raise SettingsError(
            f"Got max_pieces = {get_spans.max_pieces}, but the encoder {model.attrs['name']!r} "
            f"takes {limit} pieces beside its special ones. Set max_pieces to no more than that."
        )
    return get_spans.max_pieces


def make_batch(tokenizer: Any, rows: Sequence[Rows]) -> tuple[int, WordpieceBatch]:
    """Add special pieces to rows, and pad them to the longest.

    RETURNS (tuple): How many special pieces come before the others, and the batch.
    """
    probe = tokenizer("a", return_special_tokens_mask=True, verbose=False)
    special = np.asarray(probe["special_tokens_mask"], dtype=bool)
    n_before = int(np.argmin(special))
    n_after = int(np.argmin(special[::-1]))
    ids = np.asarray(probe["input_ids"])
    before, after = ids[:n_before], ids[len(ids) - n_after :]
    lengths = np.concatenate([own.lengths for own in rows])
    parts = np.split(np.concatenate([own.ids for own in rows]), np.cumsum(lengths)[:-1])
    totals = lengths + n_before + n_after
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    input_ids: Any = np.full((len(totals), int(totals.max())), padding, dtype=np.int64)
    for row, part in zip(input_ids, parts, strict=True):
        filled = np.concatenate([before, part, after])
        row[: len(filled)] = filled
    mask: Any = np.arange(input_ids.shape[1]) < totals[:, None]
    has_types = "token_type_ids" in tokenizer.model_input_names
    return n_before, WordpieceBatch(
        strings=_strings(tokenizer, input_ids),
        input_ids=input_ids,
        attention_mask=mask.astype("f"),
        lengths=totals.tolist(),
        token_type_ids=np.zeros_like(input_ids) if has_types else None,
    )


def _strings(tokenizer: Any, ids: Any) -> list[list[str]]:
    """The string of each id, by one look-up for all: tokenizers need one for each piece."""
    table = getattr(tokenizer, "_spacy_spans_strings", None)
    # Pieces may have been added since.
    if table is None or int(ids.max()) >= len(table):
        table = np.asarray(tokenizer.convert_ids_to_tokens(range(len(tokenizer))), dtype=object)
        tokenizer._spacy_spans_strings = table
    strings: list[list[str]] = table[ids].tolist()
    return strings


def _windows(get_spans: Callable, docs: Sequence[Doc], pieces: Sequence[Pieces]) -> list[Windows]:
    if isinstance(get_spans, PieceGetter):
        return get_spans.cut(docs, [own.counts for own in pieces])
    windows = []
    for spans in get_spans(docs):
        ranges = [(span.start, span.end) for span in spans if len(span)]
        array = np.asarray(ranges, dtype="i").reshape(-1, 2)
        windows.append(Windows(array, np.arange(len(array), dtype="i")))
    return windows


def _report_split(model: Any, n_split: int, limit: int) -> None:
    if not n_split or getattr(model, "has_reported_split", False):
        return
    model.has_reported_split = True
    message = (
        f"{n_split} tokens of a batch have pieces in more than one window, since a window takes "
        f"{limit}: a long run of digits, or no token boundary for long. Their vectors are pooled "
        "from all of them. This is said once."
    )
    warnings.warn(SpansWarning(message), stacklevel=2)


def _ragged(data: Any, lengths: Any) -> Ragged:
    return Ragged(data.astype("i"), lengths.astype("i"))
