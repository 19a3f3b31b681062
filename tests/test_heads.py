"""Head pruning on tiny encoders with random weights: importance, removal, what is stored."""

import copy

import numpy as np
import pytest
import spacy
import torch
from spacy.tokens import DocBin
from spacy.training import Example
from spacy.training.initialize import init_nlp
from thinc.api import Adam

from spacy_spans.errors import DataError, SettingsError
from spacy_spans.finetune import make_finetune_config
from spacy_spans.heads import (
    choose_heads,
    compare_speed,
    find_attention,
    find_encoder,
    format_report,
    measure_importance,
    normalise,
    prune_heads,
)

from .encoder import TRANSFORMER_LISTENER, make_encoder, make_windows, save_bert
from .pipeline import scored, write_spans

pytestmark = pytest.mark.slow

WORDS = ["we", "want", "cooks", "who", "know", "law", "and", "food", "well", ","]
TEXTS = ["we want cooks who know food law", "", "cooks , and law , and food", "well", "we know law"]
N_LAYERS, N_HEADS = 3, 4
WIDTH = 16
STOCK = {
    "@architectures": "spacy-transformers.TransformerModel.v3",
    "get_spans": {"@span_getters": "spacy-transformers.strided_spans.v1", "window": 5, "stride": 4},
}
OURS = {
    "@architectures": "spacy-spans.PrunedTransformerModel.v1",
    "get_spans": {"@span_getters": "spacy-spans.piece_windows.v1", "max_pieces": 6},
}
ENCODERS = {"stock": STOCK, "ours": OURS, "gates": {**OURS, "gates": [1], "keep_ratio": 0.7}}


def make_folder(path):
    """A BERT with dropout, whose weights are large enough for attention to matter."""
    path.mkdir()
    return save_bert(
        path,
        WORDS,
        large_weights=True,
        hidden_size=WIDTH,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        hidden_dropout_prob=0.3,
        attention_probs_dropout_prob=0.3,
    )


def make_gold(nlp):
    docs = []
    for text in TEXTS:
        doc = nlp.make_doc(text)
        spans = [(i, i + 1, "W") for i, token in enumerate(doc) if token.text in ("cooks", "law")]
        docs.append(write_spans(doc, "sc", spans))
    return docs


def make_trained(folder, encoder="stock"):
    """Trained for a few steps, so that no gradient is 0."""
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    model = {"name": str(folder), "tokenizer_config": {"use_fast": True}, **ENCODERS[encoder]}
    factory = "pruned_transformer" if encoder == "gates" else "transformer"
    nlp.add_pipe(factory, name="transformer", config={"model": model})
    head = {"tok2vec": TRANSFORMER_LISTENER, "hidden_width": 16}
    nlp.add_pipe("span_enumerator", config={"model": head, "threshold": 0.05})
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in make_gold(nlp)]
    nlp.initialize(lambda: examples)
    optimizer = Adam(0.003)
    for _ in range(5):
        nlp.update(examples, sgd=optimizer)
    return nlp


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Folders of trained pipelines, by the kind of their encoder."""
    path = tmp_path_factory.mktemp("heads")
    make_folder(path / "bert")
    for encoder in ENCODERS:
        make_trained(path / "bert", encoder).to_disk(path / encoder)
    return {encoder: path / encoder for encoder in ENCODERS}


def encoder_of(nlp):
    return find_encoder(nlp)[1].transformer


def scale_head(nlp, layer, head, factor):
    """Scale what a head adds to its layer's output: the columns of the projection it goes into."""
    attention = find_attention(encoder_of(nlp))[layer]
    size = attention.output.in_features // len(attention.heads)
    with torch.no_grad():
        attention.output.weight[:, head * size : (head + 1) * size] *= factor


def heads_left(nlp):
    return [own.heads for own in find_attention(encoder_of(nlp))]


def predictions(nlp):
    docs = list(nlp.pipe(TEXTS))
    vectors = [doc._.trf_data.model_output.last_hidden_state for doc in docs if len(doc)]
    return [scored(doc) for doc in docs], np.concatenate([own.reshape(-1) for own in vectors])


def assert_same(found, expected):
    assert [[span[:3] for span in doc] for doc in found[0]] == [
        [span[:3] for span in doc] for doc in expected[0]
    ]
    np.testing.assert_allclose(found[1], expected[1], atol=2e-5)


