"""Which tokens are kept: against slow references, empties included."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.kernels import pruning

# Exact in binary, with ties.
SCORES = st.lists(st.integers(0, 8).map(lambda n: n / 8), max_size=25)
MASKS = st.lists(st.booleans(), max_size=25)


def floats(values):
    return np.asarray(values, dtype="f")


def bools(values):
    return np.asarray(values, dtype=bool)


def slow_runs(mask):
    return [
        (start, end)
        for start in range(len(mask))
        for end in range(start + 1, len(mask) + 1)
        if all(mask[start:end])
        and (start == 0 or not mask[start - 1])
        and (end == len(mask) or not mask[end])
    ]


@given(MASKS)
def test_runs_and_masks_are_the_same_thing(mask):
    runs = pruning.mask_to_runs(bools(mask))
    assert runs.dtype == np.int32
    assert [tuple(run) for run in runs.tolist()] == slow_runs(mask)
    assert pruning.runs_to_mask(runs, len(mask)).tolist() == mask


@given(MASKS)
def test_the_middle_of_each_dropped_run_is_sampled(mask):
    dropped = slow_runs([not kept for kept in mask]) if any(mask) else []
    middles = {(start + end - 1) // 2 for start, end in dropped}
    assert set(np.flatnonzero(pruning.sample_dropped(bools(mask))).tolist()) == middles


@given(MASKS, st.integers(0, 5))
def test_widen_is_the_slow_loop(mask, n):
    expected = [any(mask[max(0, i - n) : i + n + 1]) for i in range(len(mask))]
    assert pruning.widen(bools(mask), n).tolist() == expected


@given(SCORES, st.integers(0, 30), st.integers(0, 8))
def test_widened_scores_that_reach_a_threshold_are_the_widened_tokens_that_do(scores, n, eighths):
    threshold = eighths / 8
    widened = pruning.widen_scores(floats(scores), n)
    expected = [max(scores[max(0, i - n) : i + n + 1]) for i in range(len(scores))]
    assert widened.tolist() == expected
    mask = pruning.keep_above(floats(scores), threshold)
    assert pruning.widen(mask, n).tolist() == (widened >= threshold).tolist()


@given(MASKS, st.integers(1, 6))
def test_drop_short_runs_is_the_slow_loop(mask, min_run):
    left = [run for run in slow_runs(mask) if run[1] - run[0] >= min_run]
    expected = [any(start <= i < end for start, end in left) for i in range(len(mask))]
    assert pruning.drop_short_runs(bools(mask), min_run).tolist() == expected


def n_of(ratio, n):
    return math.ceil(round(ratio * n, 6))


@given(SCORES, st.integers(0, 20))
def test_keep_best_is_the_slow_choice(scores, twentieths):
    ratio = twentieths / 20
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[: n_of(ratio, len(scores))]
    mask = pruning.keep_best(floats(scores), ratio)
    assert np.flatnonzero(mask).tolist() == sorted(order)


@settings(max_examples=200)
@given(SCORES, st.integers(0, 20), st.integers(1, 9))
def test_keep_best_of_regions_is_the_slow_choice(scores, twentieths, region):
    ratio = twentieths / 20
    n = len(scores)
    chosen = set()
    for start in range(0, n, region):
        own = sorted(range(start, min(start + region, n)), key=lambda i: (-scores[i], i))
        chosen |= set(own[: math.floor(round(ratio / 2 * len(own), 6))])
    left = sorted(set(range(n)) - chosen, key=lambda i: (-scores[i], i))
    chosen |= set(left[: n_of(ratio, n) - len(chosen)])
    mask = pruning.keep_best_of_regions(floats(scores), ratio, region)
    assert np.flatnonzero(mask).tolist() == sorted(chosen)
    assert mask.sum() == n_of(ratio, n)


def test_no_region_is_starved():
    scores = floats([0.9] * 10 + [0.1] * 10)
    assert pruning.keep_best(scores, 0.5)[10:].sum() == 0
    assert pruning.keep_best_of_regions(scores, 0.5, 10)[10:].sum() == 2


@given(SCORES.filter(len), st.integers(1, 20))
def test_fit_threshold_is_the_highest_that_keeps_enough(scores, twentieths):
    recall = twentieths / 20
    threshold = pruning.fit_threshold(floats(scores), recall)

    def kept(value):
        return sum(score >= value for score in scores)

    assert kept(threshold) >= n_of(recall, len(scores))
    assert kept(threshold + 1e-6) < n_of(recall, len(scores))


def test_fit_threshold_without_spans_keeps_everything():
    assert pruning.fit_threshold(floats([]), 0.9) == 0.0


@pytest.mark.parametrize("size", [0, 1])
def test_documents_of_no_and_one_token(size):
    scores = floats([0.5] * size)
    assert pruning.keep_above(scores, 0.5).tolist() == [True] * size
    assert pruning.keep_best(scores, 0.1).tolist() == [True] * size
    assert pruning.keep_best_of_regions(scores, 0.1, 8).tolist() == [True] * size
    assert pruning.widen_scores(scores, 3).tolist() == [0.5] * size
