"""Score maps, calibration error and thresholds, by hand and against slow loops."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.kernels.calibration import (
    HIGHEST,
    LOWEST,
    METHODS,
    METRICS,
    Counts,
    apply_score_map,
    bin_scores,
    calibration_error,
    check_score_map,
    choose_threshold,
    count_kept,
    fit_isotonic,
    fit_score_map,
    fit_temperature,
    invert_score_map,
    log_odds,
    measure,
    threshold_grid,
)

NONE = np.zeros(0, "f"), np.zeros(0, bool)
# Scores of two decimals, so that there are ties, and 0 and 1.
JUDGED = st.lists(
    st.tuples(st.integers(0, 20).map(lambda i: i / 20), st.booleans(), st.integers(0, 3)),
    min_size=1,
    max_size=30,
)


def arrays(judged):
    scores, right, docs = (np.asarray(column) for column in zip(*judged, strict=True))
    return scores.astype("f"), right.astype(bool), docs


def negative_log_likelihood(scores, right, temperature):
    p = 1 / (1 + np.exp(-log_odds(scores) / temperature))
    return -np.log(np.where(right, p, 1 - p)).sum()


# Score maps


@pytest.mark.parametrize("seed", range(5))
def test_no_other_temperature_is_likelier(seed):
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.02, 0.98, 200)
    right = rng.uniform(size=200) < 1 / (1 + np.exp(-log_odds(scores) / 2))
    best = fit_temperature(scores, right)
    assert 1.2 < best < 5
    tried = [negative_log_likelihood(scores, right, t) for t in np.geomspace(0.1, 10, 500)]
    assert negative_log_likelihood(scores, right, best) <= min(tried)


def test_one_temperature_by_hand():
    """Four of five spans scored 0.9 are right: log-odds of 2.197 have to become 1.386."""
    temperature = fit_temperature(np.full(5, 0.9), np.arange(5) > 0)
    assert temperature == pytest.approx(np.log(9) / np.log(4))
    mapped = apply_score_map({"method": "temperature", "temperature": temperature}, np.array([0.9]))
    assert mapped == pytest.approx([0.8])


def test_temperatures_have_limits():
    scores = np.asarray([0.2, 0.8])
    assert fit_temperature(scores, np.asarray([False, True])) == LOWEST
    assert fit_temperature(scores, np.asarray([True, False])) == HIGHEST
    assert fit_temperature(*NONE) == 1.0


def test_pools_by_hand():
    scores = np.asarray([0.1, 0.2, 0.4, 0.6, 0.8, 0.8])
    right = np.asarray([False, True, False, False, True, False])
    # 0.2, 0.4 and 0.6 are pooled to 1/3; the tie at 0.8 is 1/2.
    means, rates = fit_isotonic(scores, right)
    assert means.tolist() == pytest.approx([0.1, 0.4, 0.8])
    assert rates.tolist() == pytest.approx([0, 1 / 3, 1 / 2])
    assert [len(column) for column in fit_isotonic(*NONE)] == [0, 0]


@given(JUDGED)
def test_pools_are_those_of_the_minimax_formula(judged):
    scores, right, _ = arrays(judged)
    means, rates = fit_isotonic(scores, right)
    values = np.unique(scores)
    groups = [right[scores == value] for value in values]

    def mean(first, last):
        return np.concatenate(groups[first : last + 1]).mean()

    n = len(values)
    expected = [max(min(mean(j, k) for k in range(i, n)) for j in range(i + 1)) for i in range(n)]
    assert (np.diff(means) > 0).all()
    assert (np.diff(rates) > 0).all()
    assert rates.tolist() == pytest.approx(np.unique(np.round(expected, 9)).tolist())


def test_an_isotonic_map_is_linear_between_pools():
    scores = np.asarray([0.2, 0.4, 0.6, 0.6], "f")
    score_map = fit_score_map(scores, np.asarray([False, False, True, False]), "isotonic")
    # 0.2 and 0.4 are pooled to 0, moved off by half a span of four.
    assert score_map["scores"] == pytest.approx([0, 0.3, 0.6, 1])
    assert score_map["rates"] == pytest.approx([0, 1 / 8, 1 / 2, 1])
    mapped = apply_score_map(score_map, np.asarray([0, 0.15, 0.45, 0.8, 1], "f"))
    assert mapped == pytest.approx([0, 1 / 16, 5 / 16, 3 / 4, 1])
    assert mapped.dtype == np.float32


@pytest.mark.parametrize("method", METHODS)
@given(JUDGED)
def test_maps_keep_the_order_and_what_reaches_a_threshold(method, judged):
    scores, right, _ = arrays(judged)
    score_map = fit_score_map(scores, right, method)
    steps = np.linspace(0, 1, 101, dtype="f")
    mapped = apply_score_map(score_map, steps)
    assert mapped[0] == 0
    assert 0 < mapped[1:].max() <= 1
    # At the lowest temperature float32 cannot hold how near 0 and 1 some are.
    inner = mapped[(mapped > 1e-6) & (mapped < 1 - 1e-6)]
    assert (np.diff(inner) > 0).all()
    assert (np.diff(mapped) >= 0).all()
    for threshold in mapped:
        before = invert_score_map(score_map, np.asarray([threshold]))
        assert (steps[mapped >= threshold] >= before).all()


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=50, deadline=None)
@given(judged=JUDGED)
def test_maps_that_were_fitted_are_accepted(method, judged):
    scores, right, _ = arrays(judged)
    check_score_map(json.loads(json.dumps(fit_score_map(scores, right, method))))
    check_score_map(fit_score_map(*NONE, method))
    check_score_map(None)


@pytest.mark.parametrize(
    ("score_map", "message"),
    [
        ("temperature", "method of its score map is None, expected one of"),
        ({}, "method of its score map is None"),
        ({"method": "platt"}, "method of its score map is 'platt'"),
        ({"method": "temperature"}, "temperature of its score map is None, expected 0.05 to 20"),
        ({"method": "temperature", "temperature": 0}, "is 0,"),
        ({"method": "temperature", "temperature": "1"}, "is '1',"),
        ({"method": "temperature", "temperature": float("nan")}, "is nan,"),
        ({"method": "isotonic", "scores": [0, 1]}, "are no lists of numbers"),
        ({"method": "isotonic", "scores": [0, 1], "rates": [0, None]}, "no lists of numbers"),
        ({"method": "isotonic", "scores": "01", "rates": [0, 1]}, "no lists of numbers"),
        ({"method": "isotonic", "scores": [0, 0.5, 1], "rates": [0, 1]}, "one length"),
        ({"method": "isotonic", "scores": [], "rates": []}, "one length"),
        ({"method": "isotonic", "scores": [0, 1], "rates": [0.1, 1]}, "from 0"),
        ({"method": "isotonic", "scores": [0, 1], "rates": [0, 1.5]}, "at most 1"),
        ({"method": "isotonic", "scores": [0, 0.7, 0.6, 1], "rates": [0, 0.1, 0.2, 1]}, "rising"),
        ({"method": "isotonic", "scores": [0, 0.6, 1], "rates": [0, float("nan"), 1]}, "rising"),
    ],
)
def test_what_is_no_map_is_an_error(score_map, message):
    with pytest.raises(ValueError, match=message):
        check_score_map(score_map)


def test_without_a_map_nothing_changes():
    scores = np.asarray([0.0, 0.3, 1.0], "f")
    assert apply_score_map(None, scores) is scores
    assert invert_score_map(None, scores) is scores


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_mapped_to_nothing(method):
    score_map = fit_score_map(*NONE, method)
    assert apply_score_map(score_map, NONE[0]).shape == (0,)
    assert apply_score_map(score_map, np.asarray([0.25], "f")) == pytest.approx([0.25])


# Calibration error


def test_calibration_error_by_hand():
    scores = np.asarray([0.05, 0.9, 1.0, 0.55])
    right = np.asarray([True, True, False, True])
    # Bins of 0.05 (1 right), 0.55 (1 right), and 0.95 (half right).
    assert calibration_error(scores, right) == pytest.approx((0.95 + 0.45 + 2 * 0.45) / 4)
    assert calibration_error(*NONE) is None
    bins = bin_scores(scores, right)
    assert bins.counts.tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 0, 2]
    assert bins.means[-1] == pytest.approx(0.95)


@given(JUDGED)
def test_calibration_error_is_that_of_a_loop(judged):
    scores, right, _ = arrays(judged)
    expected = 0.0
    for i in range(10):
        rows = [
            (s, r) for s, r in zip(scores, right, strict=True) if min(int(float(s) * 10), 9) == i
        ]
        if rows:
            score = sum(float(s) for s, _ in rows) / len(rows)
            rate = sum(r for _, r in rows) / len(rows)
            expected += len(rows) / len(scores) * abs(score - rate)
    assert calibration_error(scores, right) == pytest.approx(expected)


# Thresholds


def test_thresholds_lie_between_scores():
    scores = np.asarray([0.8, 0.2, 0.2, 0.6])
    assert threshold_grid(scores, 0.1, 9) == pytest.approx([0.1, 0.4, 0.7])
    assert threshold_grid(np.linspace(0, 1, 1001), 0.0, 5).tolist() == pytest.approx(
        [0, 0.125, 0.375, 0.625, 0.875]
    )
    assert threshold_grid(np.zeros(0), 0.1, 9).tolist() == [0.1]


@given(JUDGED)
def test_counts_are_those_of_loops(judged):
    scores, right, docs = arrays(judged)
    grid = threshold_grid(scores, 0.0, 100)
    counts = count_kept(grid, scores, right, docs, np.asarray([1, 2, 3, 4]))
    for row, threshold in enumerate(grid):
        for doc in range(4):
            kept = [
                r
                for s, r, d in zip(scores, right, docs, strict=True)
                if s >= threshold and d == doc
            ]
            assert counts.kept[row, doc] == len(kept)
            assert counts.right[row, doc] == sum(kept)
    assert counts.gold.tolist() == [1, 2, 3, 4]


# Two documents: thresholds keep 4, 3 and 1 spans, of which 2, 2 and 1 are right; gold is 4.
GRID = np.asarray([0.1, 0.5, 0.9])
COUNTS = Counts(
    right=np.asarray([[1.0, 1], [1, 1], [1, 0]]),
    kept=np.asarray([[2.0, 2], [1, 2], [1, 0]]),
    gold=np.asarray([2.0, 2]),
)


@pytest.mark.parametrize(
    ("metric", "setting", "threshold", "value", "reached"),
    [
        ("f", {}, 0.5, 4 / 7, True),
        ("f", {"beta": 0.25}, 0.9, (1 + 1 / 16) * 1 / (1 + 4 / 16), True),
        ("precision_at_recall", {"at": 0.5}, 0.5, 2 / 3, True),
        ("precision_at_recall", {"at": 0.2}, 0.9, 1.0, True),
        ("precision_at_recall", {"at": 0.9}, 0.5, 2 / 3, False),
        ("recall_at_precision", {"at": 0.5}, 0.5, 2 / 4, True),
        ("recall_at_precision", {"at": 0.9}, 0.9, 1 / 4, True),
    ],
)
def test_the_best_threshold_by_hand(metric, setting, threshold, value, reached):
    choice = choose_threshold(GRID, COUNTS, metric, **setting)
    assert (choice.threshold, choice.reached) == (threshold, reached)
    assert choice.value == pytest.approx(value)
    assert choice.interval[0] <= choice.value <= choice.interval[1]
    row = GRID.tolist().index(threshold)
    assert choice.precision == COUNTS.right[row].sum() / COUNTS.kept[row].sum()
    assert choice.recall == COUNTS.right[row].sum() / 4


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=20)
@given(JUDGED)
def test_intervals_are_those_of_a_loop_over_resampled_documents(metric, judged):
    scores, right, docs = arrays(judged)
    gold = np.bincount(docs[right], minlength=4) + 1
    grid = threshold_grid(scores, 0.0, 100)
    counts = count_kept(grid, scores, right, docs, gold)
    choice = choose_threshold(grid, counts, metric, at=0.5, n_samples=50, seed=1)
    draws = np.random.default_rng(1).multinomial(4, [0.25] * 4, size=50)
    best, values = [], []
    for draw in draws:
        own = Counts(*(column @ np.diag(draw) for column in counts[:2]), counts.gold * draw)
        value, preference = measure(own, metric, at=0.5)
        best.append(max(zip(preference[0], grid, strict=True))[1])
        values.append(value[0, grid.tolist().index(choice.threshold)])
    assert choice.threshold_interval == pytest.approx(tuple(np.quantile(best, [0.025, 0.975])))
    assert choice.interval == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])))


def test_one_document_leaves_no_doubt_and_nothing_found_is_worth_nothing():
    one = Counts(np.zeros((1, 1)), np.zeros((1, 1)), np.asarray([2.0]))
    choice = choose_threshold(np.asarray([0.3]), one, "f", n_samples=10)
    assert choice.threshold_interval == (0.3, 0.3)
    assert (choice.value, choice.interval, choice.precision) == (0.0, (0.0, 0.0), 0.0)