# Importance


def slow_importance(nlp, step=0.01):
    """Change each head a little, and look at the loss of each document."""
    for module in encoder_of(nlp).modules():
        module.p, module.dropout_prob = 0.0, 0.0
    find_encoder(nlp)[1].attrs["autocast"] = "none"
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in make_gold(nlp)]
    totals = np.zeros((N_LAYERS, N_HEADS))
    for layer, head in np.ndindex(totals.shape):
        losses = []
        for factor in (1 + step, 1 - step):
            scale_head(nlp, layer, head, factor)
            found = [nlp.update([example], sgd=False) for example in examples]
            losses.append(np.asarray([own.get("span_enumerator", 0.0) for own in found]))
            scale_head(nlp, layer, head, 1 / factor)
        totals[layer, head] = np.abs(losses[0] - losses[1]).mean() / (2 * step)
    return totals


@pytest.mark.parametrize("encoder", ["stock", "ours"])
def test_importance_is_what_changing_a_head_a_little_does_to_the_loss(stored, encoder):
    nlp = spacy.load(stored[encoder])
    found = np.stack(measure_importance(nlp, make_gold(nlp), name="transformer"))
    expected = slow_importance(spacy.load(stored[encoder]))
    assert (expected > 0).all()
    np.testing.assert_allclose(found, expected, rtol=0.03, atol=1e-4)


def test_an_encoder_inside_of_one_component_is_measured_alike(stored):
    nlp = spacy.load(stored["stock"])
    expected = measure_importance(nlp, make_gold(nlp), name="transformer")
    nlp.replace_listeners("transformer", "span_enumerator", ["model.tok2vec"])
    nlp.remove_pipe("transformer")
    assert find_encoder(nlp)[0] == "span_enumerator"
    found = measure_importance(nlp, make_gold(nlp), name="span_enumerator")
    np.testing.assert_allclose(np.stack(found), np.stack(expected), rtol=1e-4)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_measuring_leaves_the_pipeline_as_it_was(stored, encoder):
    nlp = spacy.load(stored[encoder])
    model = find_encoder(nlp)[1]
    before, before_attrs = nlp.to_bytes(), dict(model.attrs)
    first = measure_importance(nlp, make_gold(nlp), name="transformer")
    again = measure_importance(nlp, make_gold(nlp), name="transformer")
    # Nothing is left to chance: no dropout, no word dropped at random.
    np.testing.assert_array_equal(np.stack(first), np.stack(again))
    assert nlp.to_bytes() == before
    assert model.attrs == before_attrs
    assert all(own.requires_grad and own.grad is None for own in model.transformer.parameters())
    assert model.transformer.train().training
    # The next training step starts without gradients.
    reference = spacy.load(stored[encoder])
    for own in (nlp, reference):
        model = find_encoder(own)[1]
        gates = [shim.module for node in model.layers[1:] for shim in node.shims if shim.module]
        for network in (encoder_of(own), *gates):
            for module in network.modules():
                module.p, module.dropout_prob = 0.0, 0.0
        model.attrs["train_keep_ratio"] = 1.0
        optimizer = Adam(0.01)
        for _ in range(2):
            own.update([Example(own.make_doc(d.text), d) for d in make_gold(own)], sgd=optimizer)
    assert_same(predictions(nlp), predictions(reference))


def test_norms_and_choice_by_hand():
    assert [own.tolist() for own in normalise([np.asarray([3.0, 4.0]), np.zeros(2)])] == [
        pytest.approx([0.6, 0.8]),
        [0.0, 0.0],
    ]
    scores = [np.asarray([0.5, 0.1, 0.2]), np.asarray([0.1, 0.1]), np.asarray([0.3])]
    assert choose_heads(scores, 0) == [[], [], []]
    assert choose_heads(scores, 2) == [[1], [0], []]
    # The other head of the second layer and the only one of the third stay.
    assert choose_heads(scores, 3) == [[1, 2], [0], []]


# Removal


