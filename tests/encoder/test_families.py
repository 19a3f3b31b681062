"""Each family: keeping everything is the model itself, dropping is a model of less text."""

import pytest
import torch

from spacy_spans.encoder.criteria import build_gate_criterion_v1
from spacy_spans.encoder.families import FAMILIES, family_of
from spacy_spans.encoder.run import GATE_DILATIONS, GATE_KERNEL, Gates, Pruning, encode
from spacy_spans.errors import SettingsError

from . import N_LAYERS, WIDTH, make_encoder, make_windows

LENGTHS = (9, 14, 5)


def by_gates(after, gates, keep_ratio, threshold, pool):
    return Pruning(after, build_gate_criterion_v1(), gates, keep_ratio, threshold, pool)


def encode_all(model, ids, mask, words, pruning=None):
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


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def model(request):
    return make_encoder(request.param)


@pytest.mark.parametrize("lengths", [LENGTHS, (7,), (6, 6)])
def test_without_gates_it_is_the_model(model, lengths):
    ids, mask, words = make_windows(lengths)
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    encoded = encode_all(model, ids, mask, words)
    torch.testing.assert_close(encoded.hidden[mask], expected[mask], atol=1e-5, rtol=0)
    assert encoded.n_rows == N_LAYERS * ids.numel()


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("after", [(0,), (1,), (2,), (0, 1, 2)])
def test_gates_that_keep_everything_change_nothing(model, pool, after):
    ids, mask, words = make_windows(LENGTHS)
    gates = Gates(WIDTH, len(after)).eval()
    whole = encode_all(model, ids, mask, words).hidden
    for pruning in (
        by_gates(after, gates, 1.0, 0.5, pool),
        by_gates(after, gates, None, 0.0, pool),
    ):
        encoded = encode_all(model, ids, mask, words, pruning)
        torch.testing.assert_close(encoded.hidden[mask], whole[mask], atol=1e-5, rtol=0)
        assert len(encoded.word_scores) == len(after)


@pytest.mark.parametrize("after", [0, 1])
def test_dropping_is_running_the_later_layers_on_less(model, after):
    """Against a slow reference that goes through windows one by one and cuts them by hand."""
    family = family_of(model)
    ids, mask, words = make_windows(LENGTHS)
    torch.manual_seed(1)
    gates = Gates(WIDTH, 1).eval()
    encoded = encode_all(model, ids, mask, words, by_gates((after,), gates, 0.5, 0.5, pool=False))
    n_rows = 0
    for row, length in enumerate(LENGTHS):
        with torch.no_grad():
            layers = list(family.layers(model))
            positions = torch.arange(length)[None]
            before = family.embed(model, ids[row : row + 1, :length], None)
            for layer in layers[:after]:
                before = family.run(layer, before, None, positions)
            scores = gates(before, torch.ones_like(before[..., 0], dtype=torch.bool), 0)[0]
            own = words[row, :length]
            n_words = int(own.max()) + 1
            best = [float(scores[own == word].max()) for word in range(n_words)]
            ranked = sorted(range(n_words), key=lambda word, best=best: -best[word])
            kept_words = set(ranked[: -(-n_words // 2)])
            kept = [i for i in range(length) if int(own[i]) in kept_words or int(own[i]) < 0]
            hidden = before[:, kept]
            for layer in layers[after:]:
                hidden = family.run(layer, hidden, None, positions[:, kept])
            expected = before.clone()
            expected[:, kept] = hidden
            expected = family.finish(model, expected)
        torch.testing.assert_close(encoded.hidden[row, :length], expected[0], atol=1e-4, rtol=1e-4)
        n_rows = max(n_rows, len(kept))
    # The first layers saw all of it, the later ones as much as the longest window kept.
    of_one = after * max(LENGTHS) + (N_LAYERS - after) * n_rows
    assert encoded.n_rows == len(LENGTHS) * of_one


def test_a_gate_sees_a_piece_and_those_around_it():
    """Against torch's convolution over each window alone: padding is not seen."""
    torch.manual_seed(2)
    gates = Gates(WIDTH, 2).eval().double()
    gate = gates.gates[1]
    _, mask, _ = make_windows(LENGTHS)
    hidden = torch.randn(*mask.shape, WIDTH, dtype=torch.double)
    found = gates(hidden, mask, 1)
    for row, length in enumerate(LENGTHS):
        features = gate.norm(hidden[row, :length]).T
        for number, (project, dilation) in enumerate(
            zip(gate.projects, GATE_DILATIONS, strict=True)
        ):
            # In the linear layer one place of the kernel stands below the other.
            weight = project.weight.unflatten(0, (GATE_KERNEL, -1)).permute(1, 2, 0)
            total = torch.nn.functional.conv1d(
                features, weight, padding=GATE_KERNEL // 2 * dilation, dilation=dilation
            )
            # As in the linear layer, each place has a bias of its own, none beyond the ends.
            biases = project.bias.view(GATE_KERNEL, -1)
            for piece in range(length):
                for place in range(GATE_KERNEL):
                    if 0 <= piece + (place - GATE_KERNEL // 2) * dilation < length:
                        total[:, piece] += biases[place]
            hidden_units = torch.nn.functional.gelu(total)
            features = features + hidden_units if number else hidden_units
        torch.testing.assert_close(found[row, :length], gate.score(features.T)[:, 0])


def test_everything_dropped_leaves_the_special_pieces():
    model = make_encoder("bert")
    ids, mask, words = make_windows(LENGTHS)
    gates = Gates(WIDTH, 1).eval()
    for pool, expected in ((False, 2), (True, 3)):
        encoded = encode_all(model, ids, mask, words, by_gates((1,), gates, None, 1.1, pool))
        assert encoded.n_rows == len(LENGTHS) * (max(LENGTHS) + (N_LAYERS - 1) * expected)
        assert torch.isfinite(encoded.hidden[mask]).all()


def test_windows_do_not_see_each_other():
    model = make_encoder("modernbert")
    ids, mask, words = make_windows(LENGTHS)
    gates = Gates(WIDTH, 1).eval()
    pruning = by_gates((1,), gates, 0.4, 0.5, pool=True)
    together = encode_all(model, ids, mask, words, pruning).hidden
    for row, length in enumerate(LENGTHS):
        own = slice(row, row + 1), slice(0, length)
        alone = encode_all(model, ids[own], mask[own], words[own], pruning).hidden
        torch.testing.assert_close(together[row, :length], alone[0], atol=1e-5, rtol=1e-4)


def test_gradients_reach_gates_and_embeddings():
    model = make_encoder("bert")
    ids, mask, words = make_windows(LENGTHS)
    gates = Gates(WIDTH, 1)
    encoded = encode(
        model,
        family_of(model),
        by_gates((1,), gates, 0.5, 0.5, pool=True),
        input_ids=ids,
        mask=mask,
        token_types=None,
        words=words,
    )
    (scores,) = encoded.word_scores
    (encoded.hidden[mask].sum() + scores[scores > -torch.inf].sum()).backward()
    assert all(bool(parameter.grad.abs().sum() > 0) for parameter in gates.parameters())
    assert bool(model.embeddings.word_embeddings.weight.grad.abs().sum() > 0)


def test_an_unknown_family_is_named_with_the_known_ones():
    model = make_encoder("bert")
    model.config.model_type = "elsewhere"
    with pytest.raises(SettingsError, match=r"family 'elsewhere'.*'bert'.*add an adapter"):
        family_of(model)
