"""Tag scores of tokens, against a loop over documents and tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.modules.tag_projector import START_BIAS, TagProjector

from .. import reference

WIDTH, N_SCORES, N_EDGES, N_LINKS = 3, 4, 6, 8


def make_projector(window, seed=0, n_links=N_LINKS):
    torch.manual_seed(seed)
    projector = TagProjector(WIDTH, N_SCORES, N_EDGES, n_links, window).double()
    with torch.no_grad():
        projector.edges.normal_()
    return projector


def make_tokens(n_tokens, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n_tokens, WIDTH, generator=generator, dtype=torch.double)


def expected_rows(projector, tokens, lengths):
    context = projector.context
    if context is not None:
        tokens = reference.context_of(
            list(tokens.split(lengths)), context.taps, context.mix.weight, context.mix.bias
        )
    rows = [projector.project.weight @ token + projector.project.bias for token in tokens]
    n_columns = projector.project.out_features
    return torch.stack(rows) if rows else tokens.new_zeros(0, n_columns)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.integers(0, 3),
    st.sampled_from([0, N_LINKS]),
)
def test_rows_match_the_loop_over_documents_and_edges_are_the_weights(lengths, window, n_links):
    projector = make_projector(window, n_links=n_links)
    tokens = make_tokens(sum(lengths)).requires_grad_()
    rows, edges = projector(tokens, torch.tensor(lengths))
    expected = expected_rows(projector, tokens, lengths)
    assert rows.shape == (sum(lengths), N_SCORES + n_links)
    torch.testing.assert_close(rows, expected)
    assert torch.equal(edges, projector.edges)
    generator = torch.Generator().manual_seed(2)
    weights = torch.randn(rows.shape, generator=generator, dtype=torch.double)
    parameters = [tokens, projector.project.weight, projector.project.bias]
    if sum(lengths):
        found = torch.autograd.grad((rows * weights).sum(), parameters)
        wanted = torch.autograd.grad((expected * weights).sum(), parameters)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)


def test_edges_learn_and_can_be_changed_without_changing_the_module():
    projector = make_projector(1)
    _, edges = projector(make_tokens(2), torch.tensor([2]))
    weights = torch.arange(N_EDGES, dtype=torch.double)
    (gradient,) = torch.autograd.grad((edges * weights).sum(), projector.edges)
    assert torch.equal(gradient, weights)
    before = projector.edges.detach().clone()
    edges.detach().zero_()
    assert torch.equal(projector.edges, before)


def test_tag_sequences_start_without_any_preference():
    assert not TagProjector(WIDTH, N_SCORES, N_EDGES, 0, 1).edges.any()


def test_context_does_not_cross_documents():
    projector, lengths = make_projector(3), [2, 3]
    tokens = make_tokens(5).requires_grad_()
    rows, _ = projector(tokens, torch.tensor(lengths))
    (gradient,) = torch.autograd.grad(rows[:2].sum(), tokens)
    assert gradient[:2].all()
    assert not gradient[2:].any()
    alone = [projector(own, torch.tensor([len(own)]))[0] for own in tokens.split(lengths)]
    torch.testing.assert_close(rows, torch.cat(alone))


def test_set_bias_sets_the_scores_of_tags_alone():
    projector = make_projector(0)
    links = projector.project.bias[N_SCORES:].detach().clone()
    projector.set_bias([-1.0, 0.5, 2.0, -4.0])
    assert projector.project.bias[:N_SCORES].tolist() == [-1.0, 0.5, 2.0, -4.0]
    assert torch.equal(projector.project.bias[N_SCORES:], links)


@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize("n_links", [0, N_LINKS])
def test_resized_keeps_what_is_there_and_new_tags_are_unlikely(window, n_links):
    projector = make_projector(window, n_links=n_links).float()
    tokens, lengths = make_tokens(5).float(), torch.tensor([3, 2])
    before, edges_before = projector(tokens, lengths)
    # Old scores and edges come to stand between new ones.
    scores, edges = torch.tensor([0, 1, 3, 5]), torch.tensor([0, 2, 3, 4, 8, 9])
    resized = projector.resized(7, 10, scores, edges)
    after, edges_after = resized(tokens, lengths)
    assert after.shape == (5, 7 + n_links)
    kept = torch.cat([scores, 7 + torch.arange(n_links)])
    assert torch.equal(resized.project.weight[kept], projector.project.weight)
    assert torch.equal(resized.project.bias[kept], projector.project.bias)
    torch.testing.assert_close(after[:, kept], before, rtol=0, atol=1e-6)
    assert torch.equal(edges_after[edges], edges_before)
    assert after[:, [2, 4, 6]].tolist() == [[START_BIAS] * 3] * 5
    assert edges_after[[1, 5, 6, 7]].tolist() == [0.0] * 4
    # A copy: training it leaves the original as it was.
    with torch.no_grad():
        for parameter in resized.parameters():
            parameter.zero_()
    assert torch.equal(projector(tokens, lengths)[0], before)


def test_nothing_has_no_rows():
    for window in (0, 2):
        for lengths in ([], [0, 0]):
            rows, edges = make_projector(window)(
                make_tokens(0), torch.tensor(lengths, dtype=torch.int64)
            )
            assert rows.shape == (0, N_SCORES + N_LINKS)
            assert edges.shape == (N_EDGES,)
