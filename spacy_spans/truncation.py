"""Tokens that an encoder would never see: windows of more word pieces than it takes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from spacy.tokens import Doc, Span
from spacy.util import minibatch

from spacy_spans.pieces import Pieces, split_into_pieces
from spacy_spans.types import LongArray

# Tokenizers that know no limit say an astronomic one.
NO_LIMIT = 1_000_000
BATCH = 64
LOSES_NONE = (
    "The architecture spacy-spans.PrunedTransformerModel.v1 with spacy-spans.piece_windows.v1 "
    "loses none."
)


def piece_limit(tokenizer: Any) -> int | None:
    """Pieces of a window that are seen: what is too long is cut at its end, special pieces there
    included. None without a limit.
    """
    mask = tokenizer("a", return_special_tokens_mask=True, verbose=False)["special_tokens_mask"]
    limit: int = tokenizer.model_max_length - mask.index(0)
    return limit if limit < NO_LIMIT else None


def find_truncated(
    docs: Iterable[Doc], tokenizer: Any, get_spans: Callable
) -> Iterator[tuple[int, LongArray]]:
    """Documents of which an encoder does not see all tokens of its windows.

    tokenizer (PreTrainedTokenizerFast): Of the encoder.
    get_spans (Callable): What cuts windows.
    YIELDS (tuple): The number of such a document, in order, and its lost tokens, ascending.
    """
    limit = piece_limit(tokenizer)
    if limit is None:
        return
    # A piece has a byte at least, but for the few characters that normalization takes apart, and
    # the first may come with one for the space that is not there.
    long = (row for row in enumerate(docs) if len(row[1].text.encode()) >= limit)
    for batch in minibatch(long, BATCH):
        found = split_into_pieces(tokenizer, [doc for _, doc in batch])
        for (i, doc), pieces in zip(batch, found, strict=True):
            lost = find_lost(pieces, _windows(get_spans, doc), limit)
            if len(lost):
                yield i, lost


def _windows(get_spans: Callable, doc: Doc) -> list[tuple[int, int]]:
    return [(span.start, span.end) for span in chain(*get_spans([doc])) if len(span)]


def find_lost(pieces: Pieces, windows: Sequence[tuple[int, int]], limit: int) -> LongArray:
    """Tokens of which no window has any piece, though some window has the token.

    limit (int): Pieces of a window; the first so many are seen.
    RETURNS (ndarray): Ascending, without tokens that have no piece. Shape (n,).
    """
    seen = pieces.ends <= pieces.firsts
    inside = np.zeros(len(seen), dtype=bool)
    for start, end in windows:
        inside[start:end] = True
        seen[start:end] |= pieces.firsts[start:end] - pieces.firsts[start] < limit
    return np.flatnonzero(inside & ~seen)


def find_spans_on(doc: Doc, tokens: LongArray, spans: Iterable[Span]) -> list[Span]:
    """Spans with a character in any of the tokens; they may be those of another document of the
    same text.
    """
    starts = np.asarray([doc[i].idx for i in tokens.tolist()])
    ends = starts + np.asarray([len(doc[i]) for i in tokens.tolist()])
    return [
        span for span in spans if bool(((starts < span.end_char) & (ends > span.start_char)).any())
    ]
