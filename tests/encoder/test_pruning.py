"""Choosing words, making windows shorter and whole again, against loops over pieces."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.encoder.pruning import (
    best_words,
    kept_pieces,
    restore,
    shorten,
    spread_words,
    word_scores,
)
from spacy_spans.kernels.enumeration import ROUNDING

WIDTH = 3


@st.composite
def windows(draw):
    """Hidden states, mask, words and scores of ragged windows, some without words."""
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    n_pieces = max(lengths)
    words = torch.full((len(lengths), n_pieces), -1)
    for row, length in enumerate(lengths):
        word = -1
        # The first piece and the last are special.
        for piece in range(1, length - 1):
            word += int(word < 0 or draw(st.booleans()))
            words[row, piece] = word
    mask = torch.arange(n_pieces) < torch.tensor(lengths)[:, None]
    seed = draw(st.integers(0, 1000))
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(len(lengths), n_pieces, WIDTH, generator=generator, dtype=torch.double)
    scores = torch.randint(-3, 4, words.shape, generator=generator).double()
    return hidden, mask, words, scores


def words_of(words, row):
    return sorted({word for word in words[row].tolist() if word >= 0})


@given(windows())
def test_a_word_has_the_best_score_of_its_pieces(data):
    _, _, words, scores = data
    found = word_scores(scores, words)
    for row in range(len(words)):
        own = words_of(words, row)
        assert found[row, : len(own)].tolist() == [
            float(scores[row][words[row] == word].max()) for word in own
        ]
        assert (found[row, len(own) :] == -torch.inf).all()


@given(windows(), st.floats(0.01, 1.0))
def test_the_best_words_are_kept_with_the_special_pieces(data, ratio):
    _, mask, words, scores = data
    per_word = word_scores(scores, words)
    kept = best_words(per_word, ratio)
    pieces = kept_pieces(kept, words, mask)
    for row in range(len(words)):
        own = words_of(words, row)
        n_kept = math.ceil(len(own) * ratio - ROUNDING)
        ranked = sorted(own, key=lambda word, row=row: (-float(per_word[row, word]), word))
        assert kept[row].nonzero().reshape(-1).tolist() == sorted(ranked[:n_kept])
        for piece, word in enumerate(words[row].tolist()):
            there = bool(mask[row, piece])
            assert bool(pieces[row, piece]) == (there and (word < 0 or word in ranked[:n_kept]))


@given(windows(), st.integers(0, 2))
def test_pieces_get_the_score_of_their_word(data, n_left_out):
    _, _, words, scores = data
    per_word = word_scores(scores, words)
    per_word = per_word[:, : max(0, per_word.shape[1] - n_left_out)]
    spread = spread_words(per_word, words)
    for row in range(len(words)):
        for piece, word in enumerate(words[row].tolist()):
            there = 0 <= word < per_word.shape[1]
            expected = float(per_word[row, word]) if there else -math.inf
            assert float(spread[row, piece]) == expected


def slow_rows(kept, mask, pool):
    """For each row of the shortened window, its pieces."""
    rows, run = [], []
    for piece in range(len(mask)):
        if mask[piece] and not kept[piece]:
            run.append(piece)
            continue
        if run and pool:
            rows.append(run)
        run = []
        if kept[piece]:
            rows.append([piece])
    return rows + ([run] if run and pool else [])


@given(windows(), st.booleans(), st.floats(0.01, 1.0))
@settings(max_examples=200)
def test_shortened_windows_and_the_way_back(data, pool, ratio):
    hidden, mask, words, scores = data
    kept = kept_pieces(best_words(word_scores(scores, words), ratio), words, mask)
    short = shorten(hidden, kept, mask, pool=pool)
    after = short.hidden * 2 + 1
    whole = restore(hidden, short, after)
    for row in range(len(hidden)):
        rows = slow_rows(kept[row].tolist(), mask[row].tolist(), pool)
        assert short.mask[row].tolist() == [i < len(rows) for i in range(short.mask.shape[1])]
        expected = hidden[row].clone()
        for i, pieces in enumerate(rows):
            mean = hidden[row, pieces].mean(dim=0)
            torch.testing.assert_close(short.hidden[row, i], mean)
            assert int(short.source[row, i]) == pieces[0]
            # Twice the row and one is the row, changed by the row and one.
            expected[pieces] += mean + 1
        torch.testing.assert_close(whole[row][mask[row]], expected[mask[row]])


@pytest.mark.parametrize("pool", [False, True])
def test_gradients_go_both_ways(pool):
    hidden = torch.randn(2, 5, WIDTH, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    kept = torch.tensor([[True, False, False, True, True], [True, False, True, False, False]])

    def there_and_back(values):
        short = shorten(values, kept, mask, pool=pool)
        return restore(values, short, short.hidden.tanh())[mask]

    assert torch.autograd.gradcheck(there_and_back, (hidden,))


def test_windows_of_special_pieces_only():
    hidden = torch.ones(1, 2, WIDTH)
    mask = torch.ones(1, 2, dtype=torch.bool)
    words = torch.full((1, 2), -1)
    scores = word_scores(torch.zeros(1, 2), words)
    assert scores.shape == (1, 0)
    kept = kept_pieces(best_words(scores, 0.5), words, mask)
    assert kept.all()
    short = shorten(hidden, kept, mask, pool=True)
    assert short.hidden.shape == (1, 2, WIDTH)
