"""Fit the scores and the thresholds of a component to data it was not trained on.

`calibrate` changes the component and returns a report of plain numbers, which
`spacy_spans.calibration_report` shows and draws.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import srsly
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from tqdm import tqdm

from spacy_spans.calibration_spans import (
    LABEL_THRESHOLDS,
    OVERLAP,
    TOP_K,
    Collected,
    collect,
    count_by_label,
    cross_fit,
    decode,
    thresholds_of,
)
from spacy_spans.errors import DataError, SettingsError
from spacy_spans.kernels import calibration as kernel
from spacy_spans.metrics import precision_recall_f
from spacy_spans.pipelines import predict

Report: TypeAlias = dict[str, Any]

# Candidates below this score are not looked at: there are too many, and hardly any is right.
LOWEST_SCORE = 0.01
# Labels with fewer gold spans take the threshold for all labels.
MIN_GOLD = 20
# From this width on, an interval of the metric is called wide.
WIDE = 0.2
# What is not known of a label without a threshold of its own.
MEASURED = ("threshold_interval", "value", "interval", "precision", "recall", "reached")
# In cfg of components, as in spacy_spans.pipeline.spans_pipe.
SCORE_MAP = "score_map"


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
        half of the documents. "left_out" counts documents and gold spans that do not count: those
        without the key, and those of labels that the component does not know.
    RAISES (SettingsError): There is no such component, or a setting is out of range.
    RAISES (DataError): The data has no gold spans of its labels, or it finds nothing.
    """
    goal = goal or Goal()
    check_goal(goal, method, min_gold)
    name = find_component(nlp, name)
    pipe: Any = nlp.get_pipe(name)
    left_out = _check_gold(gold, name, pipe)
    lowest = _lowest(pipe)
    data = _collect(nlp, gold, name, lowest, progress)
    before = kernel.apply_score_map(pipe.cfg.get(SCORE_MAP), data.scores)
    kept_before = decode(data, before, thresholds_of(pipe), pipe.cfg)
    score_map = _set_score_map(pipe, data, method)
    after = kernel.apply_score_map(score_map, data.scores)
    overall, labels = _choose_thresholds(data, after, pipe, goal, min_gold, lowest)
    _set_thresholds(pipe, overall, labels)
    kept_after = decode(data, after, thresholds_of(pipe), pipe.cfg)
    # Without a map, as of stock components, scores stay as they are.
    crossed = cross_fit(data, method, goal.seed) if score_map else before
    return {
        "component": name,
        "spans_key": pipe.key,
        "documents": len(data.gold),
        "left_out": left_out,
        "score_map": score_map,
        "metric": goal.title,
        "goal": goal._asdict(),
        "min_gold": min_gold,
        "lowest_score": lowest,
        "threshold": overall,
        "labels": labels,
        "before": _describe(data, kept_before, before, kept_after),
        "after": _describe(data, kept_after, crossed, kept_after),
        "reliability": {"before": _bins(data, before), "after": _bins(data, crossed)},
    }


def check_goal(goal: Goal, method: str, min_gold: int = MIN_GOLD) -> None:
    """Raise SettingsError on settings out of range."""
    for what, value, choices in (
        ("metric", goal.metric, kernel.METRICS),
        ("method", method, kernel.METHODS),
    ):
        if value not in choices:
            raise SettingsError(f"Got {what} = {value!r}. Expected one of {choices}.")
    if not 0 < goal.beta < math.inf:
        raise SettingsError(
            f"Got beta = {goal.beta}. Expected a number above 0: with 1 precision and recall count "
            "alike, with 2 recall counts more, with 0.5 precision."
        )
    if (goal.at is None) != (goal.metric == "f"):
        raise SettingsError(
            f"Got metric = {goal.metric!r} and at = {goal.at}. Expected at, from 0 to 1, with "
            '"precision_at_recall" and "recall_at_precision", and none with "f".'
        )
    if goal.at is not None and not 0 <= goal.at <= 1:
        raise SettingsError(f"Got at = {goal.at}. Expected 0 to 1: 0.9 stands for nine of ten.")
    for what, count, least in (
        ("n_samples", goal.n_samples, 1),
        ("seed", goal.seed, 0),
        ("min_gold", min_gold, 1),
    ):
        if count < least:
            raise SettingsError(f"Got {what} = {count}. Expected {least} or more.")


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


def _lowest(pipe: Any) -> float:
    """The lowest score of the model to look at: all of what a tagger found, but not all candidates,
    unless thresholds let them pass.
    """
    if not hasattr(pipe, "set_candidates"):
        return 0.0
    in_use = kernel.invert_score_map(pipe.cfg.get(SCORE_MAP), thresholds_of(pipe))
    return min(LOWEST_SCORE, float(in_use.min()))


