"""The spans that a component scores, collected from data, and what settings make of them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from spacy.training import Example

from spacy_spans.errors import DataError
from spacy_spans.kernels import calibration as kernel
from spacy_spans.kernels.decoding import select_best
from spacy_spans.metrics import judge_spans

# Thresholds that are tried: where spans compete, each takes a round of decoding.
N_THRESHOLDS, N_COMPETING_THRESHOLDS = 256, 64
# In cfg of components: how spans compete, and thresholds of their own.
OVERLAP, TOP_K, LABEL_THRESHOLDS = "overlap", "top_k", "label_thresholds"


class Collected(NamedTuple):
    """All spans that a component finds worth a score, from n_docs documents.

    docs, labels (ndarray): Of each span, as indices. Shapes (n,).
    offsets (ndarray): Shape (n, 2).
    scores (ndarray): As the model gives them. Shape (n,).
    right (ndarray): Whether each span is gold. Shape (n,), bool.
    gold (ndarray): Number of gold spans. Shape (n_docs, n_labels).
    """

    docs: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    scores: np.ndarray
    right: np.ndarray
    gold: np.ndarray


def collect(examples: Sequence[Example], key: str, labels: Sequence[str]) -> Collected:
    """Read spans and gold of a key; reference documents without it are left out.

    RAISES (DataError): Spans have no scores.
    """
    ids = {label: i for i, label in enumerate(labels)}
    examples = [example for example in examples if key in example.reference.spans]
    gold = np.zeros((len(examples), len(labels)), dtype=np.int64)
    parts: list[tuple[np.ndarray, ...]] = [
        (
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
            np.zeros((0, 2), "i"),
            np.zeros(0, "f"),
            np.zeros(0, bool),
        )
    ]
    for row, example in enumerate(examples):
        for label, _, _ in {(s.label_, s.start, s.end) for s in example.reference.spans[key]}:
            if label in ids:
                gold[row, ids[label]] += 1
        judged = judge_spans(example, key)
        if judged is None:
            raise DataError(
                f"doc.spans[{key!r}] has spans without attrs['scores']: another component writes "
                "them. Give each component a spans_key of its own."
            )
        own = np.asarray([ids[label] for label in judged.labels], dtype=np.int64)
        parts.append((np.full(len(own), row), own, *judged[1:]))
    docs, label_ids, offsets, scores, right = map(np.concatenate, zip(*parts, strict=True))
    return Collected(docs, label_ids, offsets, scores, right, gold)


def thresholds_of(pipe: Any) -> np.ndarray:
    """The threshold of each label. Shape (n_labels,)."""
    own = pipe.cfg.get(LABEL_THRESHOLDS) or {}
    return np.asarray([own.get(label, pipe.cfg["threshold"]) for label in pipe.labels])


def decode(
    data: Collected, scores: np.ndarray, thresholds: np.ndarray, cfg: Mapping[str, Any]
) -> np.ndarray:
    """Which spans a component writes. Shape (n,), bool.

    thresholds (ndarray): Of each label. Shape (n_labels,).
    """
    kept: np.ndarray = scores >= thresholds[data.labels]
    if not _compete(cfg):
        return kept
    rows = np.flatnonzero(kept)
    kept = np.zeros(len(scores), dtype=bool)
    # Spans come document by document.
    for own in np.split(rows, np.flatnonzero(np.diff(data.docs[rows])) + 1):
        best = select_best(data.offsets[own], scores[own], cfg[OVERLAP], cfg.get(TOP_K))
        kept[own[best]] = True
    return kept


Curves: TypeAlias = dict[int | None, tuple[np.ndarray, kernel.Counts]]


def count_by_label(
    data: Collected, scores: np.ndarray, cfg: Mapping[str, Any], lowest: float
) -> Curves:
    """Thresholds and what they keep, for each label's index, and None for all labels together.

    Where spans compete, by an overlap policy or for `top_k` places, a threshold decides which ones
    win too: the set of spans without overlap with the highest sum may hold other spans when more
    are let in. So each threshold is decoded, the same for all labels.
    """
    groups: dict[int | None, np.ndarray] = {None: np.ones(len(scores), dtype=bool)}
    groups |= {i: data.labels == i for i in range(data.gold.shape[1])}
    gold: dict[int | None, np.ndarray] = {None: data.gold.sum(axis=1)}
    gold |= dict(enumerate(data.gold.T))
    if not _compete(cfg):
        found: Curves = {}
        for i, own in groups.items():
            grid = kernel.threshold_grid(scores[own], lowest, N_THRESHOLDS)
            counts = kernel.count_kept(grid, scores[own], data.right[own], data.docs[own], gold[i])
            found[i] = (grid, counts)
        return found
    grid = kernel.threshold_grid(scores, lowest, N_COMPETING_THRESHOLDS)
    same = np.ones(data.gold.shape[1])
    kept = np.stack([decode(data, scores, threshold * same, cfg) for threshold in grid])

    def count(mask: np.ndarray) -> np.ndarray:
        return np.stack([np.bincount(data.docs[row], minlength=len(data.gold)) for row in mask])

    return {
        i: (
            grid,
            kernel.Counts(
                count(kept & own & data.right).astype(float),
                count(kept & own).astype(float),
                gold[i].astype(float),
            ),
        )
        for i, own in groups.items()
    }


def cross_fit(data: Collected, method: str, seed: int) -> np.ndarray:
    """Mapped scores, each by a map fitted to the half of the documents it is not from."""
    n_docs = len(data.gold)
    half = np.random.default_rng(seed).permutation(n_docs) % 2
    scores = np.zeros_like(data.scores)
    for side in (0, 1):
        own = half[data.docs] == side
        score_map = kernel.fit_score_map(data.scores[~own], data.right[~own], method)
        scores[own] = kernel.apply_score_map(score_map, data.scores[own])
    return scores


def _compete(cfg: Mapping[str, Any]) -> bool:
    return cfg.get(OVERLAP, "any") != "any" or cfg.get(TOP_K) is not None
