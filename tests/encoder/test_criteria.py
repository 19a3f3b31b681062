"""What criteria say at a gate, against loops over pieces, in every family."""

import numpy as np
import pytest
import torch

from spacy_spans.encoder.criteria import (
    AtGate,
    Criterion,
    build_attention_criterion_v1,
    build_gate_criterion_v1,
    build_norm_criterion_v1,
    build_random_criterion_v1,
)
from spacy_spans.encoder.families import FAMILIES, family_of
from spacy_spans.encoder.run import Pruning, encode

from . import N_LAYERS, make_encoder, make_windows

LENGTHS = (9, 14, 5)
FREE = [build_attention_criterion_v1, build_norm_criterion_v1, build_random_criterion_v1]


def at_gate(ids, mask, words, hidden=None, attention=None):
    return AtGate(hidden, mask, words, attention, ids, mask)


def test_only_the_gate_learns():
    assert build_gate_criterion_v1().learns
    assert not any(build().learns for build in FREE)


def test_the_norm_is_that_of_the_hidden_state():
    hidden = torch.tensor([[[3.0, 4.0], [0.0, 0.0]]])
    assert build_norm_criterion_v1().score(at_gate(None, None, None, hidden)).tolist() == [[5, 0]]


def test_attention_received_is_the_mean_over_heads_and_pieces_that_are_there():
    generator = torch.Generator().manual_seed(0)
    attention = torch.rand(2, 3, 4, 4, generator=generator)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    found = build_attention_criterion_v1().score(at_gate(None, mask, None, None, attention))
    for row, n_pieces in enumerate((4, 2)):
        for piece in range(4):
            seen = [
                float(attention[row, head, query, piece])
                for head in range(3)
                for query in range(n_pieces)
            ]
            assert float(found[row, piece]) == pytest.approx(sum(seen) / len(seen), abs=1e-6)


def test_chance_is_even_over_words_and_the_same_for_the_same_window():
    criterion = build_random_criterion_v1()
    ids, mask, words = make_windows([40] * 200, pieces_per_word=1)
    scores = criterion.score(at_gate(ids, mask, words))[:, 1:-1]
    assert float(scores.min()) >= 0
    assert float(scores.max()) < 1
    counts = np.histogram(scores.numpy(), bins=10, range=(0, 1))[0] / scores.numel()
    np.testing.assert_allclose(counts, 0.1, atol=0.02)
    # No word is more likely than another.
    np.testing.assert_allclose(scores.mean(dim=0), 0.5, atol=0.1)
    padded = torch.nn.functional.pad(ids[3:4], (0, 5), value=1)
    longer = criterion.score(
        at_gate(
            padded,
            torch.nn.functional.pad(mask[3:4], (0, 5)),
            torch.nn.functional.pad(words[3:4], (0, 5), value=-1),
        )
    )
    assert longer[0, 1:39].tolist() == scores[3].tolist()


def test_all_pieces_of_a_word_have_one_chance():
    ids, mask, words = make_windows([9], pieces_per_word=2)
    (scores,) = build_random_criterion_v1().score(at_gate(ids, mask, words))
    for word in range(int(words.max()) + 1):
        assert len(set(scores[words[0] == word].tolist())) == 1


def run(model, ids, mask, words, criterion, ratio, after=(1,)):
    pruning = Pruning(after, criterion, None, ratio, 0.5, pool=True)
    with torch.no_grad():
        return encode(
            model,
            family_of(model),
            pruning,
            input_ids=ids,
            mask=mask,
            token_types=None,
            words=words,
        )


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_attention_is_that_of_the_model_itself(family):
    """And a layer that gives its attention away gives the same hidden states."""
    model = make_encoder(family)
    own = family_of(model)
    ids, mask, _ = make_windows(LENGTHS)
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    with torch.no_grad():
        hidden = own.embed(model, ids, None)
        for layer in own.layers(model):
            expected = own.run(layer, hidden, mask, positions)
            found, attention = own.attend(layer, hidden, mask, positions)
            torch.testing.assert_close(found[mask], expected[mask], atol=1e-4, rtol=1e-4)
            # Every piece shares out one, and none of it to padding.
            n_pieces = ids.shape[1]
            assert attention.shape == (len(LENGTHS), 2, n_pieces, n_pieces)
            for row, length in enumerate(LENGTHS):
                shares = attention[row, :, :length]
                torch.testing.assert_close(shares.sum(dim=-1), torch.ones(2, length))
                assert float(shares[:, :, length:].abs().sum()) < 1e-6
            hidden = expected
    # Unpadded, without a mask.
    with torch.no_grad():
        one = own.embed(model, ids[1:2], None)
        _, alone = own.attend(own.layers(model)[0], one, None, positions[1:2])
    assert alone.shape == (1, 2, max(LENGTHS), max(LENGTHS))


@pytest.mark.parametrize("build", FREE)
def test_each_gate_keeps_its_share_by_any_criterion(build):
    model = make_encoder("bert")
    ids, mask, words = make_windows(LENGTHS)
    encoded = run(model, ids, mask, words, build(), 0.5, after=(1, 2))
    assert len(encoded.word_scores) == 2
    for row in range(len(LENGTHS)):
        kept = encoded.piece_scores[row] > -torch.inf
        n_words = int(words[row].max()) + 1
        half = -(-n_words // 2)
        assert len(set(words[row][kept].tolist())) == -(-half // 2)
    whole = run(model, ids, mask, words, build(), 1.0)
    assert whole.piece_scores is None
    assert whole.n_rows == N_LAYERS * ids.numel()


def test_a_gate_sees_the_attention_of_the_layer_just_before_it_alone():
    model = make_encoder("bert")
    ids, mask, words = make_windows(LENGTHS)
    seen = []

    def score(at):
        seen.append(at.attention)
        return at.hidden.norm(dim=-1)

    run(model, ids, mask, words, Criterion("spy", score, needs_attention=True), 1.0, after=(1, 2))
    own = family_of(model)
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    with torch.no_grad():
        hidden = own.embed(model, ids, None)
        for layer, found in zip(own.layers(model)[:2], seen, strict=True):
            hidden, expected = own.attend(layer, hidden, mask, positions)
            torch.testing.assert_close(found, expected)
