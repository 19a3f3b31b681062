"""Losses of `span_enumerator`: by value, per token, over ragged batches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinc.api import NumpyOps

from spacy_spans.alignment import GoldSpans
from spacy_spans.pipeline.span_loss import boundary_loss, candidate_loss

from .. import reference

OPS = NumpyOps()


def gold_of(rows):
    """Gold of one document from (start, end, label) rows."""
    table = np.asarray(rows, dtype="i").reshape(-1, 3)
    return GoldSpans(table[:, :2], table[:, 2], [])


def loss_of(documents, logits, *, softmax=False, smoothing=0.0, weights=None, n_tokens=None):
    """documents: (n_tokens, candidates, gold) of each document."""
    lengths = [n_tokens for n_tokens, _, _ in documents]
    offsets = reference.offsets_in_batch([spans for _, spans, _ in documents], lengths)
    return candidate_loss(
        [gold_of(gold) for _, _, gold in documents],
        lengths,
        np.asarray(offsets, dtype="i").reshape(-1, 2),
        logits,
        n_labels=2,
        softmax=softmax,
        boundary_smoothing=smoothing,
        weights=weights,
        n_tokens=sum(lengths) if n_tokens is None else n_tokens,
        ops=OPS,
    )


def slow_loss_of(documents, logits, *, softmax, smoothing, weights):
    total, row = 0.0, 0
    for _, candidates, gold in documents:
        for targets in reference.targets_of(candidates, gold, 2, smoothing):
            own = [float(value) for value in logits[row]]
            weight = 1.0 if weights is None else float(weights[row])
            if softmax:
                loss = reference.softmax_loss_of(own, reference.null_class_first(targets))
            else:
                loss = sum(map(reference.sigmoid_loss_of, own, targets))
            total += weight * loss
            row += 1
    return total / max(1, sum(n_tokens for n_tokens, _, _ in documents))


def test_sigmoid_loss_and_gradient_by_hand():
    # Two tokens, three candidates, one gold span of label 1. At logit 0 every label costs log(2).
    documents = [(2, [(0, 1), (0, 2), (1, 2)], [(0, 2, 1)])]
    loss, gradient = loss_of(documents, np.zeros((3, 2), dtype="f"))
    assert loss == pytest.approx(6 * np.log(2) / 2)
    np.testing.assert_allclose(gradient, [[0.25, 0.25], [0.25, -0.25], [0.25, 0.25]])
    assert gradient.dtype == np.float32


def test_softmax_loss_and_gradient_by_hand():
    documents = [(2, [(0, 1), (0, 2)], [(0, 2, 1)])]
    loss, gradient = loss_of(documents, np.zeros((2, 3), dtype="f"), softmax=True)
    assert loss == pytest.approx(2 * np.log(3) / 2)
    third = 1 / 6
    np.testing.assert_allclose(
        gradient, [[third - 0.5, third, third], [third, third, third - 0.5]], rtol=1e-5
    )


def test_a_candidate_with_two_labels_shares_its_softmax_target():
    documents = [(1, [(0, 1)], [(0, 1, 0), (0, 1, 1)])]
    logits = np.asarray([[-20.0, 0.0, 0.0]], dtype="f")
    loss, gradient = loss_of(documents, logits, softmax=True)
    assert loss == pytest.approx(np.log(2), abs=1e-6)
    np.testing.assert_allclose(gradient, [[0, 0, 0]], atol=1e-6)


def test_weights_scale_loss_and_gradient_of_their_rows():
    documents = [(1, [(0, 1)], []), (1, [(0, 1)], [])]
    weights = np.asarray([1.0, 3.0], dtype="f")
    for softmax, width in ((False, 2), (True, 3)):
        logits = np.zeros((2, width), dtype="f")
        whole, d_whole = loss_of(documents, logits, softmax=softmax)
        loss, gradient = loss_of(documents, logits, softmax=softmax, weights=weights)
        # Both rows alike: (1 + 3) / 2 of the loss.
        assert loss == pytest.approx(2 * whole)
        np.testing.assert_allclose(gradient, d_whole * weights[:, None])


@pytest.mark.parametrize("softmax", [False, True])
def test_the_loss_is_per_token_of_annotated_documents(softmax):
    documents = [(2, [(0, 1), (0, 2)], [(0, 2, 1)]), (6, [], [])]
    logits = np.zeros((2, 2 + softmax), dtype="f")
    of_all, d_of_all = loss_of(documents, logits, softmax=softmax)
    loss, gradient = loss_of(documents, logits, softmax=softmax, n_tokens=2)
    alone, d_alone = loss_of(documents[:1], logits, softmax=softmax)
    assert loss == pytest.approx(alone) == pytest.approx(4 * of_all)
    np.testing.assert_allclose(gradient, d_alone)
    np.testing.assert_allclose(gradient, 4 * d_of_all)


@pytest.mark.parametrize("softmax", [False, True])
def test_repeating_the_documents_of_a_batch_changes_neither_loss_nor_summed_gradient(softmax):
    documents = [(3, [(0, 1), (0, 2), (1, 3)], [(0, 2, 1)]), (0, [], []), (1, [(0, 1)], [])]
    logits = np.random.RandomState(0).normal(size=(4, 2 + softmax)).astype("f")
    loss, gradient = loss_of(documents, logits, softmax=softmax)
    twice, d_twice = loss_of(documents * 2, np.concatenate([logits, logits]), softmax=softmax)
    assert twice == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(d_twice[:4] + d_twice[4:], gradient, rtol=1e-6)


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("documents", [[], [(0, [], [])], [(3, [], [(0, 2, 1)]), (0, [], [])]])
def test_no_candidates_cost_nothing(documents, softmax):
    logits = np.zeros((0, 2 + softmax), dtype="f")
    for weights in (None, np.zeros(0, dtype="f")):
        loss, gradient = loss_of(documents, logits, softmax=softmax, weights=weights)
        assert loss == 0.0
        assert gradient.shape == logits.shape


@st.composite
def batches(draw):
    documents = []
    for _ in range(draw(st.integers(0, 3))):
        n = draw(st.integers(0, 4))
        spans = [(start, end) for start in range(n) for end in range(start + 1, n + 1)]
        chosen = st.lists(st.sampled_from(spans), unique=True, max_size=6) if spans else st.just([])
        gold = [(*span, draw(st.integers(0, 1))) for span in draw(chosen)]
        documents.append((n, sorted(draw(chosen)), gold))
    return documents


@settings(max_examples=60, deadline=None)
@given(batches(), st.booleans(), st.sampled_from([0.0, 0.2]), st.booleans(), st.integers(0, 99))
def test_loss_matches_the_loop_and_gradient_matches_differences(
    documents, softmax, smoothing, weighted, seed
):
    random = np.random.RandomState(seed)
    n_rows = sum(len(spans) for _, spans, _ in documents)
    # Double precision, so that differences are exact enough.
    logits = random.normal(size=(n_rows, 2 + softmax))
    weights = random.uniform(0.5, 2, size=n_rows).astype("f") if weighted else None
    kwargs = {"softmax": softmax, "smoothing": smoothing, "weights": weights}
    loss, gradient = loss_of(documents, logits, **kwargs)
    assert loss == pytest.approx(slow_loss_of(documents, logits, **kwargs), rel=1e-5)
    step = 1e-5
    for row in range(n_rows):
        for column in range(logits.shape[1]):
            around = []
            for sign in (1, -1):
                moved = logits.copy()
                moved[row, column] += sign * step
                around.append(loss_of(documents, moved, **kwargs)[0])
            difference = (around[0] - around[1]) / (2 * step)
            assert gradient[row, column] == pytest.approx(difference, abs=2e-5)


def test_boundary_loss_and_gradient_by_hand():
    gold = [gold_of([(0, 2, 0), (0, 2, 1)]), gold_of([]), gold_of([])]
    scores = np.zeros((3, 2), dtype="f")
    loss, gradient = boundary_loss([own.offsets for own in gold], [2, 0, 1], scores, ops=OPS)
    assert loss == pytest.approx(6 * np.log(2) / 3)
    sixth = 1 / 6
    np.testing.assert_allclose(
        gradient, [[-sixth, sixth], [sixth, -sixth], [sixth, sixth]], rtol=1e-6
    )


def test_boundary_loss_of_kept_tokens_by_hand():
    # Of tokens 0 to 4 only 1 and 4: the start of the first span and the end of the second.
    gold = [np.asarray([(1, 2)], "i"), np.asarray([(0, 3)], "i")]
    scores = np.asarray([[0, 0], [0, np.log(3)]], dtype="f")
    loss, gradient = boundary_loss(gold, [2, 3], scores, ops=OPS, kept=np.asarray([1, 4]))
    assert loss == pytest.approx((3 * np.log(2) + np.log(4 / 3)) / 5)
    np.testing.assert_allclose(gradient, [[-0.1, -0.1], [0.1, -0.05]], rtol=1e-6)


def test_boundary_loss_without_tokens():
    loss, gradient = boundary_loss([gold_of([]).offsets], [0], np.zeros((0, 2), dtype="f"), ops=OPS)
    assert loss == 0.0
    assert gradient.shape == (0, 2)
