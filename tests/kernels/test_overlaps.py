"""Overlap credit against loops over all pairs."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.kernels.overlaps import find_partners, share_credit

from .. import reference

spans_strategy = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 8), st.integers(0, 2)).map(
        lambda x: (x[0], x[0] + x[1], x[2])
    ),
    max_size=12,
    unique=True,
)


def as_array(spans):
    return np.asarray(spans, dtype=np.int64).reshape(-1, 3)


@settings(max_examples=300)
@given(spans_strategy, spans_strategy, st.sampled_from([1, 5, 1000]))
def test_partners_and_credit_match_loops_over_all_pairs(spans, others, block_pairs):
    partners, dice = find_partners(as_array(spans), as_array(others), block_pairs)
    expected = [reference.partner_of(span, others) for span in spans]
    assert partners.tolist() == [row for row, _ in expected]
    assert dice.tolist() == [float(value) for _, value in expected]
    credit = share_credit(as_array(spans), as_array(others), block_pairs)
    assert credit.tolist() == pytest.approx(
        [float(value) for value in reference.shared_credit(spans, others)]
    )


def test_labels_and_touching_spans_share_nothing():
    spans = as_array([(0, 4, 0), (4, 6, 1)])
    others = as_array([(0, 4, 1), (4, 8, 0), (6, 7, 1), (0, 1, 0)])
    partners, dice = find_partners(spans, others)
    assert partners.tolist() == [3, -1]
    assert dice.tolist() == [0.4, 0.0]
    assert share_credit(spans, others).tolist() == [0.0, 0.0, 0.0, 0.4]


def test_the_first_of_equally_good_partners_is_taken():
    # Both have 2 * 2 / 8; then both 1.
    others = as_array([(6, 10, 0), (2, 6, 0)])
    assert find_partners(as_array([(4, 8, 0)]), others)[0].tolist() == [1]
    assert find_partners(as_array([(4, 8, 0)]), as_array([(4, 8, 0)] * 2))[0].tolist() == [0]


def test_a_partner_gives_at_most_one():
    others = as_array([(0, 10, 0)])
    assert share_credit(as_array([(0, 5, 0), (5, 10, 0)]), others).tolist() == [1.0]
    assert share_credit(as_array([(i, 10 + i, 0) for i in range(5)]), others).tolist() == [1.0]
    assert share_credit(as_array([(0, 5, 0)]), others).tolist() == [pytest.approx(2 / 3)]


def test_a_near_miss_goes_to_the_nested_span_that_was_not_found():
    gold = as_array([(0, 8, 0), (0, 10, 0)])
    found = as_array([(0, 9, 0), (0, 10, 0)])
    assert share_credit(found, gold).tolist() == [pytest.approx(16 / 17), 1.0]
    assert share_credit(gold, found).tolist() == [pytest.approx(16 / 17), 1.0]


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 2), (2, 0)])
def test_without_spans_there_is_no_credit(n, m):
    spans, others = as_array([(0, 1, 0)] * n), as_array([(0, 1, 0)] * m)
    partners, dice = find_partners(spans, others)
    assert partners.tolist() == [-1] * n
    assert dice.tolist() == [0.0] * n
    assert share_credit(spans, others).tolist() == [0.0] * m


def test_many_spans_take_little_memory():
    rng = np.random.default_rng(0)

    def draw(n, n_tokens, max_length):
        starts = rng.integers(0, n_tokens, n)
        return np.stack((starts, starts + rng.integers(1, max_length, n), starts % 3), axis=1)

    tracemalloc.start()
    try:
        share_credit(draw(20_000, 20_000, 20), draw(20_000, 20_000, 20))
        # All overlap all of their label.
        share_credit(draw(3_000, 3, 5_000), draw(3_000, 3, 5_000))
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
