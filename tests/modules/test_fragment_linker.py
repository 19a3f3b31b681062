"""Scores of pairs of fragments, against a loop over pairs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.modules.fragment_linker import N_ROLES, START_BIAS, FragmentLinker

from .. import reference_tags as reference

HIDDEN, N_LABELS = 2, 3


def make_linker(seed=0):
    torch.manual_seed(seed)
    return FragmentLinker(N_ROLES * HIDDEN, N_LABELS).double()


def make_features(n_tokens, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n_tokens, N_ROLES * HIDDEN, generator=generator, dtype=torch.double)


def as_pairs(rows):
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 4)


def expected_logits(linker, features, rows):
    classify = linker.classify
    return reference.link_logits_of(
        features, rows, linker.gap.weight, classify.weight, classify.bias
    )


# Two fragments by the length of the first, of the gap, and of the second.
pairs_of_fragments = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 20), st.integers(1, 3)).map(
        lambda x: (x[0], x[0] + x[1], x[0] + x[1] + x[2], x[0] + x[1] + x[2] + x[3])
    ),
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(pairs_of_fragments)
def test_logits_and_gradients_match_the_loop(rows):
    linker = make_linker()
    features = make_features(30).requires_grad_()
    logits = linker(features, as_pairs(rows))
    expected = expected_logits(linker, features, rows)
    assert logits.shape == (len(rows), N_LABELS)
    torch.testing.assert_close(logits, expected)
    if rows:
        weights = torch.randn(logits.shape, dtype=torch.double)
        inputs = [features, *linker.parameters()]
        found = torch.autograd.grad((logits * weights).sum(), inputs)
        wanted = torch.autograd.grad((expected * weights).sum(), inputs)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_features_may_be_columns_of_more(dtype):
    linker = make_linker()
    rows = torch.cat([make_features(9, seed=3)[:, :7], make_features(9)], dim=1)
    pairs = [(0, 2, 3, 4), (1, 2, 7, 9)]
    logits = linker(rows[:, 7:], as_pairs(pairs).to(dtype))
    torch.testing.assert_close(logits, expected_logits(linker, make_features(9), pairs))


def test_links_start_as_rare():
    linker = FragmentLinker(N_ROLES * HIDDEN, N_LABELS)
    assert linker.classify.bias.tolist() == [START_BIAS] * N_LABELS


def test_no_pairs_have_no_logits():
    for n_tokens in (0, 4):
        assert make_linker()(make_features(n_tokens), as_pairs([])).shape == (0, N_LABELS)


@pytest.mark.parametrize("n_labels", [3, 5])
def test_resized_keeps_the_old_outputs_and_new_labels_are_unlikely(n_labels):
    linker = make_linker().float()
    features, pairs = make_features(12).float(), as_pairs([(0, 2, 3, 4), (1, 2, 9, 12)])
    before = linker(features, pairs)
    resized = linker.resized(n_labels)
    after = resized(features, pairs)
    assert after.shape == (2, n_labels)
    assert torch.equal(resized.classify.weight[:N_LABELS], linker.classify.weight)
    torch.testing.assert_close(after[:, :N_LABELS], before, rtol=0, atol=1e-6)
    assert after[:, N_LABELS:].tolist() == [[START_BIAS] * (n_labels - N_LABELS)] * 2
    # A copy: training it leaves the original as it was.
    with torch.no_grad():
        for parameter in resized.parameters():
            parameter.zero_()
    assert torch.equal(linker(features, pairs), before)


def test_what_stands_between_decides():
    linker, features = make_linker(), make_features(9)
    pairs = as_pairs([(0, 2, 4, 5)])
    other = features.clone()
    # Only the last role of the two tokens of the gap.
    other[2:4, -HIDDEN:] += 1.0
    assert not torch.allclose(linker(features, pairs), linker(other, pairs))
    # Their sum counts, not their order; and no token beside the gap.
    swapped = features.clone()
    swapped[[2, 3], -HIDDEN:] = features[[3, 2], -HIDDEN:]
    swapped[[0, 1, 4, 5], -HIDDEN:] += 1.0
    torch.testing.assert_close(linker(features, pairs), linker(swapped, pairs))
