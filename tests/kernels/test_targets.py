"""Targets and the sampling of negatives, against loops and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.kernels import targets as kernel

from .. import reference

fast = settings(max_examples=80, deadline=None)
span = st.tuples(st.integers(0, 6), st.integers(1, 4)).map(lambda x: (x[0], x[0] + x[1]))
unique_spans = st.lists(span, max_size=12, unique=True)
labelled = st.lists(
    st.tuples(span, st.integers(0, 2)).map(lambda x: (*x[0], x[1])), max_size=6, unique=True
)


def offsets_of(spans):
    return np.asarray(spans, dtype="i").reshape(-1, 2)


def split_gold(gold):
    rows = np.asarray(gold, dtype="i").reshape(-1, 3)
    return rows[:, :2], rows[:, 2]


@fast
@given(st.lists(span, max_size=10), unique_spans, st.booleans())
def test_find_spans_matches_a_search_through_the_list(wanted, candidates, in_order):
    candidates = sorted(candidates) if in_order else candidates
    expected = [candidates.index(span) if span in candidates else -1 for span in wanted]
    assert kernel.find_spans(offsets_of(wanted), offsets_of(candidates)).tolist() == expected


def test_find_spans_among_nothing_and_nothing_among_some():
    assert kernel.find_spans(offsets_of([(0, 1), (1, 2)]), offsets_of([])).tolist() == [-1, -1]
    assert kernel.find_spans(offsets_of([]), offsets_of([(0, 1)])).tolist() == []
    assert kernel.find_spans(offsets_of([]), offsets_of([])).tolist() == []


def test_find_spans_takes_offsets_beyond_the_ends_of_documents():
    # As the neighbours of gold at the first token, or of one token.
    wanted = offsets_of([(-1, 1), (1, 1), (2, 1), (0, 99)])
    assert kernel.find_spans(wanted, offsets_of([(0, 1), (1, 2)])).tolist() == [-1, -1, -1, -1]


def test_span_keys_order_by_start_then_end_without_overflow():
    spans = offsets_of([(0, 2_000_000_000), (1, 2), (1, 3), (2_000_000_000, 2_000_000_001)])
    keys = kernel.span_keys(spans)
    assert keys.dtype == np.int64
    assert keys.tolist() == sorted(set(keys.tolist()))


@fast
@given(unique_spans, labelled, st.sampled_from([0.0, 0.1, 0.4]), st.booleans())
def test_targets_match_the_loop(candidates, gold, smoothing, in_order):
    candidates = sorted(candidates) if in_order else candidates
    targets = kernel.span_targets(
        offsets_of(candidates), *split_gold(gold), n_labels=3, boundary_smoothing=smoothing
    )
    expected = reference.targets_of(candidates, gold, 3, smoothing)
    assert targets.dtype == np.float32
    assert targets.shape == (len(candidates), 3)
    np.testing.assert_allclose(targets, np.reshape(expected, targets.shape), atol=1e-6)


def test_smoothing_by_hand():
    # Gold (1, 3) of label 0 has four neighbours: (0, 3), (2, 3), (1, 2), (1, 4).
    candidates = offsets_of([(0, 2), (0, 3), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4)])
    targets = kernel.span_targets(
        candidates, *split_gold([(1, 3, 0)]), n_labels=2, boundary_smoothing=0.2
    )
    expected = [[0, 0], [0.05, 0], [0.05, 0], [0.8, 0], [0.05, 0], [0.05, 0], [0, 0]]
    np.testing.assert_allclose(targets, expected, rtol=1e-6)


def test_smoothing_adds_up_between_gold_spans_but_never_onto_one():
    # (1, 3) is a neighbour of both gold spans; these are neighbours of (0, 3) and of each other.
    candidates = offsets_of([(0, 3), (1, 3), (1, 4)])
    gold = split_gold([(0, 3, 0), (1, 4, 0)])
    targets = kernel.span_targets(candidates, *gold, n_labels=1, boundary_smoothing=0.4)
    np.testing.assert_allclose(targets, [[0.6], [0.2], [0.6]], rtol=1e-6)
    neighbours = split_gold([(0, 3, 0), (1, 3, 0)])
    targets = kernel.span_targets(candidates, *neighbours, n_labels=1, boundary_smoothing=0.4)
    np.testing.assert_allclose(targets, [[0.6], [0.6], [0.1]], rtol=1e-6)


def test_smoothing_stays_within_a_label():
    gold = split_gold([(0, 2, 0), (0, 3, 1)])
    targets = kernel.span_targets(
        offsets_of([(0, 2), (0, 3)]), *gold, n_labels=2, boundary_smoothing=0.2
    )
    np.testing.assert_allclose(targets, [[0.8, 0.05], [0.05, 0.8]], rtol=1e-6)


def test_a_span_with_several_labels_has_several_targets():
    gold = split_gold([(0, 2, 0), (0, 2, 2)])
    targets = kernel.span_targets(offsets_of([(0, 1), (0, 2)]), *gold, n_labels=3)
    assert targets.tolist() == [[0, 0, 0], [1, 0, 1]]


def test_no_candidates_and_no_gold_give_empty_or_zero_targets():
    assert kernel.span_targets(offsets_of([]), *split_gold([(0, 1, 0)]), n_labels=2).shape == (0, 2)
    targets = kernel.span_targets(
        offsets_of([(0, 1)]), *split_gold([]), n_labels=2, boundary_smoothing=0.3
    )
    assert targets.tolist() == [[0, 0]]


@fast
@given(
    st.lists(st.lists(st.sampled_from([0.0, 0.05, 0.8, 1.0]), min_size=3, max_size=3), max_size=5)
)
def test_null_class_matches_the_loop_and_rows_sum_to_one(rows):
    targets = np.asarray(rows, dtype="f").reshape(-1, 3)
    with_null = kernel.with_null_class(targets)
    expected = np.reshape([reference.null_class_first(row) for row in rows], (-1, 4))
    assert with_null.dtype == np.float32
    np.testing.assert_allclose(with_null, expected, atol=1e-6)
    np.testing.assert_allclose(with_null.sum(axis=1), np.ones(len(rows)), rtol=1e-6)


def test_null_class_by_hand():
    targets = np.asarray([[0, 0], [1, 0], [1, 1], [0.8, 0.05]], dtype="f")
    expected = [[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5], [0.15, 0.8, 0.05]]
    np.testing.assert_allclose(kernel.with_null_class(targets), expected, atol=1e-6)
    assert kernel.with_null_class(np.zeros((0, 2), dtype="f")).shape == (0, 3)


def test_boundary_targets_mark_first_and_last_tokens_once():
    gold = offsets_of([(0, 3), (0, 1), (2, 3), (0, 3)])
    assert kernel.boundary_targets(gold, 4).tolist() == [[1, 1], [0, 0], [1, 1], [0, 0]]
    assert kernel.boundary_targets(offsets_of([]), 2).tolist() == [[0, 0], [0, 0]]
    assert kernel.boundary_targets(offsets_of([]), 0).shape == (0, 2)


@fast
@given(st.lists(st.booleans(), max_size=30), st.sampled_from([0.1, 0.5, 1.0, 2.5, 100.0]))
def test_sampling_keeps_positives_and_the_right_number_of_negatives(mask, ratio):
    positive = np.asarray(mask, dtype=bool)
    rows, weights = kernel.sample_negatives(
        positive, ratio=ratio, random=np.random.RandomState(len(mask))
    )
    n_positive = sum(mask)
    n_negative = len(mask) - n_positive
    n_kept = min(n_negative, int(np.ceil(ratio * max(1, n_positive))))
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert [row for row in rows.tolist() if mask[row]] == [i for i, p in enumerate(mask) if p]
    assert sum(not mask[row] for row in rows.tolist()) == n_kept
    assert weights.shape == rows.shape
    assert weights.dtype == np.float32
    assert all(weights[i] == 1 for i, row in enumerate(rows.tolist()) if mask[row])
    # The weights of all that is kept add up to all that there was.
    np.testing.assert_allclose(weights.sum(), len(mask), rtol=1e-5)


def test_sampled_loss_is_right_on_average():
    random = np.random.RandomState(0)
    positive = np.asarray([True, False, False, True, False, False, False])
    losses = np.asarray([1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0])
    totals = []
    for _ in range(4000):
        rows, weights = kernel.sample_negatives(positive, ratio=1.0, random=random)
        totals.append(float((losses[rows] * weights).sum()))
    assert len(set(totals)) > 1
    # Standard error is about 0.32.
    assert np.mean(totals) == pytest.approx(losses.sum(), abs=1.5)


def test_sampling_without_positives_keeps_negatives_and_without_negatives_all():
    random = np.random.RandomState(0)
    rows, weights = kernel.sample_negatives(np.zeros(10, dtype=bool), ratio=3.0, random=random)
    assert len(rows) == 3
    np.testing.assert_allclose(weights, [10 / 3] * 3, rtol=1e-6)
    rows, weights = kernel.sample_negatives(np.ones(4, dtype=bool), ratio=3.0, random=random)
    assert rows.tolist() == [0, 1, 2, 3]
    assert weights.tolist() == [1, 1, 1, 1]
    rows, weights = kernel.sample_negatives(np.zeros(0, dtype=bool), ratio=3.0, random=random)
    assert rows.shape == weights.shape == (0,)


def test_sampling_repeats_with_the_same_seed():
    positive = np.arange(50) % 10 == 0
    draws = [
        kernel.sample_negatives(positive, ratio=2.0, random=np.random.RandomState(seed))[0].tolist()
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]
