"""Chains of tags with random scores, for tests."""

import numpy as np
import pytest
from hypothesis import settings

from spacy_spans.kernels.chains import make_chain, viterbi
from spacy_spans.kernels.schemes import BIO, BIOES, IO, tag_table

N_LAYERS = 2
TABLES = {
    f"{scheme.name}-{n_labels}": tag_table(scheme, n_labels)
    for scheme in (IO, BIO, BIOES)
    for n_labels in (1, 2)
}
by_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
seldom = settings(max_examples=25, deadline=None)


def firsts_of(lengths):
    is_first = np.zeros(sum(lengths), dtype=bool)
    is_first[np.cumsum([0, *lengths])[:-1]] = True
    return is_first


def scores_of(table, n_tokens, seed, spread, n_layers=N_LAYERS):
    random = np.random.default_rng(seed)
    emissions = random.normal(size=(n_tokens, n_layers, table.n_tags)) * spread
    return emissions, random.normal(size=(n_layers, table.n_tags + 2, table.n_tags)) * spread


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
