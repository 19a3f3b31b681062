"""Chains of tags, against all legal paths, plain loops and finite differences."""

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
    scan,
    span_log_probabilities,
    viterbi,
)
from spacy_spans.kernels.schemes import BIO, BIOES, IO, decode_chain, tag_table

from .. import reference_tags as reference

pytestmark = pytest.mark.installed

N_LAYERS = 2
TABLES = {
    f"{scheme.name}-{n_labels}": tag_table(scheme, n_labels)
    for scheme in (IO, BIO, BIOES)
    for n_labels in (1, 2)
}
by_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
# Tokens per document, few enough to list all paths; and the seed and the spread of the scores.
# With a spread of 0 all paths are equally good.
batches = st.tuples(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.integers(0, 999),
    st.sampled_from([0.0, 0.3, 3.0, 15.0]),
)
seldom = settings(max_examples=25, deadline=None)


def firsts_of(lengths):
    is_first = np.zeros(sum(lengths), dtype=bool)
    is_first[np.cumsum([0, *lengths])[:-1]] = True
    return is_first


def scores_of(table, n_tokens, seed, spread, n_layers=N_LAYERS):
    random = np.random.default_rng(seed)
    emissions = random.normal(size=(n_tokens, n_layers, table.n_tags)) * spread
    return emissions, random.normal(size=(n_layers, table.n_tags + 2, table.n_tags)) * spread


def chain_of(table, batch):
    lengths, seed, spread = batch
    return make_chain(table, *scores_of(table, sum(lengths), seed, spread), firsts_of(lengths))


def legal_tags(table, lengths, seed, n_layers=N_LAYERS):
    """Tags of the best path of some chain."""
    scores = scores_of(table, sum(lengths), seed, 1.0, n_layers)
    return viterbi(make_chain(table, *scores, firsts_of(lengths)))


def assert_legal(table, tags, is_first):
    for own in tags.T:
        follows = table.legal[own[:-1], own[1:]] | is_first[1:]
        assert follows.all()
        assert table.may_start[own[is_first]].all()
        assert table.may_end[own[np.append(is_first[1:], True)]].all()


def every_span(table, lengths):
    """Spans (in tokens of the batch), layers and labels, all there are."""
    rows, first = [], 0
    for length in lengths:
        rows += [
            (first + i, first + j, layer, label)
            for i in range(length)
            for j in range(i + 1, length + 1)
            for layer in range(N_LAYERS)
            for label in range(table.n_labels)
        ]
        first += length
    rows = np.asarray(rows, dtype=np.int64).reshape(-1, 4)
    return rows[:, :2], rows[:, 2], rows[:, 3]


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


# Batches, blocks, sizes


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
