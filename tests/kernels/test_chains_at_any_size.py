"""Chains of tags in batches and blocks, with extreme scores, long ones, and none at all."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.kernels import chains
from spacy_spans.kernels.chains import (
    LOWEST,
    chain_loss,
    infer,
    make_chain,
    span_log_probabilities,
    viterbi,
)
from spacy_spans.kernels.schemes import decode_chain

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


@by_table
@seldom
@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(0, 999))
def test_documents_do_not_know_of_each_other(table, lengths, seed):
    emissions, edges = scores_of(table, sum(lengths), seed, 2.0)
    gold = legal_tags(table, lengths, seed + 1)
    spans, layers, labels = every_span(table, lengths)
    chain = make_chain(table, emissions, edges, firsts_of(lengths))
    whole = infer(chain)
    values = span_log_probabilities(table, chain, whole, spans, layers, labels)
    loss, d_emissions, d_edges = chain_loss(table, emissions, edges, firsts_of(lengths), gold)
    best = viterbi(chain)
    total, sum_of_losses, sum_of_edges = np.zeros(N_LAYERS), 0.0, np.zeros(edges.shape)
    for first, length in reference.documents_of(chain.is_first):
        own = slice(first, first + length)
        alone = make_chain(table, emissions[own], edges, firsts_of([length]))
        posterior = infer(alone)
        total += posterior.log_total
        np.testing.assert_allclose(whole.marginals[own], posterior.marginals, atol=1e-9)
        assert (best[own] == viterbi(alone)).all()
        here = (spans[:, 0] >= first) & (spans[:, 1] <= first + length)
        np.testing.assert_allclose(
            values[here],
            span_log_probabilities(
                table, alone, posterior, spans[here] - first, layers[here], labels[here]
            ),
            atol=1e-8,
        )
        own_loss, d_own, d_edge = chain_loss(
            table, emissions[own], edges, firsts_of([length]), gold[own]
        )
        np.testing.assert_allclose(d_emissions[own], d_own, atol=1e-9)
        sum_of_losses += own_loss
        sum_of_edges += d_edge
    np.testing.assert_allclose(whole.log_total, total)
    assert loss == pytest.approx(sum_of_losses)
    np.testing.assert_allclose(d_edges, sum_of_edges, atol=1e-9)


@by_table
def test_layers_do_not_know_of_each_other(table):
    lengths = [4, 1, 3]
    emissions, edges = scores_of(table, 8, 5, 2.0, n_layers=3)
    gold = legal_tags(table, lengths, 6, n_layers=3)
    is_first = firsts_of(lengths)
    loss, d_emissions, d_edges = chain_loss(table, emissions, edges, is_first, gold)
    best = viterbi(make_chain(table, emissions, edges, is_first))
    sum_of_losses = 0.0
    for layer in range(3):
        one = slice(layer, layer + 1)
        alone = chain_loss(table, emissions[:, one], edges[one], is_first, gold[:, one])
        sum_of_losses += alone[0]
        np.testing.assert_allclose(d_emissions[:, one], alone[1], atol=1e-12)
        np.testing.assert_allclose(d_edges[one], alone[2], atol=1e-12)
        chain = make_chain(table, emissions[:, one], edges[one], is_first)
        assert (best[:, one] == viterbi(chain)).all()
    assert loss == pytest.approx(sum_of_losses)


@by_table
@pytest.mark.parametrize("size", [1, 60, 150, 700])
def test_the_size_of_blocks_has_no_influence(monkeypatch, table, size):
    lengths = [7, 1, 1, 12, 4]
    emissions, edges = scores_of(table, sum(lengths), 7, 2.0)
    gold = legal_tags(table, lengths, 8)
    spans, layers, labels = every_span(table, lengths)

    def results():
        chain = make_chain(table, emissions, edges, firsts_of(lengths))
        posterior = infer(chain)
        return [
            viterbi(chain),
            posterior.log_total,
            posterior.marginals,
            np.exp(span_log_probabilities(table, chain, posterior, spans, layers, labels)),
            *chain_loss(table, emissions, edges, firsts_of(lengths), gold),
        ]

    expected = results()
    monkeypatch.setattr(chains, "NUMBERS_PER_BLOCK", size)
    for found, wanted in zip(results(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@by_table
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.integers(0, 999),
    st.sampled_from([[0.0], [1e4], [-1e4], [1e4, -1e4], [1e4, -1e4, 0.0], [60.0, -60.0, 0.0]]),
)
def test_extreme_scores_give_what_a_loop_gives(table, lengths, seed, values):
    random = np.random.default_rng(seed)
    emissions = random.choice(values, size=(sum(lengths), N_LAYERS, table.n_tags))
    edges = random.choice(values, size=(N_LAYERS, table.n_tags + 2, table.n_tags))
    is_first = firsts_of(lengths)
    chain = make_chain(table, emissions, edges, is_first)
    posterior = infer(chain)
    totals = reference.forward_totals(chain, np.logaddexp.reduce)
    np.testing.assert_allclose(posterior.log_total, totals, rtol=1e-12, atol=1e-6)
    np.testing.assert_allclose(posterior.marginals.sum(axis=-1), 1.0)
    best = viterbi(chain)
    assert_legal(table, best, is_first)
    loss, d_emissions, d_edges = chain_loss(table, emissions, edges, is_first, best)
    assert -1e-6 <= loss < math.inf
    assert np.isfinite(d_emissions).all()
    assert np.isfinite(d_edges).all()
    spans, layers, labels = every_span(table, lengths)
    found = span_log_probabilities(table, chain, posterior, spans, layers, labels)
    assert not np.isnan(found).any()
    assert np.all(found < 1e-6)


def test_scores_stay_within_what_doubles_can_tell_apart():
    table = TABLES["io-1"]
    emissions, edges = np.asarray([[[1e4, -1e4]]]), np.full((1, 4, 2), 1e4)
    chain = make_chain(table, emissions, edges, firsts_of([1]))
    assert chain.emissions.tolist() == [[[1e4, 1e4 - LOWEST]]]
    assert chain.transitions.tolist() == [[[LOWEST] * 2] * 2]
    # The loss of an unlikely path counts with the same numbers.
    loss, d_emissions, _ = chain_loss(table, emissions, edges, firsts_of([1]), np.ones((1, 1), "i"))
    assert loss == pytest.approx(LOWEST)
    np.testing.assert_allclose(d_emissions, [[[1, -1]]])


@pytest.mark.parametrize("name", ["bio-1", "bioes-1"])
@pytest.mark.parametrize("lengths", [[20_000], [30] * 600], ids=["one", "many"])
def test_long_chains_match_a_loop_over_tokens(name, lengths):
    table = TABLES[name]
    emissions, edges = scores_of(table, sum(lengths), 9, 3.0, n_layers=1)
    is_first = firsts_of(lengths)
    chain = make_chain(table, emissions, edges, is_first)
    posterior = infer(chain)
    totals = reference.forward_totals(chain, np.logaddexp.reduce)
    np.testing.assert_allclose(posterior.log_total, totals, rtol=1e-10)
    np.testing.assert_allclose(posterior.marginals.sum(axis=-1), 1.0)
    best = viterbi(chain)
    assert_legal(table, best, is_first)
    score = sum(
        reference.path_score(chain, 0, first, tuple(best[first : first + length, 0].tolist()))
        for first, length in reference.documents_of(is_first)
    )
    np.testing.assert_allclose(score, reference.forward_totals(chain, np.max), rtol=1e-10)
    # What is found is all but certain to be there, or not: never more than certain.
    spans, labels = decode_chain(table, best[:, 0], is_first)
    values = span_log_probabilities(table, chain, posterior, spans, 0 * labels, labels)
    assert np.isfinite(values).all()
    assert np.all(values < 1e-6)
    loss, d_emissions, d_edges = chain_loss(table, emissions, edges, is_first, best)
    assert loss == pytest.approx(totals[0] - score)
    assert np.isfinite(d_emissions).all()
    assert np.isfinite(d_edges).all()


def test_a_span_of_a_thousand_tokens_by_a_loop():
    # All in one span: the product of its steps, against the sum over all paths.
    table, n = TABLES["bioes-1"], 1000
    emissions, edges = scores_of(table, n, 10, 1.0, n_layers=1)
    chain = make_chain(table, emissions, edges, firsts_of([n]))
    posterior = infer(chain)
    begin, inside, end = 1, 2, 3
    score = reference.path_score(chain, 0, 0, (begin, *[inside] * (n - 2), end))
    none = np.zeros(1, dtype=int)
    value = span_log_probabilities(table, chain, posterior, np.asarray([[0, n]]), none, none)
    np.testing.assert_allclose(value, score - posterior.log_total, rtol=1e-9)


@by_table
def test_nothing_has_nothing(table):
    chain = make_chain(table, *scores_of(table, 0, 0, 1.0), firsts_of([]))
    tags = viterbi(chain)
    assert tags.shape == (0, N_LAYERS)
    assert tags.dtype == np.int32
    posterior = infer(chain)
    assert posterior.marginals.shape == (0, N_LAYERS, table.n_tags)
    assert posterior.log_total.tolist() == [0.0] * N_LAYERS
    loss, d_emissions, d_edges = chain_loss(
        table, *scores_of(table, 0, 0, 1.0), firsts_of([]), np.zeros((0, N_LAYERS), "i")
    )
    assert loss == 0
    assert d_emissions.shape == (0, N_LAYERS, table.n_tags)
    assert d_edges.shape == (N_LAYERS, table.n_tags + 2, table.n_tags)
    assert not d_edges.any()


@by_table
def test_no_spans_have_no_probabilities(table):
    chain = make_chain(table, *scores_of(table, 3, 0, 1.0), firsts_of([3]))
    none = np.zeros(0, dtype=int)
    spans = np.zeros((0, 2), dtype=int)
    assert span_log_probabilities(table, chain, infer(chain), spans, none, none).shape == (0,)
