"""Overlap policies, against all subsets and the greedy rule spelled out."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.kernels.decoding import (
    OVERLAP_POLICIES,
    select_best,
    select_flat,
    select_nested,
    select_spans,
)

from .. import reference

# Scores are multiples of 1/64, so that sums are exact, and few, so that many tie.
scored_spans = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 6), st.integers(1, 64)).map(
        lambda x: ((x[0], x[0] + x[1]), x[2] / 64)
    ),
    max_size=10,
)
few_scores = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 8), st.sampled_from([0.25, 0.5, 0.75])).map(
        lambda x: ((x[0], x[0] + x[1]), x[2])
    ),
    max_size=14,
)


def as_arrays(scored):
    offsets = np.asarray([span for span, _ in scored], dtype="i").reshape(-1, 2)
    return offsets, np.asarray([score for _, score in scored], dtype="f")


@settings(max_examples=80, deadline=None)
@given(scored_spans)
def test_flat_reaches_the_best_sum_of_all_subsets_without_overlap(scored):
    rows = select_flat(*as_arrays(scored)).tolist()
    spans = [span for span, _ in scored]
    scores = [score for _, score in scored]
    assert rows == sorted(set(rows))
    assert not any(reference.share_tokens(spans[i], spans[j]) for i in rows for j in rows if i < j)
    assert sum(scores[row] for row in rows) == reference.best_flat_sum(spans, scores)


@settings(max_examples=150, deadline=None)
@given(few_scores)
def test_nested_matches_the_greedy_rule(scored):
    expected = reference.nested_rows([span for span, _ in scored], [score for _, score in scored])
    assert select_nested(*as_arrays(scored)).tolist() == expected


@pytest.mark.parametrize(
    ("scored", "flat", "nested"),
    [
        pytest.param([], [], [], id="nothing"),
        pytest.param([((3, 5), 0.1)], [0], [0], id="one span"),
        pytest.param([((0, 2), 0.5), ((2, 4), 0.4)], [0, 1], [0, 1], id="touching"),
        pytest.param([((0, 4), 0.5), ((1, 3), 0.9)], [1], [0, 1], id="nested"),
        pytest.param([((0, 3), 0.5), ((2, 5), 0.9)], [1], [1], id="crossing"),
        pytest.param(
            [((0, 3), 0.6), ((2, 6), 0.9), ((5, 8), 0.6)], [0, 2], [1], id="two beat the best"
        ),
        pytest.param([((5, 8), 0.6), ((0, 3), 0.6), ((2, 6), 0.9)], [0, 1], [2], id="in any order"),
        pytest.param(
            [((1, 3), 0.5), ((1, 3), 0.8), ((1, 3), 0.6)], [1], [0, 1, 2], id="other labels"
        ),
        pytest.param(
            [((0, 3), 0.9), ((1, 4), 0.8), ((2, 5), 0.7)], [0], [0], id="chain of crossings"
        ),
        pytest.param(
            [((0, 3), 0.5), ((1, 4), 0.5)], None, [0], id="ties go to the earlier row if nested"
        ),
        pytest.param(
            [((0, 9), 0.9), ((0, 3), 0.4), ((4, 6), 0.3), ((6, 9), 0.3)],
            [1, 2, 3],
            [0, 1, 2, 3],
            id="many short against one long",
        ),
    ],
)
def test_known_choices(scored, flat, nested):
    offsets, scores = as_arrays(scored)
    if flat is not None:
        assert select_flat(offsets, scores).tolist() == flat
    assert select_nested(offsets, scores).tolist() == nested


@pytest.mark.parametrize("select", [select_flat, select_nested])
def test_rows_can_index_arrays_even_when_nothing_is_chosen(select):
    rows = select(np.zeros((0, 2), dtype="i"), np.zeros(0, dtype="f"))
    assert rows.shape == (0,)
    assert rows.dtype == np.int64


def test_policies_by_name():
    # A span, one nested in it, and one that crosses both.
    offsets, scores = as_arrays([((0, 4), 0.5), ((1, 3), 0.9), ((2, 6), 0.3)])
    chosen = {name: select_spans(offsets, scores, name).tolist() for name in OVERLAP_POLICIES}
    assert chosen == {"any": [0, 1, 2], "nested": [0, 1], "flat": [1]}
    with pytest.raises(KeyError, match="greedy"):
        select_spans(offsets, scores, "greedy")


@pytest.mark.parametrize(
    ("policy", "top_k", "expected"),
    [
        ("any", None, [0, 1, 2, 3]),
        ("any", 4, [0, 1, 2, 3]),
        ("any", 2, [1, 0]),
        ("any", 3, [1, 0, 3]),
        ("nested", 2, [1, 0]),
        ("nested", 3, [0, 1, 3]),
        ("flat", 1, [1]),
        ("any", 0, []),
    ],
)
def test_the_best_of_what_a_policy_leaves(policy, top_k, expected):
    # As by name, and one apart that is as good as the first.
    offsets, scores = as_arrays([((0, 4), 0.5), ((1, 3), 0.9), ((2, 6), 0.3), ((7, 8), 0.5)])
    assert select_best(offsets, scores, policy, top_k).tolist() == expected
    assert select_best(offsets[:0], scores[:0], policy, top_k).shape == (0,)


@pytest.mark.parametrize("policy", OVERLAP_POLICIES)
def test_policies_choose_nothing_from_nothing(policy):
    rows = select_spans(np.zeros((0, 2), dtype="i"), np.zeros(0, dtype="f"), policy)
    assert rows.shape == (0,)
    assert rows.dtype == np.int64


def test_flat_takes_one_of_tied_spans():
    offsets, scores = as_arrays([((0, 3), 0.5), ((1, 4), 0.5), ((0, 4), 0.5)])
    assert len(select_flat(offsets, scores)) == 1


def test_flat_sums_in_double_precision():
    # One span of many tokens against its thousand single tokens, at a hair's breadth less in sum.
    n = 1000
    singles = [((i, i + 1), 0.3) for i in range(n)]
    score = float(np.float32(0.3)) * n
    for extra, expected in ((-1e-2, list(range(n))), (1e-2, [n])):
        offsets, scores = as_arrays([*singles, ((0, n), score + extra)])
        assert select_flat(offsets, scores).tolist() == expected


@pytest.mark.parametrize("select", [select_flat, select_nested])
@pytest.mark.parametrize("shape", ["all in one", "random", "apart"])
def test_twenty_thousand_spans_of_one_document_take_seconds(select, shape):
    n = 20_000
    random = np.random.default_rng(0)
    if shape == "all in one":
        starts, lengths = np.zeros(n, dtype="i"), np.arange(1, n + 1)
    elif shape == "random":
        starts, lengths = random.integers(0, 100_000, n), random.integers(1, 40, n)
    else:
        starts, lengths = np.arange(n) * 3, np.full(n, 2)
    offsets = np.stack([starts, starts + lengths], axis=1).astype("i")
    scores = random.random(n).astype("f")
    began = time.process_time()
    rows = select(offsets, scores)
    # Two seconds of work at worst here; a loop over pairs would take minutes.
    assert time.process_time() - began < 10
    if shape == "apart":
        assert rows.tolist() == list(range(n))
    elif shape == "all in one":
        expected = [int(scores.argmax())] if select is select_flat else list(range(n))
        assert rows.tolist() == expected
    elif select is select_flat:
        chosen = offsets[rows][np.argsort(offsets[rows, 0])]
        assert np.all(chosen[1:, 0] >= chosen[:-1, 1])