@pytest.mark.parametrize("encoder", ENCODERS)
def test_heads_that_add_nothing_go_first_and_are_not_missed(stored, encoder, tmp_path):
    nlp = spacy.load(stored[encoder])
    for layer, head in ((0, 1), (0, 3), (2, 0)):
        scale_head(nlp, layer, head, 0.0)
    expected = predictions(nlp)
    n_weights = encoder_of(nlp).num_parameters()
    report = prune_heads(nlp, make_gold(nlp), ratio=0.25)
    assert heads_left(nlp) == [[0, 2], [0, 1, 2, 3], [1, 2, 3]]
    removed = [[h["head"] for h in layer if h["removed_in"]] for layer in report["layers"]]
    assert removed == [[2, 4], [], [1]]
    assert [h["importance"] for h in report["layers"][0]][1::2] == [0.0, 0.0]
    assert (report["heads_before"], report["heads_after"]) == (12, 9)
    # Query, key and value with biases, and the projection of each head's output.
    size = WIDTH // N_HEADS
    assert n_weights - encoder_of(nlp).num_parameters() == 3 * (4 * WIDTH * size + 3 * size)
    assert_same(predictions(nlp), expected)
    nlp.to_disk(tmp_path / "pruned")
    loaded = spacy.load(tmp_path / "pruned")
    assert heads_left(loaded) == heads_left(nlp)
    assert_same(predictions(loaded), predictions(nlp))
    # Further heads are chosen from those that are left.
    report = prune_heads(loaded, make_gold(loaded), ratio=0.5)
    assert [[h["head"] for h in layer] for layer in report["layers"]] == [
        [1, 3],
        [1, 2, 3, 4],
        [2, 3, 4],
    ]
    assert sum(map(len, heads_left(loaded))) == 5
    bytes_data = loaded.to_bytes()
    assert heads_left(spacy.load(stored[encoder]).from_bytes(bytes_data)) == heads_left(loaded)


def test_measured_again_before_each_part(stored):
    nlp = spacy.load(stored["ours"])
    once = spacy.load(stored["ours"])
    report = prune_heads(nlp, make_gold(nlp), ratio=0.5, steps=3)
    steps = [head["removed_in"] for layer in report["layers"] for head in layer]
    assert sorted(filter(None, steps)) == [1, 1, 2, 2, 3, 3]
    # What is left was measured with the others gone.
    prune_heads(once, make_gold(once), ratio=4 / 12, steps=2)
    importance = measure_importance(once, make_gold(once), name="transformer")
    last = [
        [head["importance"] for head in layer if head["removed_in"] in (None, 3)]
        for layer in report["layers"]
    ]
    assert [own.tolist() for own in importance] == [pytest.approx(own, rel=1e-4) for own in last]
    assert "in 3)" in format_report(report)


def test_one_head_stays_in_each_layer(stored):
    nlp = spacy.load(stored["stock"])
    prune_heads(nlp, make_gold(nlp), ratio=0.75)
    assert [len(own) for own in heads_left(nlp)] == [1, 1, 1]
    with pytest.raises(SettingsError, match="None is left"):
        prune_heads(nlp, make_gold(nlp), ratio=0.5)


@pytest.mark.parametrize(
    "family", ["bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert"]
)
def test_every_family(family):
    encoder = make_encoder(family)
    ids, mask, _ = make_windows([6, 4])
    attention = find_attention(encoder)
    assert [own.heads for own in attention] == [[0, 1]] * 3
    with torch.no_grad():
        attention[1].output.weight[:, :8] = 0.0
        expected = encoder(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        encoder.prune_heads({1: [0]})
        found = encoder(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    assert [own.heads for own in find_attention(encoder)] == [[0, 1], [1], [0, 1]]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    restored = type(encoder)(type(encoder.config).from_dict(encoder.config.to_dict()))
    restored.load_state_dict(encoder.state_dict())


def test_families_without_a_way_to_remove_heads():
    with pytest.raises(SettingsError, match=r"'modernbert'.*Expected one of \['bert'"):
        find_attention(make_encoder("modernbert"))


# What cannot be done


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ratio": 0.0}, "above 0 and below 1"),
        ({"ratio": 1.0}, "above 0 and below 1"),
        ({"ratio": float("nan")}, "above 0 and below 1"),
        ({"ratio": 0.03}, "removes none. Expected at least 0.083"),
        ({"ratio": 0.8}, "10 of 12 heads.*at most 0.75"),
        ({"ratio": 0.3, "steps": 0}, "steps = 0"),
        ({"ratio": 0.3, "name": "span_enumerator"}, r"\['transformer'\]"),
    ],
)
def test_settings_out_of_range(stored, settings, message):
    nlp = spacy.load(stored["stock"])
    with pytest.raises(SettingsError, match=message):
        prune_heads(nlp, make_gold(nlp), **settings)
    assert heads_left(nlp) == [[0, 1, 2, 3]] * 3


