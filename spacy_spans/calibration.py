"""Fit the scores and the thresholds of a component to data it was not trained on.

`calibrate` changes the component and returns a report of plain numbers, which
`spacy_spans.calibration_report` shows and draws.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import srsly
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from tqdm import tqdm

from spacy_spans.errors import DataError, SettingsError
from spacy_spans.kernels import calibration as kernel
from spacy_spans.kernels.decoding import select_best
from spacy_spans.metrics import judge_spans, precision_recall_f
from spacy_spans.pipelines import predict

Report: TypeAlias = dict[str, Any]

# Candidates below this score are not looked at: there are too many, and hardly any is right.
LOWEST_SCORE = 0.01
# Labels with fewer gold spans take the threshold for all labels.
MIN_GOLD = 20
# From this width on, an interval of the metric is called wide.
WIDE = 0.2
# Thresholds that are tried: where spans compete, each takes a round of decoding.
N_THRESHOLDS, N_COMPETING_THRESHOLDS = 256, 64
# What is not known of a label without a threshold of its own.
MEASURED = ("threshold_interval", "value", "interval", "precision", "recall", "reached")
# In cfg of components: the score map, as in spacy_spans.pipeline.spans_pipe, and how spans compete.
SCORE_MAP, OVERLAP, TOP_K, LABEL_THRESHOLDS = "score_map", "overlap", "top_k", "label_thresholds"


class Goal(NamedTuple):
    """What thresholds are to maximise; see `kernels.calibration.measure`."""

    metric: str = "f"
    beta: float = 1.0
    at: float | None = None
    n_samples: int = 1000
    seed: int = 0

    @property
    def title(self) -> str:
        """The name of the metric for people."""
        if self.metric == "f":
            return f"F{self.beta:g}"
        first, second = self.metric.split("_at_")
        return f"{first} at {second} >= {self.at:g}"


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


def calibrate(
    nlp: Language,
    gold: Sequence[Doc],
    *,
    name: str | None = None,
    method: str = "isotonic",
    goal: Goal | None = None,
    min_gold: int = MIN_GOLD,
    progress: bool = False,
) -> Report:
    """Fit a score map and thresholds of a component, and set them in its `cfg`.

    First the map, then on mapped scores a threshold for all labels together and one for each label.
    Of stock `spancat` only the threshold for all labels can be fitted.

    nlp (Language): A trained pipeline; changed in place.
    gold (Sequence[Doc]): Documents with gold spans that it was not trained on.
    name (str | None): Name of the component; None where there is only one.
    method (str): "temperature" or "isotonic".
    goal (Goal | None): What thresholds maximise; None for F1.
    min_gold (int): Gold spans from which on a label gets a threshold of its own.
    progress (bool): Show a progress bar when standard error is a terminal.
    RETURNS (Report): Plain data, ready for JSON. "threshold" and each of "labels" have the choice
        (see `kernels.calibration.Choice`) and the curve it was made from; "before" and "after" the
        strict scores on this data, and the expected calibration error of the spans that are
        predicted after. There the error "after" comes from maps that were each fitted to the other
        half of the documents.
    RAISES (SettingsError): There is no such component, or a setting is out of range.
    RAISES (DataError): The data has no gold spans of its labels, or it finds nothing.
    """
    goal = goal or Goal()
    check_goal(goal, method)
    name = find_component(nlp, name)
    pipe: Any = nlp.get_pipe(name)
    examples = _collect_examples(nlp, gold, name, progress)
    data = collect(examples, pipe.key, pipe.labels)
    _check_collected(data, name, pipe.key)
    ours = SCORE_MAP in pipe.cfg
    before = kernel.apply_score_map(pipe.cfg.get(SCORE_MAP), data.scores)
    old = thresholds_of(pipe)
    fitted = kernel.fit_score_map(data.scores, data.right, method) if ours else None
    score_map = _as_stored(fitted)
    after = kernel.apply_score_map(score_map, data.scores)
    lowest = float(kernel.apply_score_map(score_map, np.asarray([_lowest(pipe)], "f"))[0])
    curves = count_by_label(data, after, pipe.cfg, lowest)
    overall = _choose(*curves[None], goal)
    labels = {label: _choose(*curves[i], goal) for i, label in enumerate(pipe.labels)}
    for row in labels.values():
        if not ours or row["gold"] < min_gold:
            row.update(dict.fromkeys(MEASURED), threshold=overall["threshold"], own=False)
            row["note"] = f"fewer than {min_gold} gold spans" if ours else ""
    pipe.cfg["threshold"] = overall["threshold"]
    if ours:
        pipe.cfg[SCORE_MAP] = score_map
        pipe.cfg[LABEL_THRESHOLDS] = {
            label: row["threshold"] for label, row in labels.items() if row["own"]
        }
    new = thresholds_of(pipe)
    predicted = decode(data, after, new, pipe.cfg)
    crossed = cross_fit(data, method, goal.seed) if ours else before
    return {
        "component": name,
        "spans_key": pipe.key,
        "documents": len(data.gold),
        "score_map": score_map,
        "metric": goal.title,
        "goal": goal._asdict(),
        "min_gold": min_gold,
        "lowest_score": _lowest(pipe),
        "threshold": overall,
        "labels": labels,
        "before": {
            **_strict(data, decode(data, before, old, pipe.cfg)),
            "ece": kernel.calibration_error(before[predicted], data.right[predicted]),
        },
        "after": {
            **_strict(data, predicted),
            "ece": kernel.calibration_error(crossed[predicted], data.right[predicted]),
        },
        "reliability": {
            side: {key: column.tolist() for key, column in bins._asdict().items()}
            for side, scores in (("before", before), ("after", crossed))
            for bins in (kernel.bin_scores(scores, data.right),)
        },
    }


def check_goal(goal: Goal, method: str) -> None:
    """Raise SettingsError on settings out of range."""
    for what, value, choices in (
        ("metric", goal.metric, kernel.METRICS),
        ("method", method, kernel.METHODS),
    ):
        if value not in choices:
            raise SettingsError(f"Got {what} = {value!r}. Expected one of {choices}.")
    if goal.beta <= 0:
        raise SettingsError(f"Got beta = {goal.beta}. Expected above 0.")
    if (goal.at is None) != (goal.metric == "f"):
        raise SettingsError(
            f"Got metric = {goal.metric!r} and at = {goal.at}. Expected at, from 0 to 1, with "
            '"precision_at_recall" and "recall_at_precision", and none with "f".'
        )
    if goal.at is not None and not 0 <= goal.at <= 1:
        raise SettingsError(f"Got at = {goal.at}. Expected 0 to 1.")
    if goal.n_samples < 1:
        raise SettingsError(f"Got n_samples = {goal.n_samples}. Expected 1 or more.")


def find_component(nlp: Language, name: str | None) -> str:
    """The component to calibrate. RAISES (SettingsError): There is none, or a choice."""
    pipes: list[tuple[str, Any]] = list(nlp.pipeline)
    known = [
        own
        for own, pipe in pipes
        if all(hasattr(pipe, attribute) for attribute in ("cfg", "key", "labels"))
        and isinstance(pipe.cfg.get("threshold"), (int, float))
    ]
    if name is None and len(known) == 1:
        return known[0]
    if name in known:
        return name
    raise SettingsError(
        f"Got the component {name!r}; those with scores and a threshold for spans are "
        f"{known} of {nlp.pipe_names}. Name one of them, or train a span_enumerator, a "
        "multispan_tagger or a stock spancat."
    )


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


def _lowest(pipe: Any) -> float:
    """The lowest score to look at: all of what a tagger found, but not all candidates."""
    return LOWEST_SCORE if hasattr(pipe, "set_candidates") else 0.0


@contextmanager
def _open(pipe: Any) -> Iterator[None]:
    """Let a component write all spans with the scores of its model, whatever its settings."""
    wide = {
        "threshold": _lowest(pipe),
        LABEL_THRESHOLDS: {},
        OVERLAP: "any",
        TOP_K: None,
        SCORE_MAP: None,
    }
    before = dict(pipe.cfg)
    pipe.cfg.update({key: value for key, value in wide.items() if key in pipe.cfg})
    try:
        yield
    finally:
        pipe.cfg.update(before)


def _collect_examples(
    nlp: Language, gold: Sequence[Doc], name: str, progress: bool
) -> list[Example]:
    # What comes after it has no say.
    enabled = nlp.pipe_names[: nlp.pipe_names.index(name) + 1]
    with nlp.select_pipes(enable=enabled), _open(nlp.get_pipe(name)):
        silent = None if progress else True
        docs = tqdm(predict(nlp, gold), total=len(gold), unit=" docs", leave=False, disable=silent)
        return [Example(*pair) for pair in zip(docs, gold, strict=True)]


def _check_collected(data: Collected, name: str, key: str) -> None:
    if not data.gold.sum():
        raise DataError(
            f"The data has no gold spans in doc.spans[{key!r}] of the labels of {name!r}, expected "
            "some to compare with. Give data with this key, or convert with --spans-key."
        )
    if not data.right.any():
        raise DataError(
            f"{name!r} finds none of the {int(data.gold.sum())} gold spans at any threshold: there "
            "is nothing to fit. Train it for longer, or give data like what it was trained on."
        )


def _as_stored(data: Any) -> Any:
    """What a pipeline reads back from its JSON, which keeps ten decimals: so that a loaded one
    gives the same.
    """
    return srsly.json_loads(srsly.json_dumps(data))


def _choose(grid: np.ndarray, counts: kernel.Counts, goal: Goal) -> Report:
    choice = kernel.choose_threshold(
        grid,
        counts,
        goal.metric,
        beta=goal.beta,
        at=goal.at or 0.0,
        n_samples=goal.n_samples,
        seed=goal.seed,
    )
    notes = []
    if not choice.reached:
        notes.append("not reached")
    if choice.interval[1] - choice.interval[0] > WIDE:
        notes.append("wide interval")
    right, kept = counts.right.sum(axis=1), counts.kept.sum(axis=1)
    gold = counts.gold.sum()
    return {
        "gold": int(gold),
        **choice._asdict(),
        "threshold": _as_stored(choice.threshold),
        "threshold_interval": list(choice.threshold_interval),
        "interval": list(choice.interval),
        "own": True,
        "note": ", ".join(notes),
        "curve": {
            "threshold": grid.tolist(),
            "precision": (right / np.maximum(kept, 1)).tolist(),
            "recall": (right / max(gold, 1)).tolist(),
        },
    }


def _strict(data: Collected, kept: np.ndarray) -> Report:
    right = int((kept & data.right).sum())
    return precision_recall_f(right, int(kept.sum()), right, int(data.gold.sum())) or {}
