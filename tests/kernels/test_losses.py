"""Losses against their formula, gradients against finite differences."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.kernels.losses import (
    rarity_bias,
    sigmoid,
    sigmoid_loss,
    softmax,
    softmax_loss,
    weighted_bit_loss,
    weighted_tag_loss,
)

from .. import reference

fast = settings(max_examples=60, deadline=None)
logit = st.floats(-12, 12)
STEP = 1e-5


def rows_of(width):
    return st.lists(
        st.lists(st.tuples(logit, st.floats(0, 1)), min_size=width, max_size=width), max_size=4
    )


def split(rows, width):
    pairs = np.asarray(rows, dtype=np.float64).reshape(-1, width, 2)
    return pairs[..., 0], pairs[..., 1]


def finite_differences(total_loss, logits):
    """The slope of the summed loss along each logit."""
    slopes = np.zeros_like(logits)
    for index in np.ndindex(logits.shape):
        above, below = logits.copy(), logits.copy()
        above[index] += STEP
        below[index] -= STEP
        slopes[index] = (total_loss(above) - total_loss(below)) / (2 * STEP)
    return slopes


@fast
@given(rows_of(2))
def test_sigmoid_loss_matches_the_formula_and_its_slope(rows):
    logits, targets = split(rows, 2)
    loss, gradient = sigmoid_loss(logits, targets)
    expected = [
        [reference.sigmoid_loss_of(x, y) for x, y in zip(*row, strict=True)]
        for row in zip(logits.tolist(), targets.tolist(), strict=True)
    ]
    np.testing.assert_allclose(loss, np.reshape(expected, logits.shape), rtol=1e-6, atol=1e-9)
    slopes = finite_differences(lambda x: sigmoid_loss(x, targets)[0].sum(), logits)
    np.testing.assert_allclose(gradient, slopes, atol=1e-5)


@fast
@given(rows_of(3))
def test_softmax_loss_matches_the_formula_and_its_slope(rows):
    logits, targets = split(rows, 3)
    targets = (targets + 0.01) / (targets + 0.01).sum(axis=1, keepdims=True)
    loss, gradient = softmax_loss(logits, targets)
    expected = [
        reference.softmax_loss_of(x, y)
        for x, y in zip(logits.tolist(), targets.tolist(), strict=True)
    ]
    assert loss.shape == (len(rows),)
    np.testing.assert_allclose(loss, expected, rtol=1e-6, atol=1e-9)
    slopes = finite_differences(lambda x: softmax_loss(x, targets)[0].sum(), logits)
    np.testing.assert_allclose(gradient, slopes, atol=1e-5)


def test_probabilities_by_hand():
    logits = np.asarray([[0.0, math.log(3)], [-math.log(3), 0.0]])
    np.testing.assert_allclose(sigmoid(logits), [[0.5, 0.75], [0.25, 0.5]])
    np.testing.assert_allclose(softmax(logits), [[0.25, 0.75], [0.25, 0.75]])


def test_losses_by_hand():
    loss, gradient = sigmoid_loss(np.asarray([[0.0, math.log(3)]]), np.asarray([[1.0, 0.0]]))
    np.testing.assert_allclose(loss, [[math.log(2), math.log(4)]])
    np.testing.assert_allclose(gradient, [[-0.5, 0.75]])
    loss, gradient = softmax_loss(np.asarray([[0.0, math.log(3)]]), np.asarray([[1.0, 0.0]]))
    np.testing.assert_allclose(loss, [math.log(4)])
    np.testing.assert_allclose(gradient, [[-0.75, 0.75]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_logits_give_finite_losses_and_keep_their_type(dtype):
    logits = np.asarray([[1e4, -1e4], [-1e4, 1e4], [1e4, 1e4]], dtype=dtype)
    targets = np.asarray([[1, 0], [1, 0], [0.5, 0.5]], dtype=dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        loss, gradient = sigmoid_loss(logits, targets)
        assert loss.tolist() == [[0, 0], [1e4, 1e4], [5e3, 5e3]]
        assert gradient.tolist() == [[0, 0], [-1, 1], [0.5, 0.5]]
        row_loss, row_gradient = softmax_loss(logits, targets)
        np.testing.assert_allclose(row_loss, [0, 2e4, math.log(2)], rtol=1e-6)
        np.testing.assert_allclose(row_gradient, [[0, 0], [-1, 1], [0, 0]], atol=1e-6)
        assert sigmoid(logits).tolist() == [[1, 0], [0, 1], [1, 1]]
        assert softmax(logits).tolist() == [[1, 0], [0, 1], [0.5, 0.5]]
    arrays = [loss, gradient, row_loss, row_gradient, sigmoid(logits), softmax(logits)]
    assert {array.dtype for array in arrays} == {np.dtype(dtype)}


def test_no_rows_give_no_loss_and_no_gradient():
    nothing = np.zeros((0, 3), dtype="f")
    loss, gradient = sigmoid_loss(nothing, nothing)
    assert loss.shape == gradient.shape == (0, 3)
    loss, gradient = softmax_loss(nothing, nothing)
    assert loss.shape == (0,)
    assert gradient.shape == (0, 3)
    assert sigmoid(nothing).shape == softmax(nothing).shape == (0, 3)


def test_inputs_are_left_as_they_are():
    logits, targets = np.asarray([[1.0, -2.0]]), np.asarray([[1.0, 0.0]])
    sigmoid_loss(logits, targets)
    softmax_loss(logits, targets)
    assert logits.tolist() == [[1.0, -2.0]]
    assert targets.tolist() == [[1.0, 0.0]]


# Losses of tags: tokens of two layers, a gold tag (or bits) and logits each, and the weight.
tagged = st.lists(
    st.lists(st.tuples(st.integers(0, 2), *[logit] * 3), min_size=2, max_size=2), max_size=4
)
outside_weights = st.sampled_from([0.0, 0.25, 1.0, 3.0])


@fast
@given(tagged, outside_weights)
def test_weighted_tag_loss_matches_the_formula_and_its_slope(rows, weight):
    table = np.asarray(rows, dtype=np.float64).reshape(-1, 2, 4)
    tags, scores = table[..., 0].astype("i"), table[..., 1:]
    loss, gradient = weighted_tag_loss(scores, tags, weight)
    expected = sum(
        (1.0 if tag else weight)
        * reference.softmax_loss_of(own, [float(tag == i) for i in range(3)])
        for token in rows
        for tag, *own in token
    )
    assert isinstance(loss, float)
    assert loss == pytest.approx(expected, abs=1e-9)
    slopes = finite_differences(lambda x: weighted_tag_loss(x, tags, weight)[0], scores)
    np.testing.assert_allclose(gradient, slopes, atol=1e-5)


@fast
@given(tagged, outside_weights)
def test_weighted_bit_loss_matches_the_formula_and_its_slope(rows, weight):
    table = np.asarray(rows, dtype=np.float64).reshape(-1, 2, 4)
    # Tag 1 is a start, 2 an end; and a token may be both.
    bits = np.stack([table[..., 0] == 1, (table[..., 0] == 2) | (table[..., 3] > 0)], axis=-1)
    scores = table[..., 1:3]
    loss, gradient = weighted_bit_loss(scores, bits, weight)
    expected = sum(
        (1.0 if bit else weight) * reference.sigmoid_loss_of(score, float(bit))
        for score, bit in zip(scores.ravel().tolist(), bits.ravel().tolist(), strict=True)
    )
    assert isinstance(loss, float)
    assert loss == pytest.approx(expected, rel=1e-6, abs=1e-9)
    slopes = finite_differences(lambda x: weighted_bit_loss(x, bits, weight)[0], scores)
    np.testing.assert_allclose(gradient, slopes, atol=1e-5)


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_weighted_losses_by_hand(weight):
    # One token inside and one outside, all tags even.
    loss, gradient = weighted_tag_loss(np.zeros((2, 1, 2)), np.asarray([[1], [0]]), weight)
    assert loss == pytest.approx((1 + weight) * math.log(2))
    np.testing.assert_allclose(gradient, [[[0.5, -0.5]], [[-weight / 2, weight / 2]]])
    loss, gradient = weighted_bit_loss(np.zeros((1, 1, 2)), np.asarray([[[True, False]]]), weight)
    assert loss == pytest.approx((1 + weight) * math.log(2))
    np.testing.assert_allclose(gradient, [[[-0.5, weight / 2]]])


def test_weighted_losses_keep_the_type_of_scores_and_take_no_tokens():
    for n in (0, 2):
        scores = np.ones((n, 3, 2), dtype="f")
        for loss, gradient in (
            weighted_tag_loss(scores, np.zeros((n, 3), dtype="i"), 0.5),
            weighted_bit_loss(scores, np.zeros((n, 3, 2), dtype=bool), 0.5),
        ):
            assert (loss == 0) == (n == 0)
            assert gradient.shape == scores.shape
            assert gradient.dtype == np.float32


@pytest.mark.parametrize(
    ("n_positive", "n_total", "rate"),
    [(0, 0, 1 / 2), (0, 98, 1 / 100), (9, 98, 10 / 100), (98, 98, 99 / 100)],
)
def test_rarity_bias_is_the_logit_of_the_smoothed_rate(n_positive, n_total, rate):
    bias = rarity_bias(n_positive, n_total)
    assert bias == pytest.approx(math.log(rate / (1 - rate)))
    assert 1 / (1 + math.exp(-bias)) == pytest.approx(rate)