@contextmanager
def _open(pipe: Any, lowest: float) -> Iterator[None]:
    """Let a component write all spans from a score of its model on, whatever its settings."""
    wide = {
        "threshold": lowest,
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


def _check_gold(gold: Sequence[Doc], name: str, pipe: Any) -> Report:
    """Look for what gold a component could be compared with.

    RETURNS (Report): What does not count: number of "documents" without the key, and number of gold
        spans of each of the "labels" that the component does not know.
    RAISES (DataError): There is no document, none with its key, or no gold span of its labels.
    """
    key = pipe.key
    if not gold:
        raise DataError(
            f"The data has no documents, expected some with gold spans in doc.spans[{key!r}]. Give "
            "data that the pipeline was not trained on."
        )
    annotated = [doc for doc in gold if key in doc.spans]
    if not annotated:
        there = sorted({own for doc in gold for own in doc.spans})
        raise DataError(
            f"The data has no doc.spans[{key!r}], which {name!r} writes, only "
            f"{there or 'no keys at all'}. Give data with this key, or convert with --spans-key."
        )
    counts = Counter(span.label_ for doc in annotated for span in doc.spans[key])
    if not {*counts} & {*pipe.labels}:
        raise DataError(
            f"The data has no gold spans in doc.spans[{key!r}] of the labels of {name!r}, "
            f"{list(pipe.labels)}: it has {dict(counts) or 'no spans at all'}. Give data that is "
            "annotated like what it was trained on."
        )
    unknown = {label: n for label, n in sorted(counts.items()) if label not in pipe.labels}
    return {"documents": len(gold) - len(annotated), "labels": unknown}


def _collect(
    nlp: Language, gold: Sequence[Doc], name: str, lowest: float, progress: bool
) -> Collected:
    """Run a component, with all settings open, on what has its key.

    RAISES (DataError): It finds nothing.
    """
    pipe: Any = nlp.get_pipe(name)
    gold = [doc for doc in gold if pipe.key in doc.spans]
    # What comes after it has no say.
    enabled = nlp.pipe_names[: nlp.pipe_names.index(name) + 1]
    with nlp.select_pipes(enable=enabled), _open(pipe, lowest):
        silent = None if progress else True
        docs = tqdm(predict(nlp, gold), total=len(gold), unit=" docs", leave=False, disable=silent)
        examples = [Example(*pair) for pair in zip(docs, gold, strict=True)]
    data = collect(examples, pipe.key, pipe.labels)
    if not data.right.any():
        raise DataError(
            f"{name!r} finds none of the {int(data.gold.sum())} gold spans at any threshold: there "
            "is nothing to fit. Train it for longer, or give data like what it was trained on."
        )
    return data


def _set_score_map(pipe: Any, data: Collected, method: str) -> Any:
    """Fit a map and let the component use it. RETURNS: The map; None for one that has none."""
    # Only components of this package have one.
    if SCORE_MAP not in pipe.cfg:
        return None
    pipe.cfg[SCORE_MAP] = _as_stored(kernel.fit_score_map(data.scores, data.right, method))
    return pipe.cfg[SCORE_MAP]


def _choose_thresholds(
    data: Collected, scores: np.ndarray, pipe: Any, goal: Goal, min_gold: int, lowest: float
) -> tuple[Report, dict[str, Report]]:
    """A threshold for all labels together, and one for each label with enough gold."""
    score_map = pipe.cfg.get(SCORE_MAP)
    mapped = float(kernel.apply_score_map(score_map, np.asarray([lowest], "f"))[0])
    curves = count_by_label(data, scores, pipe.cfg, mapped)
    overall = _choose(*curves[None], goal)
    labels = {label: _choose(*curves[i], goal) for i, label in enumerate(pipe.labels)}
    has_own = LABEL_THRESHOLDS in pipe.cfg
    for row in labels.values():
        if not has_own or row["gold"] < min_gold:
            row.update(dict.fromkeys(MEASURED), threshold=overall["threshold"], own=False)
            row["note"] = f"fewer than {min_gold} gold spans" if has_own else ""
    return overall, labels


def _set_thresholds(pipe: Any, overall: Report, labels: dict[str, Report]) -> None:
    pipe.cfg["threshold"] = overall["threshold"]
    if LABEL_THRESHOLDS in pipe.cfg:
        own = {label: row["threshold"] for label, row in labels.items() if row["own"]}
        pipe.cfg[LABEL_THRESHOLDS] = own


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


def _describe(
    data: Collected, kept: np.ndarray, scores: np.ndarray, measured: np.ndarray
) -> Report:
    """Strict scores of the spans that are kept, and the calibration error of those `measured`."""
    right = int((kept & data.right).sum())
    strict = precision_recall_f(right, int(kept.sum()), right, int(data.gold.sum())) or {}
    return {**strict, "ece": kernel.calibration_error(scores[measured], data.right[measured])}


def _bins(data: Collected, scores: np.ndarray) -> dict[str, list[float]]:
    columns = kernel.bin_scores(scores, data.right)._asdict()
    return {key: column.tolist() for key, column in columns.items()}
