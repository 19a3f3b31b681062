"""Context and projection of tokens, against loops over documents and tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.modules.token_projector import ContextLayer, TokenProjector

from .. import reference

WIDTH = 3


def make_context(window, seed=0):
    torch.manual_seed(seed)
    return ContextLayer(WIDTH, window).double()


def make_tokens(n_tokens, width=WIDTH, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n_tokens, width, generator=generator, dtype=torch.double)


def gradients(output, inputs, seed=2):
    """Gradients of a fixed random projection of the output."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    return torch.autograd.grad((output * weights).sum(), inputs)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(1, 4))
def test_context_matches_the_loop_over_documents_forward_and_backward(lengths, window):
    layer = make_context(window)
    tokens = make_tokens(sum(lengths)).requires_grad_()
    inputs = [tokens, layer.taps, layer.mix.weight, layer.mix.bias]
    output = layer(tokens, torch.tensor(lengths))
    expected = reference.context_of(
        list(tokens.split(lengths)), layer.taps, layer.mix.weight, layer.mix.bias
    )
    torch.testing.assert_close(output, expected)
    if sum(lengths):
        for found, wanted in zip(
            gradients(output, inputs), gradients(expected, inputs), strict=True
        ):
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("lengths", [[0, 2, 0, 0, 3, 0], [0, 0, 4], [4, 0], [1], [1, 1, 1]])
def test_context_takes_empty_documents_anywhere(lengths):
    layer = make_context(2)
    tokens = make_tokens(sum(lengths))
    output = layer(tokens, torch.tensor(lengths))
    expected = reference.context_of(
        list(tokens.split(lengths)), layer.taps, layer.mix.weight, layer.mix.bias
    )
    torch.testing.assert_close(output, expected)


def test_context_gradients_match_finite_differences():
    layer = make_context(2)
    lengths = torch.tensor([2, 0, 3])
    tokens = make_tokens(5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: layer(x, lengths), (tokens,))


def test_nothing_leaks_from_one_document_to_the_next():
    layer = make_context(3)
    lengths = torch.tensor([2, 1, 2])
    tokens = make_tokens(5)
    changed = tokens.clone()
    changed[2] += 1.0
    same = layer(tokens, lengths) == layer(changed, lengths)
    assert same.all(dim=1).tolist() == [True, True, False, True, True]
    tokens.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(tokens, lengths)[2].sum(), tokens)
    assert gradient.any(dim=1).tolist() == [False, False, True, False, False]


def test_context_sees_exactly_the_window():
    layer = make_context(2)
    tokens = make_tokens(9).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(tokens, torch.tensor([9]))[4].sum(), tokens)
    assert gradient.any(dim=1).tolist() == [
        False,
        False,
        True,
        True,
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_document_is_projected_alike_alone_and_in_a_batch():
    torch.manual_seed(0)
    projector = TokenProjector(WIDTH, hidden=2, window=2).double()
    tokens = make_tokens(7)
    batch = projector(tokens, torch.tensor([3, 0, 4]))
    torch.testing.assert_close(batch[:3], projector(tokens[:3], torch.tensor([3])))
    torch.testing.assert_close(batch[3:], projector(tokens[3:], torch.tensor([4])))


def test_columns_are_start_end_content_then_the_two_boundary_scores():
    projector = TokenProjector(width=1, hidden=2, window=0)
    with torch.no_grad():
        projector.project.weight.copy_(torch.arange(1.0, 9.0).unsqueeze(1))
        projector.project.bias.copy_(10 * torch.arange(1.0, 9.0))
    output = projector(torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 1]))
    assert output.tolist() == [
        [11, 22, 33, 44, 55, 66, 77, 88],
        [9, 18, 27, 36, 45, 54, 63, 72],
    ]


def test_projection_follows_the_context():
    torch.manual_seed(0)
    projector = TokenProjector(WIDTH, hidden=2, window=1).double()
    context = projector.context
    tokens, lengths = make_tokens(5), [2, 3]
    seen = reference.context_of(
        list(tokens.split(lengths)), context.taps, context.mix.weight, context.mix.bias
    )
    expected = seen @ projector.project.weight.T + projector.project.bias
    torch.testing.assert_close(projector(tokens, torch.tensor(lengths)), expected)


def test_without_a_window_tokens_see_only_themselves():
    projector = TokenProjector(WIDTH, hidden=2, window=0).double()
    tokens = make_tokens(3).requires_grad_()
    (gradient,) = torch.autograd.grad(projector(tokens, torch.tensor([3]))[1].sum(), tokens)
    assert gradient.any(dim=1).tolist() == [False, True, False]


@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_no_tokens_give_no_rows_and_a_gradient_of_zeros(window, lengths):
    projector = TokenProjector(WIDTH, hidden=2, window=window).double()
    tokens = make_tokens(0).requires_grad_()
    output = projector(tokens, torch.tensor(lengths, dtype=torch.long))
    assert output.shape == (0, 8)
    output.sum().backward()
    assert tokens.grad.shape == (0, WIDTH)
    assert all(p.grad is None or not p.grad.any() for p in projector.parameters())