def test_pipelines_without_an_encoder():
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    with pytest.raises(SettingsError, match=r"no transformer, only \['sentencizer'\]"):
        prune_heads(nlp, [], ratio=0.3)


def test_data_without_gold(stored):
    nlp = spacy.load(stored["stock"])
    for gold in ([], [nlp.make_doc("")], [nlp.make_doc("we want cooks")]):
        with pytest.raises(DataError, match=r"does not depend on the encoder.*none"):
            prune_heads(nlp, gold, ratio=0.3)
    other = write_spans(nlp.make_doc("we want cooks"), "other", [(0, 1, "W")])
    with pytest.raises(DataError, match=r"Their keys of doc.spans: other\."):
        prune_heads(nlp, [other], ratio=0.3)
    assert heads_left(nlp) == [[0, 1, 2, 3]] * 3


def test_a_loss_that_fails_is_named(stored, monkeypatch):
    nlp = spacy.load(stored["stock"])

    def fail(*args, **kwargs):
        raise KeyError("sc")

    monkeypatch.setattr(nlp.get_pipe("span_enumerator"), "update", fail)
    with pytest.raises(DataError, match=r"cannot be computed on the data.*KeyError"):
        prune_heads(nlp, make_gold(nlp), ratio=0.3)
    # What was set up for measuring is taken back.
    assert encoder_of(nlp).train().training


# Afterwards


def test_speed_is_compared_in_turns(stored):
    nlp = spacy.load(stored["stock"])
    speed = compare_speed(nlp, copy.copy(nlp), make_gold(nlp), runs=2)
    assert speed["words"] == sum(len(nlp.make_doc(text)) for text in TEXTS)
    for side in (speed["before"], speed["after"]):
        assert 0 < side["lowest"] <= side["median"] <= side["highest"]
    assert speed["gain"] == speed["after"]["median"] / speed["before"]["median"]


def test_reports_say_when_no_difference_was_measured():
    head = {"head": 1, "importance": 0.2, "normalised": 0.5, "removed_in": None}
    layers = [[head, {**head, "head": 2, "removed_in": 1}]]
    speed = {
        "before": {"median": 1000.0, "lowest": 900.0, "highest": 1100.0},
        "after": {"median": 1200.0, "lowest": 1050.0, "highest": 1300.0},
        "gain": 1.2,
    }
    report = {"layers": layers, "heads_before": 2, "heads_after": 1, "steps": 1, "speed": speed}
    text = format_report(report)
    assert "1:0.50  (2:0.50)" in text
    assert "before 1,000 words/s (900 to 1,100), after 1,200 words/s" in text
    assert "overlap: no difference was measured" in text
    speed["before"]["highest"] = 1049.0
    assert "overlap" not in format_report(report)


def test_training_goes_on_from_the_pruned_pipeline(stored, tmp_path):
    nlp = spacy.load(stored["ours"])
    nlp.tokenizer.rules = {}
    prune_heads(nlp, make_gold(nlp), ratio=0.5)
    nlp.to_disk(tmp_path / "pruned")
    config = make_finetune_config(nlp, tmp_path / "pruned")
    config.to_disk(tmp_path / "finetune.cfg")
    DocBin(docs=make_gold(nlp)).to_disk(tmp_path / "data.spacy")
    data = str(tmp_path / "data.spacy")
    overrides = {"paths.train": data, "paths.dev": data}
    resumed = init_nlp(spacy.util.load_config(tmp_path / "finetune.cfg", overrides=overrides))
    assert heads_left(resumed) == heads_left(nlp)
    assert resumed.tokenizer.rules == {}
    assert_same(predictions(resumed), predictions(nlp))
    examples = [Example(resumed.make_doc(doc.text), doc) for doc in make_gold(resumed)]
    optimizer = Adam(0.01)
    # spaCy applies the gradient of an encoder in the step after.
    for _ in range(2):
        resumed.update(examples, sgd=optimizer)
    assert np.abs(predictions(resumed)[1] - predictions(nlp)[1]).max() > 1e-3
