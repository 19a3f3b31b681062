"""Scores of what was kept: of `token_pruner`, and of the gates of `pruned_transformer`."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from spacy.training import Example

from spacy_spans.alignment import gold_ranges, is_annotated
from spacy_spans.groups import read_offsets
from spacy_spans.kernels.pruning import runs_to_mask

NO_RUNS = np.zeros((0, 2), dtype="i")
# Scores that are shown at every evaluation in training, without a say in what the best model is.
KEPT_SCORES: dict[str, float | None] = {"token_recall": 0.0, "keep_ratio": 0.0, "span_recall": 0.0}


class KeptCounts(NamedTuple):
    """Tokens of all documents; the others of those that have any of the keys."""

    n_tokens: int
    n_kept: int
    n_kept_annotated: int
    n_gold: int
    n_kept_gold: int
    n_spans: int
    n_whole: int


def count_kept(examples: Iterable[Example], kept_key: str, spans_keys: Sequence[str]) -> KeptCounts:
    """Count what `doc.spans[kept_key]` of the predicted documents keeps; without the key nothing.

    spans_keys (Sequence[str]): Keys of the gold spans that are to be kept.
    """
    total = np.zeros(len(KeptCounts._fields), dtype=np.int64)
    for example in examples:
        doc = example.predicted
        runs = read_offsets(doc, kept_key) if kept_key in doc.spans else NO_RUNS
        kept = runs_to_mask(runs, len(doc))
        total[:2] += [len(doc), kept.sum()]
        if is_annotated(example, spans_keys):
            spans = gold_ranges(example, spans_keys)
            gold = runs_to_mask(spans, len(doc))
            dropped = np.append(0, np.cumsum(~kept))
            whole = dropped[spans[:, 1]] == dropped[spans[:, 0]]
            both = kept & gold
            total[2:] += [kept.sum(), gold.sum(), both.sum(), len(spans), whole.sum()]
    return KeptCounts(*total.tolist())


def score_kept(
    examples: Iterable[Example], kept_key: str, spans_keys: Sequence[str]
) -> dict[str, Any]:
    """Score what was kept, against the gold spans it is to keep.

    RETURNS (Dict[str, Any]): Under `{kept_key}_`: `token_recall`, the share of tokens in gold
        spans that were kept; `keep_ratio`, of all tokens; `span_recall`, of gold spans that lie
        whole in one run; `f`, the F1 of kept tokens as tokens of gold spans. None where there
        is nothing to count.
    """
    counts = count_kept(examples, kept_key, spans_keys)
    recall = _share(counts.n_kept_gold, counts.n_gold)
    values = {
        "token_recall": recall,
        "keep_ratio": _share(counts.n_kept, counts.n_tokens),
        "span_recall": _share(counts.n_whole, counts.n_spans),
        "f": recall and 2 * counts.n_kept_gold / (counts.n_kept_annotated + counts.n_gold),
    }
    return {f"{kept_key}_{name}": value for name, value in values.items()}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
