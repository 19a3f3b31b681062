"""Make scores probabilities, and choose thresholds on them.

A score map is plain data, ready for JSON: {"method": "temperature", "temperature": 1.5}, or
{"method": "isotonic", "scores": [...], "rates": [...]}: rising lists, linear between their points.
Both are strictly rising from (0, 0) on: the order of spans stays, and only zero becomes zero.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from spacy_spans.kernels.losses import sigmoid
from spacy_spans.types import FloatArray, Integers

ScoreMap: TypeAlias = Mapping[str, Any]
Doubles: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

METHODS = ("temperature", "isotonic")
METRICS = ("f", "precision_at_recall", "recall_at_precision")
# Temperatures that are tried. Scores that separate right from wrong would want 0.
LOWEST, HIGHEST = 0.05, 20.0
# Next to 1 is where float32 cannot tell scores from 1; next to 0 it can nearly always.
NEXT_TO_ONE, NEXT_TO_ZERO = 1 - 1e-7, 1e-30
N_BINS = 10
# Decimals of what is stored: spaCy's JSON keeps ten, and a loaded pipeline is to give the same.
DECIMALS = 9


def log_odds(scores: Any) -> Doubles:
    """The logits of probabilities; finite for 0 and 1 too. The same shape."""
    values = np.clip(np.asarray(scores, dtype=np.float64), NEXT_TO_ZERO, NEXT_TO_ONE)
    logits: Doubles = np.log(values) - np.log1p(-values)
    return logits


def fit_temperature(scores: FloatArray, right: BoolArray) -> float:
    """The temperature that makes log-odds divided by it most likely.

    The likelihood is concave in the inverse of the temperature, so its slope is bisected.

    scores (ndarray): Probabilities. Shape (n,).
    right (ndarray): Whether each span is right. Shape (n,).
    RETURNS (float): From `LOWEST` to `HIGHEST`; 1.0 without scores.
    """
    if not len(scores):
        return 1.0
    logits, wanted = log_odds(scores), np.asarray(right, dtype=np.float64)

    def slope(inverse: float) -> float:
        return float(((sigmoid(inverse * logits) - wanted) * logits).sum())

    low, high = 1 / HIGHEST, 1 / LOWEST
    if slope(low) >= 0:
        return HIGHEST
    if slope(high) <= 0:
        return LOWEST
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return 2 / (low + high)


def fit_isotonic(scores: FloatArray, right: BoolArray) -> tuple[Doubles, Doubles]:
    """The rising step function nearest to what is right, by pooling adjacent violators.

    RETURNS (tuple): Mean score and share of right spans of each pool, both strictly rising. Shapes
        (n_pools,); empty without scores.
    """
    values, which = np.unique(np.asarray(scores, dtype=np.float64), return_inverse=True)
    counts = np.bincount(which, minlength=len(values))
    sums = np.bincount(which, weights=right, minlength=len(values))
    pools: list[tuple[float, float, float]] = []
    for row in zip((values * counts).tolist(), sums.tolist(), counts.tolist(), strict=True):
        total, hits, n = row
        # As products: no rounding decides whether two shares are equal.
        while pools and pools[-1][1] * n >= hits * pools[-1][2]:
            before = pools.pop()
            total, hits, n = total + before[0], hits + before[1], n + before[2]
        pools.append((total, hits, n))
    table = np.asarray(pools, dtype=np.float64).reshape(-1, 3)
    return table[:, 0] / table[:, 2], table[:, 1] / table[:, 2]


def fit_score_map(scores: FloatArray, right: BoolArray, method: str) -> dict[str, Any]:
    """Fit a map that makes scores probabilities of being right; see the top of this module.

    With "isotonic", shares of 0 and 1 are moved off by half a span of all, so that no score becomes
    certain by a few examples.
    """
    if method == "temperature":
        return {"method": method, "temperature": round(fit_temperature(scores, right), DECIMALS)}
    means, rates = (column.round(DECIMALS) for column in fit_isotonic(scores, right))
    margin = 0.5 / max(1, len(scores))
    rates = np.clip(rates, margin, 1 - margin).round(DECIMALS)
    # A score of exactly 0 or 1 has its own rate there.
    inner = (means > 0) & (means < 1)
    last = rates[means >= 1].tolist() or [1.0]
    return {
        "method": method,
        "scores": [0.0, *means[inner].tolist(), 1.0],
        "rates": [0.0, *rates[inner].tolist(), *last],
    }


def check_score_map(score_map: Any) -> None:
    """Raise ValueError unless this is a score map, as it is read from JSON, or None for none."""
    if score_map is None:
        return
    method = score_map.get("method") if isinstance(score_map, Mapping) else None
    if method == "temperature":
        temperature = score_map.get("temperature")
        if not _is_number(temperature) or not LOWEST <= temperature <= HIGHEST:
            raise ValueError(
                f"the temperature of its score map is {temperature!r}, expected {LOWEST} to "
                f"{HIGHEST}"
            )
    elif method == "isotonic":
        columns = [score_map.get(name) for name in ("scores", "rates")]
        if not all(isinstance(own, list) and all(map(_is_number, own)) for own in columns):
            raise ValueError("the scores and rates of its score map are no lists of numbers")
        scores, rates = columns
        if len(scores) != len(rates) or not _is_rising(scores) or not _is_rising(rates):
            raise ValueError(
                "the scores and rates of its score map are no rising lists of one length, from 0 "
                "to at most 1"
            )
    else:
        raise ValueError(f"the method of its score map is {method!r}, expected one of {METHODS}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_rising(values: list[float]) -> bool:
    # Next to each other two may be equal, as far as decimals are stored.
    return (
        len(values) > 1
        and values[0] == 0
        and values[-1] <= 1
        and all(low <= high for low, high in pairwise(values))
    )


def apply_score_map(score_map: ScoreMap | None, scores: FloatArray) -> FloatArray:
    """What scores are as probabilities. The same shape, float32; None leaves them as they are."""
    if score_map is None:
        return scores
    if score_map["method"] == "temperature":
        mapped = sigmoid(log_odds(scores) / score_map["temperature"])
    else:
        mapped = np.interp(scores, score_map["scores"], score_map["rates"])
    return np.where(np.asarray(scores) > 0, mapped, 0).astype("f")


def invert_score_map(score_map: ScoreMap | None, thresholds: Doubles) -> Doubles:
    """Thresholds on scores before a map that drop nothing which reaches `thresholds` after it.

    A little lower than the exact inverse: rounding must not drop what lies on a threshold.
    """
    if score_map is None:
        return thresholds
    lower = np.maximum(np.asarray(thresholds, dtype=np.float64) - 1e-6, 0)
    if score_map["method"] == "temperature":
        exact = sigmoid(log_odds(lower) * score_map["temperature"])
    else:
        exact = np.interp(lower, score_map["rates"], score_map["scores"])
    return np.where(lower > 0, 0.999 * exact, 0.0)


class Bins(NamedTuple):
    """Spans in `n_bins` equal steps of score from 0 to 1. Shapes (n_bins,).

    means, rates (ndarray): Mean score and share of right spans; 0 where there is no span.
    counts (ndarray): Spans.
    """

    means: Doubles
    rates: Doubles
    counts: npt.NDArray[np.int64]


def bin_scores(scores: FloatArray, right: BoolArray, n_bins: int = N_BINS) -> Bins:
    """Count spans by score. A score on an edge belongs above it, 1 to the last bin."""
    which = np.minimum((np.asarray(scores, dtype=np.float64) * n_bins).astype(int), n_bins - 1)
    counts = np.bincount(which, minlength=n_bins)
    totals = np.maximum(counts, 1)
    means = np.bincount(which, weights=scores, minlength=n_bins) / totals
    return Bins(means, np.bincount(which, weights=right, minlength=n_bins) / totals, counts)


def calibration_error(scores: FloatArray, right: BoolArray, n_bins: int = N_BINS) -> float | None:
    """Expected calibration error: how far the mean score of a bin is from its share of right spans,
    averaged over spans. None without spans.

    >>> scores = np.asarray([0.9, 0.9, 0.1])
    >>> round(calibration_error(scores, np.asarray([True, False, False])), 3)
    0.3
    """
    if not len(scores):
        return None
    bins = bin_scores(scores, right, n_bins)
    return float((np.abs(bins.means - bins.rates) * bins.counts).sum() / len(scores))


class Counts(NamedTuple):
    """What thresholds keep, by document. Gold has shape (n_docs,), the rest
    (n_thresholds, n_docs).
    """

    right: Doubles
    kept: Doubles
    gold: Doubles


def threshold_grid(scores: FloatArray, lowest: float, n_thresholds: int) -> Doubles:
    """Thresholds that split scores in every way, or in so many ways, evenly by rank.

    Each lies halfway between two scores, so that no rounding decides on a span.

    lowest (float): Keeps all; the first of them.
    RETURNS (ndarray): Strictly rising. Shape (n,), 1 <= n <= n_thresholds.
    """
    values = np.unique(np.asarray(scores, dtype=np.float64))
    if len(values) > n_thresholds:
        ordered = np.sort(np.asarray(scores, dtype=np.float64))
        ranks = np.linspace(0, len(ordered) - 1, n_thresholds).round().astype(int)
        values = np.unique(ordered[ranks])
    # Rounded down, the lowest still keeps all.
    return np.unique([round_down(lowest), *((values[1:] + values[:-1]) / 2).round(DECIMALS)])


def count_kept(
    thresholds: Doubles, scores: FloatArray, right: BoolArray, docs: Integers, gold: Integers
) -> Counts:
    """Count the spans of each document that reach each threshold.

    thresholds (ndarray): Rising. Shape (n_thresholds,).
    scores, right, docs (ndarray): Of each span. Shapes (n,).
    gold (ndarray): Gold spans of each document. Shape (n_docs,).
    """
    shape = (len(thresholds) + 1, len(gold))
    cells = np.searchsorted(thresholds, scores, side="right") * shape[1] + docs
    n_cells = shape[0] * shape[1]

    def count(weights: Any) -> Doubles:
        own: Any = np.bincount(cells, weights=weights, minlength=n_cells).reshape(shape)
        # Row i: spans that reach just the first i thresholds.
        summed: Doubles = np.cumsum(own[::-1], axis=0)[::-1][1:]
        return summed

    return Counts(count(right), count(np.ones(len(scores))), np.asarray(gold, dtype=np.float64))


def measure(
    counts: Counts, metric: str, *, beta: float = 1.0, at: float = 0.5, weights: Any = None
) -> tuple[Doubles, Doubles]:
    """The metric at each threshold, and the order in which thresholds are preferred.

    metric (str): One of `METRICS`. "f": F-beta. The others count only where the second measure
        reaches `at`; where it does nowhere, the thresholds that come nearest are preferred.
    weights (ndarray): How often each document counts in each resample. Shape (n_samples, n_docs);
        None for once.
    RETURNS (tuple): Metric and preference, the higher the better. Shapes (n_samples, n_thresholds).
    """
    repeats = np.ones((1, len(counts.gold))) if weights is None else weights
    right, kept = repeats @ counts.right.T, repeats @ counts.kept.T
    gold = (repeats @ counts.gold)[:, None]
    precision = right / np.maximum(kept, 1)
    recall = right / np.maximum(gold, 1)
    weighted = (1 + beta**2) * right / np.maximum(kept + beta**2 * gold, 1e-9)
    if metric == "f":
        return weighted, weighted
    value, bound = precision, recall
    if metric == "recall_at_precision":
        value, bound = recall, precision
    # Of equally good ones the one with the better F.
    preference = np.where(bound >= at - 1e-12, value + 1, bound - 1) + 1e-9 * weighted
    return value, preference


class Choice(NamedTuple):
    """A threshold, what it gives, and how sure that is.

    threshold_interval (tuple): Where the best threshold of resampled documents lies.
    interval (tuple): Where the metric at this threshold lies in resampled documents.
    reached (bool): Whether `at` was reached; always with "f".
    """

    threshold: float
    threshold_interval: tuple[float, float]
    value: float
    interval: tuple[float, float]
    precision: float
    recall: float
    reached: bool


def choose_threshold(
    thresholds: Doubles,
    counts: Counts,
    metric: str,
    *,
    beta: float = 1.0,
    at: float = 0.5,
    n_samples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Choice:
    """Choose the best threshold; intervals are percentiles of a bootstrap over documents.

    Of equally good thresholds the highest is chosen. The metric at the chosen threshold is that of
    the same documents, hence a little too good.

    thresholds (ndarray): Rising. Shape (n_thresholds,), at least 1.
    counts (Counts): Of these thresholds, from at least one document.
    """
    value, preference = measure(counts, metric, beta=beta, at=at)
    best = len(thresholds) - 1 - int(preference[0, ::-1].argmax())
    n_docs = len(counts.gold)
    draws = np.random.default_rng(seed).multinomial(
        n_docs, np.full(n_docs, 1 / n_docs), size=n_samples
    )
    values, preferences = measure(counts, metric, beta=beta, at=at, weights=draws.astype(float))
    own = thresholds[len(thresholds) - 1 - preferences[:, ::-1].argmax(axis=1)]
    tails = [(1 - level) / 2, (1 + level) / 2]
    right, kept = counts.right[best].sum(), counts.kept[best].sum()
    low, high = np.quantile(own, tails).tolist()
    worst, ideal = np.quantile(values[:, best], tails).tolist()
    return Choice(
        float(thresholds[best]),
        (low, high),
        float(value[0, best]),
        (worst, ideal),
        float(right / max(kept, 1)),
        float(right / max(counts.gold.sum(), 1)),
        metric == "f" or bool(preference[0, best] >= 1),
    )


def round_down(threshold: float) -> float:
    """A threshold with so few decimals that storing it does not change it, and that is not
    higher: what reached it still does.
    """
    return float(np.floor(threshold * 10**DECIMALS) / 10**DECIMALS)
