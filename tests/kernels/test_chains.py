"""Chains of tags, against all legal paths, plain loops and finite differences."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.kernels.chains import (
    chain_loss,
    infer,
    make_chain,
    scan,
    span_log_probabilities,
    viterbi,
)

from .. import reference_tags as reference
from .chains import (
    N_LAYERS,
    TABLES,
    assert_legal,
    by_table,
    every_span,
    firsts_of,
    legal_tags,
    scores_of,
    seldom,
)

# Tokens per document, few enough to list all paths; and the seed and the spread of the scores.
# With a spread of 0 all paths are equally good.
batches = st.tuples(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.integers(0, 999),
    st.sampled_from([0.0, 0.3, 3.0, 15.0]),
)


def chain_of(table, batch):
    lengths, seed, spread = batch
    return make_chain(table, *scores_of(table, sum(lengths), seed, spread), firsts_of(lengths))


# The best path


@by_table
@seldom
@given(batches)
def test_viterbi_finds_a_legal_path_as_good_as_the_best_of_all(table, batch):
    chain = chain_of(table, batch)
    tags = viterbi(chain)
    assert tags.dtype == np.int32
    assert_legal(table, tags, chain.is_first)
    for layer in range(N_LAYERS):
        for first, length in reference.documents_of(chain.is_first):
            paths = reference.legal_paths(chain, layer, first, length)
            own = tuple(tags[first : first + length, layer].tolist())
            assert paths[own] == pytest.approx(max(paths.values()), abs=1e-9)


@by_table
def test_ties_are_broken_within_what_is_legal(table):
    lengths = [1, 5, 2, 1, 1, 9]
    for value in (0.0, 7.0, -7.0):
        emissions, edges = scores_of(table, sum(lengths), 0, 0.0)
        chain = make_chain(table, emissions + value, edges + value, firsts_of(lengths))
        assert_legal(table, viterbi(chain), chain.is_first)


def test_the_best_path_by_hand():
    # I, I scores most, but no document starts with I: B, I is next.
    emissions = np.asarray([[[0.0, 1.0, 5.0]], [[0.0, 0.0, 5.0]], [[2.0, 0.0, 1.0]]])
    edges = np.zeros((1, 5, 3))
    one, three = firsts_of([3]), firsts_of([1, 1, 1])
    table = TABLES["bio-1"]
    assert viterbi(make_chain(table, emissions, edges, one))[:, 0].tolist() == [1, 2, 0]
    # Documents of one token each: the second cannot go on with the first.
    assert viterbi(make_chain(table, emissions, edges, three))[0, 0] == 1
    assert 2 not in viterbi(make_chain(table, emissions, edges, three))
    # A learned dislike of O after I, of more than 1.
    edges[0, 2, 0] = -1.5
    assert viterbi(make_chain(table, emissions, edges, one))[:, 0].tolist() == [1, 2, 2]
    # And a liking of documents for ending with O that outdoes it.
    edges[0, 4, 0] = 1.0
    assert viterbi(make_chain(table, emissions, edges, one))[:, 0].tolist() == [1, 2, 0]


# Sums over paths


@by_table
@seldom
@given(batches)
def test_totals_and_marginals_match_the_sums_over_all_paths(table, batch):
    chain = chain_of(table, batch)
    posterior = infer(chain)
    np.testing.assert_allclose(posterior.marginals.sum(axis=-1), 1.0)
    np.testing.assert_allclose(
        posterior.log_total, reference.forward_totals(chain, np.logaddexp.reduce), rtol=1e-9
    )
    for layer in range(N_LAYERS):
        total = 0.0
        for first, length in reference.documents_of(chain.is_first):
            paths = reference.legal_paths(chain, layer, first, length)
            own = reference.log_sum(paths.values())
            total += own
            expected = np.zeros((length, table.n_tags))
            for path, score in paths.items():
                expected[np.arange(length), path] += math.exp(score - own)
            found = posterior.marginals[first : first + length, layer]
            np.testing.assert_allclose(found, expected, atol=1e-9)
            assert np.all(found[expected == 0] == 0)
        assert posterior.log_total[layer] == pytest.approx(total)


@by_table
@seldom
@given(batches)
def test_span_probabilities_match_the_share_of_paths_that_decode_to_them(table, batch):
    chain = chain_of(table, batch)
    spans, layers, labels = every_span(table, batch[0])
    found = span_log_probabilities(table, chain, infer(chain), spans, layers, labels)
    shares = [
        reference.span_shares(table.scheme.name, table.n_labels, chain, layer)
        for layer in range(N_LAYERS)
    ]
    rows = zip(spans.tolist(), layers.tolist(), labels.tolist(), strict=True)
    expected = [shares[layer].get((*span, label), 0.0) for span, layer, label in rows]
    np.testing.assert_allclose(np.exp(found), expected, atol=1e-9)
    assert np.all(found <= 1e-9)


def test_span_probabilities_by_hand():
    # All 8 paths of two tokens in bio count the same: OO OB BO BB BI.
    table = TABLES["bio-1"]
    chain = make_chain(table, np.zeros((2, 1, 3)), np.zeros((1, 5, 3)), firsts_of([2]))
    spans, none = np.asarray([[0, 1], [1, 2], [0, 2]]), np.zeros(3, dtype=int)
    values = span_log_probabilities(table, chain, infer(chain), spans, none, none)
    np.testing.assert_allclose(np.exp(values), [2 / 5, 2 / 5, 1 / 5])


@by_table
def test_what_is_illegal_has_no_probability(table):
    lengths = [1, 4, 2]
    emissions, edges = scores_of(table, sum(lengths), 0, 1.0)
    outsiders = ~table.may_start
    emissions[:, :, outsiders] += 30.0
    chain = make_chain(table, emissions, edges, firsts_of(lengths))
    marginals = infer(chain).marginals
    is_last = np.append(chain.is_first[1:], True)
    assert np.all(marginals[chain.is_first][..., outsiders] == 0)
    assert np.all(marginals[is_last][..., ~table.may_end] == 0)
    assert np.all(chain.transitions[:, ~table.legal] == -np.inf)


# The loss


@by_table
@seldom
@given(batches)
def test_the_loss_is_minus_the_log_of_the_share_of_the_gold_path(table, batch):
    lengths, seed, spread = batch
    emissions, edges = scores_of(table, sum(lengths), seed, spread)
    gold = legal_tags(table, lengths, seed + 1)
    chain = chain_of(table, batch)
    expected = 0.0
    for layer in range(N_LAYERS):
        for first, length in reference.documents_of(chain.is_first):
            paths = reference.legal_paths(chain, layer, first, length)
            own = tuple(gold[first : first + length, layer].tolist())
            expected += reference.log_sum(paths.values()) - paths[own]
    loss, _, _ = chain_loss(table, emissions, edges, firsts_of(lengths), gold)
    assert isinstance(loss, float)
    assert loss == pytest.approx(expected, abs=1e-8)


@by_table
@pytest.mark.parametrize("lengths", [[1], [3], [2, 1, 1, 3]], ids=str)
def test_gradients_of_the_loss_match_finite_differences(table, lengths):
    is_first = firsts_of(lengths)
    emissions, edges = scores_of(table, sum(lengths), 3, 1.5)
    gold = legal_tags(table, lengths, 4)
    _, d_emissions, d_edges = chain_loss(table, emissions, edges, is_first, gold)
    np.testing.assert_allclose(
        d_emissions,
        reference.slopes(lambda x: chain_loss(table, x, edges, is_first, gold)[0], emissions),
        atol=1e-6,
    )
    np.testing.assert_allclose(
        d_edges,
        reference.slopes(lambda x: chain_loss(table, emissions, x, is_first, gold)[0], edges),
        atol=1e-6,
    )


def test_single_precision_and_inputs_are_left_as_they_are():
    table, lengths = TABLES["bio-1"], [3, 2]
    scores = [values.astype("f") for values in scores_of(table, 5, 0, 1.0)]
    copies = [values.copy() for values in scores]
    gold = legal_tags(table, lengths, 1)
    loss, d_emissions, d_edges = chain_loss(table, *scores, firsts_of(lengths), gold)
    exact = chain_loss(table, *(values.astype("d") for values in scores), firsts_of(lengths), gold)
    assert loss == exact[0]
    assert (d_emissions == exact[1]).all()
    assert (d_edges == exact[2]).all()
    assert all((one == other).all() for one, other in zip(scores, copies, strict=True))


# Scan


# x -> a * x + b, which does not commute.
affine = st.lists(st.tuples(st.integers(-2, 2), st.integers(-5, 5)), max_size=20)


def combine_affine(first, second):
    return np.stack([second[:, 0] * first[:, 0], second[:, 0] * first[:, 1] + second[:, 1]], axis=1)


def apply_affine(states, maps):
    return maps[:, 0] * states + maps[:, 1]


@settings(max_examples=100, deadline=None)
@given(affine, st.integers(-3, 3))
def test_scan_matches_the_loop(maps, first):
    items = np.asarray(maps, dtype=np.int64).reshape(-1, 2)
    states = scan(items, np.asarray(first), combine_affine, apply_affine)
    expected, state = [], first
    for a, b in maps:
        state = a * state + b
        expected.append(state)
    assert states.tolist() == expected


@pytest.mark.parametrize("n", range(21))
def test_scan_at_every_length(n):
    # Appending letters: the state spells out what came before, in order.
    items = np.arange(n) % 9 + 1
    maps = np.stack([np.full(n, 10), items], axis=1).astype(object)
    states = scan(maps, np.asarray(0, dtype=object), combine_affine, apply_affine)
    letters = "".join(map(str, items.tolist()))
    assert states.tolist() == [int(letters[: i + 1]) for i in range(n)]
