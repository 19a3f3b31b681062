"""The span classifier, against a loop that gathers and averages the tokens of each span."""

from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.modules import span_classifier
from spacy_spans.modules.span_classifier import SpanClassifier, length_buckets

from .. import reference

HIDDEN, N_CLASSES = 3, 2
WIDTH = 3 * HIDDEN + 2


def make_classifier(n_classes=N_CLASSES, seed=0):
    torch.manual_seed(seed)
    classifier = SpanClassifier(HIDDEN, n_classes).double()
    classifier.set_bias([0.1 * (i + 1) for i in range(n_classes)])
    return classifier


def make_tokens(n_tokens, seed=1, dtype=torch.double):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n_tokens, WIDTH, generator=generator, dtype=torch.double).to(dtype)


def offsets_of(spans):
    return torch.tensor(spans, dtype=torch.int32).reshape(-1, 2)


def expected_logits(classifier, tokens, spans):
    return reference.span_logits_of(
        tokens,
        spans,
        classifier.length.weight,
        classifier.classify.weight,
        classifier.classify.bias,
    )


def inputs_of(classifier, tokens):
    return [tokens, *classifier.parameters()]


def gradients(output, inputs, seed=2):
    """Gradients of a fixed random projection of the output."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    return torch.autograd.grad((output * weights).sum(), inputs)


def assert_all_close(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


tokens_and_spans = st.integers(1, 14).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(
            st.tuples(st.integers(0, n - 1), st.integers(1, n)).map(
                lambda x: (x[0], min(n, x[0] + x[1]))
            ),
            min_size=1,
            max_size=10,
        ),
    )
)


@settings(max_examples=40, deadline=None)
@given(tokens_and_spans)
def test_logits_and_gradients_match_the_loop(case):
    n_tokens, spans = case
    classifier = make_classifier()
    tokens = make_tokens(n_tokens).requires_grad_()
    output = classifier(tokens, offsets_of(spans))
    expected = expected_logits(classifier, tokens, spans)
    torch.testing.assert_close(output, expected)
    inputs = inputs_of(classifier, tokens)
    assert_all_close(gradients(output, inputs), gradients(expected, inputs))


@settings(max_examples=25, deadline=None)
@given(tokens_and_spans, st.integers(1, 4))
def test_chunks_change_neither_logits_nor_gradients(case, spans_per_chunk):
    n_tokens, spans = case
    classifier = make_classifier()
    tokens = make_tokens(n_tokens).requires_grad_()
    whole = classifier(tokens, offsets_of(spans))
    inputs = inputs_of(classifier, tokens)
    whole_gradients = gradients(whole, inputs)
    with mock.patch.object(
        span_classifier, "FEATURES_PER_CHUNK", spans_per_chunk * classifier.hidden
    ):
        chunked = classifier(tokens, offsets_of(spans))
        torch.testing.assert_close(chunked, whole)
        assert_all_close(gradients(chunked, inputs), whole_gradients)
        with torch.no_grad():
            torch.testing.assert_close(classifier(tokens, offsets_of(spans)), whole.detach())


def test_chunks_of_random_order_match_the_loop():
    classifier = make_classifier()
    tokens = make_tokens(50).requires_grad_()
    generator = torch.Generator().manual_seed(3)
    starts = torch.randint(0, 40, (64,), generator=generator).tolist()
    lengths = torch.randint(1, 10, (64,), generator=generator).tolist()
    spans = [(start, start + length) for start, length in zip(starts, lengths, strict=True)]
    expected = expected_logits(classifier, tokens, spans)
    inputs = inputs_of(classifier, tokens)
    wanted = gradients(expected, inputs)
    with mock.patch.object(span_classifier, "FEATURES_PER_CHUNK", 7 * classifier.hidden):
        output = classifier(tokens, offsets_of(spans))
        torch.testing.assert_close(output, expected)
        assert_all_close(gradients(output, inputs), wanted)


def test_gradients_match_finite_differences():
    classifier = make_classifier()
    tokens = make_tokens(6).requires_grad_()
    offsets = offsets_of([(0, 6), (2, 3), (1, 5)])
    assert torch.autograd.gradcheck(lambda x: classifier(x, offsets), (tokens,))


def test_a_span_reads_its_first_last_and_own_tokens_and_no_boundary_score():
    classifier = make_classifier()
    tokens = make_tokens(7).requires_grad_()
    (gradient,) = torch.autograd.grad(classifier(tokens, offsets_of([(2, 5)])).sum(), tokens)
    roles = {
        "start": gradient[:, :HIDDEN],
        "end": gradient[:, HIDDEN : 2 * HIDDEN],
        "content": gradient[:, 2 * HIDDEN : 3 * HIDDEN],
        "boundary scores": gradient[:, 3 * HIDDEN :],
    }
    read = {role: part.any(dim=1).nonzero().flatten().tolist() for role, part in roles.items()}
    assert read == {"start": [2], "end": [4], "content": [2, 3, 4], "boundary scores": []}


@pytest.mark.parametrize("n_tokens", [0, 5])
@pytest.mark.parametrize("grad", [True, False])
def test_no_spans_give_no_rows_and_a_gradient_of_zeros(n_tokens, grad):
    classifier = make_classifier()
    tokens = make_tokens(n_tokens).requires_grad_(grad)
    output = classifier(tokens, offsets_of([]))
    assert output.shape == (0, N_CLASSES)
    output.sum().backward()
    assert tokens.grad is None or not tokens.grad.any()
    assert not classifier.classify.weight.grad.any()


def test_offsets_of_either_integer_type_give_the_same():
    classifier = make_classifier()
    tokens, offsets = make_tokens(5), offsets_of([(0, 2), (1, 5)])
    torch.testing.assert_close(classifier(tokens, offsets.long()), classifier(tokens, offsets))


@pytest.mark.parametrize("mean", [0.0, 3.0])
@pytest.mark.parametrize("also_far_apart", [False, True])
def test_short_spans_late_in_a_long_document_stay_precise(mean, also_far_apart):
    # Prefix sums of one-sided features grow with the document: what is left of a short span's
    # content after subtracting them in single precision is noise, unless care is taken.
    n_tokens = 100_000
    classifier = make_classifier()
    tokens = make_tokens(n_tokens) + mean
    spans = [(n_tokens - 1 - i, n_tokens - i) for i in range(20)]
    spans += [(n_tokens - 7, n_tokens - 4), (n_tokens - 30, n_tokens)]
    if also_far_apart:
        spans = [(0, 1), (5, 9), (n_tokens // 2, n_tokens // 2 + 1), *spans]
    expected = expected_logits(classifier, tokens, spans)
    output = classifier.float()(tokens.float(), offsets_of(spans))
    torch.testing.assert_close(output.double(), expected, atol=1e-4, rtol=0)


def test_very_long_spans_stay_precise_with_their_gradients():
    n_tokens = 20_000
    classifier = make_classifier().float()
    tokens = (make_tokens(n_tokens) + 3.0).float().requires_grad_()
    offsets = offsets_of([(0, n_tokens), (10, n_tokens - 10), (n_tokens - 1, n_tokens)])
    (gradient,) = torch.autograd.grad(classifier(tokens, offsets).sum(), tokens)
    exact = tokens.detach().double().requires_grad_()
    (wanted,) = torch.autograd.grad(classifier.double()(exact, offsets).sum(), exact)
    torch.testing.assert_close(gradient.double(), wanted, atol=1e-6, rtol=1e-3)


def test_length_buckets_are_single_up_to_8_and_then_four_to_a_doubling():
    edges = {9: 8, 10: 9, 11: 9, 12: 10, 13: 10, 14: 11, 15: 11, 16: 12, 19: 12, 20: 13, 22: 13}
    edges |= {23: 14, 26: 14, 27: 15, 31: 15, 32: 16, 64: 20, 128: 24, 1024: 36, 100_000: 47}
    lengths = [*range(1, 9), *edges]
    found = length_buckets(torch.tensor(lengths))
    assert found.tolist() == [*range(8), *edges.values()]
    assert found.dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_length_buckets_match_integer_arithmetic_and_grow(dtype):
    n = span_classifier.N_LENGTH_BUCKETS
    found = length_buckets(torch.arange(1, 9000, dtype=dtype)).tolist()
    assert found == [reference.length_bucket(length, n) for length in range(1, 9000)]
    assert found == sorted(found)
    assert set(found) == set(range(n))


def test_no_lengths_have_no_buckets():
    assert length_buckets(torch.zeros(0, dtype=torch.int32)).tolist() == []


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_resized_keeps_the_old_outputs_and_starts_the_new_ones_low(n_classes):
    classifier = make_classifier()
    tokens, offsets = make_tokens(6), offsets_of([(0, 2), (1, 6), (5, 6)])
    before = classifier(tokens, offsets)
    resized = classifier.resized(n_classes).double()
    after = resized(tokens, offsets)
    assert after.shape == (3, n_classes)
    torch.testing.assert_close(after[:, :N_CLASSES], before, atol=1e-6, rtol=0)
    # Whatever the span is like.
    expected = torch.full_like(after[:, N_CLASSES:], 0.1)
    torch.testing.assert_close(after[:, N_CLASSES:], expected, atol=1e-6, rtol=0)
    # A copy: training it leaves the original as it was.
    with torch.no_grad():
        for parameter in resized.parameters():
            parameter.zero_()
    assert torch.equal(classifier(tokens, offsets), before)


def test_set_bias_sets_the_logit_of_a_span_without_features():
    classifier = SpanClassifier(HIDDEN, 3)
    with torch.no_grad():
        classifier.length.weight.zero_()
    classifier.set_bias([-1.0, -2.5, 0.0])
    logits = classifier(torch.zeros(2, WIDTH), offsets_of([(0, 2)]))
    assert logits.tolist() == [[-1.0, -2.5, 0.0]]
