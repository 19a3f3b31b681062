"""Registered span getters: what of each document the transformer encodes.

They cut by word pieces, so they need to know the tokenizer's. spacy-transformers calls a span
getter with documents only; the architecture `spacy-spans.PrunedTransformerModel.v1` calls `cut`
with the number of pieces of each token as well. Under another architecture they raise an error:
guessing would either waste windows or let the encoder cut pieces off.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
from spacy.tokens import Doc

from spacy_spans.errors import SettingsError
from spacy_spans.kept import KeptRuns
from spacy_spans.kernels.pruning import mask_to_runs, runs_to_mask, sample_dropped, widen
from spacy_spans.kernels.windows import cut_windows, pack
from spacy_spans.pieces import Windows
from spacy_spans.types import Integers, LongArray

# What stands in for the tokens that are not kept.
DROPPED = ("drop", "sample")


@runtime_checkable
class PieceGetter(Protocol):
    """A span getter that cuts by word pieces.

    max_pieces (int): Most pieces of a row, without special ones.
    """

    max_pieces: int

    def cut(self, docs: Sequence[Doc], counts: Sequence[Integers]) -> list[Windows]:
        """counts (Sequence): Pieces of each token of each document."""


def build_piece_windows_v1(max_pieces: int = 128, overlap: int = 0) -> PieceGetter:
    """Cover documents with windows of at most so many word pieces.

    Windows end at sentence boundaries where the document has them, else between tokens. Nothing is
    cut off: a token with more pieces than a window is spread over several, and its vector is
    pooled from all of them, as from the pieces of any token.

    max_pieces (int): Most pieces of a window, special ones not counted.
    overlap (int): Most pieces that a window shares with the one before. Shared tokens are computed
        twice and see context on both sides.
    RAISES (SettingsError): On settings out of range.
    """
    return PieceWindows(max_pieces, overlap)


def build_kept_spans_v1(
    kept_key: str = "kept_tokens",
    context: int = 0,
    max_pieces: int = 128,
    dropped: str = "drop",
) -> PieceGetter:
    """Cover only the runs in `doc.spans[kept_key]`, and leave out the other tokens.

    Runs of a document are put together in a row as long as they fit, one behind the other as if
    nothing had been between them; longer ones are cut. Tokens outside of them have zero vectors:
    set `within_kept` in what finds spans. Documents without the key are covered whole; of a
    document with no run only the special pieces are encoded.

    kept_key (str): The key that `token_pruner` writes.
    context (int): Tokens on each side of a run that are encoded too.
    max_pieces (int): Most pieces of a row, special ones not counted.
    dropped (str): "drop": nothing stands in for a dropped run. "sample": its middle token does. For
        the mean of the run take `piece_windows.v1`, and a gate before the first layer.
    RAISES (SettingsError): On settings out of range.
    """
    return KeptSpans(kept_key, context, max_pieces, dropped)


class PieceWindows:
    """See `build_piece_windows_v1`."""

    def __init__(self, max_pieces: int, overlap: int) -> None:
        if max_pieces < 1 or not 0 <= overlap < max_pieces:
            raise SettingsError(
                f"Got max_pieces = {max_pieces}, overlap = {overlap}. Expected at least 1 piece, "
                "and an overlap from 0 to below max_pieces."
            )
        self.max_pieces = max_pieces
        self.overlap = overlap

    def __call__(self, docs: Iterable[Doc]) -> NoReturn:
        refuse_to_guess("piece_windows")

    def cut(self, docs: Sequence[Doc], counts: Sequence[Integers]) -> list[Windows]:
        """Windows of each document; none for an empty one."""
        return [self._cut_doc(doc, own) for doc, own in zip(docs, counts, strict=True)]

    def _cut_doc(self, doc: Doc, counts: Integers) -> Windows:
        ranges = cut_windows(
            counts, sentence_starts(doc), max_pieces=self.max_pieces, overlap=self.overlap
        )
        return Windows(ranges, np.arange(len(ranges), dtype="i"))


class KeptSpans:
    """See `build_kept_spans_v1`."""

    def __init__(self, kept_key: str, context: int, max_pieces: int, dropped: str) -> None:
        if context < 0:
            raise SettingsError(f"Got context = {context}. Expected 0 tokens or more.")
        if dropped not in DROPPED:
            raise SettingsError(f"Got dropped = {dropped!r}. Expected one of {DROPPED}.")
        self.kept = KeptRuns(kept_key, "spacy-spans.kept_spans.v1 encodes them whole")
        self.context = context
        self.whole = PieceWindows(max_pieces, 0)
        self.max_pieces = max_pieces
        self.dropped = dropped

    def __call__(self, docs: Iterable[Doc]) -> NoReturn:
        refuse_to_guess("kept_spans")

    def cut(self, docs: Sequence[Doc], counts: Sequence[Integers]) -> list[Windows]:
        """Windows of each document; none for an empty one, or where nothing was kept."""
        runs_of_docs = self.kept.read(docs)
        windows = []
        for doc, runs, own in zip(docs, runs_of_docs, counts, strict=True):
            if runs is None:
                windows += self.whole.cut([doc], [own])
            else:
                mask = widen(runs_to_mask(runs, len(doc)), self.context)
                if self.dropped == "sample":
                    mask |= sample_dropped(mask)
                windows.append(self._pack_runs(doc, mask_to_runs(mask), own))
        return windows

    def _pack_runs(self, doc: Doc, runs: Any, counts: Integers) -> Windows:
        starts = sentence_starts(doc)
        parts = [
            start
            + cut_windows(
                counts[start:end],
                starts[(starts > start) & (starts < end)] - start,
                max_pieces=self.max_pieces,
            )
            for start, end in runs.tolist()
        ]
        ranges = np.concatenate([np.zeros((0, 2), "i"), *parts]).astype("i")
        sizes = [int(counts[start:end].sum()) for start, end in ranges.tolist()]
        return Windows(ranges, pack(sizes, self.max_pieces))


def sentence_starts(doc: Doc) -> LongArray:
    """Tokens that are known to start a sentence. Empty where nothing is known."""
    return np.flatnonzero(doc.to_array("SENT_START") == 1)


def refuse_to_guess(name: str) -> NoReturn:
    """Raise SettingsError."""
    raise SettingsError(
        f"spacy-spans.{name}.v1 cuts by word pieces, and only knows them under an architecture "
        "that counts them. In the block of the transformer's model that has this get_spans set "
        '@architectures = "spacy-spans.PrunedTransformerModel.v1".'
    )
