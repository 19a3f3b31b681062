"""Which tokens a pruning encoder kept: from its batches to `doc.spans`."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from spacy.tokens import Doc
from spacy_transformers.data_classes import FullTransformerBatch

from spacy_spans.errors import SettingsError
from spacy_spans.groups import write_group
from spacy_spans.kernels.pruning import BoolArray, mask_to_runs, runs_to_mask
from spacy_spans.pieces import Rows
from spacy_spans.transformer import Tokenized
from spacy_spans.types import FloatArray, IntArray, SpanArrays

# The score of tokens where nothing was dropped.
CERTAIN = np.float32(1.0)


class KeptTokens(NamedTuple):
    """mask (ndarray): Which tokens of a document were kept. Shape (n_tokens,), bool.
    scores (ndarray): Their scores, anything for others. Shape (n_tokens,).
    """

    mask: BoolArray
    scores: FloatArray


@dataclass
class PrunedTransformerBatch(FullTransformerBatch):
    """A stock batch that knows what was kept.

    tokenized (Tokenized): Where the rows come from.
    piece_scores (ndarray | None): Score of each piece's word, -inf for pieces that a gate dropped.
        Shape (n_rows, n_pieces). None: no gate has chosen.
    """

    tokenized: Tokenized | None = None
    piece_scores: FloatArray | None = None

    def kept_tokens(self) -> list[KeptTokens]:
        """The tokens of each document that were encoded and that no gate dropped. A token in
        several rows is kept if it is in any of them.
        """
        assert self.tokenized is not None
        kept = []
        start = 0
        waiting = iter(self.tokenized.windows)
        for rows in self.tokenized.rows:
            if rows is None:
                kept.append(KeptTokens(np.zeros(0, dtype=bool), np.zeros(0, dtype="f")))
                continue
            encoded = runs_to_mask(next(waiting).ranges, len(rows.counts))
            if self.piece_scores is None:
                kept.append(KeptTokens(encoded, np.full(len(encoded), CERTAIN)))
                continue
            own = self.piece_scores[start : start + len(rows.lengths)]
            start += len(rows.lengths)
            kept.append(_kept_in(rows, own, self.tokenized.n_before, encoded))
        return kept


@dataclass(frozen=True)
class KeptTokensSetter:
    """See `build_kept_tokens_v1`."""

    kept_key: str

    def __call__(self, docs: list[Doc], batch: FullTransformerBatch) -> None:
        if isinstance(batch, PrunedTransformerBatch):
            for doc, kept in zip(docs, batch.kept_tokens(), strict=True):
                write_kept(doc, self.kept_key, kept)
        elif not any(len(doc) for doc in docs):
            for doc in docs:
                write_kept(doc, self.kept_key, KeptTokens(np.zeros(0, bool), np.zeros(0, "f")))
        else:
            raise SettingsError(
                "spacy-spans.kept_tokens.v1 writes what the gates of an encoder kept, but this "
                "transformer has none. Set its model to @architectures = "
                '"spacy-spans.PrunedTransformerModel.v1", or remove set_extra_annotations.'
            )


def build_kept_tokens_v1(kept_key: str = "kept_tokens") -> KeptTokensSetter:
    """Write the tokens that the gates of a pruning encoder kept as runs to `doc.spans[kept_key]`,
    unlabelled, with the best score of each run in `attrs["scores"]`.

    For `set_extra_annotations` of `transformer` and `pruned_transformer`. Where no gate drops
    anything that is one run, the whole document, with the score 1.0, as an untrained `token_pruner`
    writes it; tokens that the span getter left out are not kept. White space is kept between kept
    tokens. With gates that were learned scores are probabilities.

    kept_key (str): The key; a group that is there is replaced.
    """
    return KeptTokensSetter(kept_key)


def write_kept(doc: Doc, key: str, kept: KeptTokens) -> None:
    """Set `doc.spans[key]` to the runs of kept tokens."""
    runs = mask_to_runs(kept.mask)
    spans = SpanArrays(runs, np.zeros(len(runs), dtype="i"), _best_of_runs(kept, runs))
    write_group(doc, key, spans, [""])


def _best_of_runs(kept: KeptTokens, runs: IntArray) -> FloatArray:
    if not len(runs):
        return np.zeros(0, dtype="f")
    scores = np.where(kept.mask, kept.scores, -np.inf)
    best: FloatArray = np.maximum.reduceat(scores, runs[:, 0]).astype("f")
    return best


def _kept_in(rows: Rows, scores: FloatArray, n_before: int, encoded: BoolArray) -> KeptTokens:
    """scores: Of the document's rows, as `piece_scores`. encoded: Tokens in any row."""
    (used,) = np.nonzero(rows.counts)
    if not len(used):
        return KeptTokens(encoded, np.full(len(encoded), CERTAIN))
    counts = rows.counts[used]
    best = np.full(len(encoded), -np.inf, dtype="f")
    places = rows.places_in(scores.shape[1], n_before)
    best[used] = np.maximum.reduceat(scores.reshape(-1)[places], np.cumsum(counts) - counts)
    mask = np.isfinite(best)
    # White space has no pieces: it goes with its neighbours.
    (without,) = np.nonzero(encoded & (rows.counts == 0))
    after = np.searchsorted(used, without)
    on_left = mask[used[np.maximum(after - 1, 0)]] | (after == 0)
    on_right = mask[used[np.minimum(after, len(used) - 1)]] | (after == len(used))
    mask[without] = on_left & on_right
    return KeptTokens(mask, np.where(np.isfinite(best), best, 0).astype("f"))
