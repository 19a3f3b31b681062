"""`pruned_transformer` on a tiny encoder with random weights: what it keeps, trains and stores."""

import math
import random
import re
import warnings
from itertools import pairwise

import numpy as np
import pytest
import spacy
import torch
from spacy.training import Example
from thinc.api import Adam
from transformers import BertConfig, BertModel, BertTokenizerFast

from spacy_spans.encoder.forward import draw_threshold
from spacy_spans.errors import DataError, SettingsError, SpansError, SpansWarning

from ..encoder import TRANSFORMER_LISTENER
from . import found, scored, write_spans

pytestmark = pytest.mark.slow

WORDS = ["we", "want", "cooks", "who", "know", "law", "and", "food", "well", ",", "!", "日"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "un", "##be", "##li", "##x", "x"]
ODD = ["unbelix", "x" * 40, "\n", "  ", "🙂", "unknown"]
SPAN_WORDS = {"cooks", "law", "unbelix"}
GATE = "spacy-spans.gate_criterion.v1"
UNTRAINED = ("norm", "attention", "random")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BERT of four layers that nothing was learned by."""
    path = tmp_path_factory.mktemp("encoder")
    (path / "vocab.txt").write_text("\n".join(PIECES), encoding="utf8")
    tokenizer = BertTokenizerFast(str(path / "vocab.txt"), model_max_length=64)
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertModel(config).save_pretrained(path)
    return path


def make_nlp(folder, factory="pruned_transformer", setter=None, component=None, **settings):
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    criterion = settings.pop("criterion", "gate")
    model = {
        "@architectures": "spacy-spans.PrunedTransformerModel.v1",
        "name": str(folder),
        "tokenizer_config": {"use_fast": True},
        "get_spans": {"@span_getters": "spacy-spans.piece_windows.v1", "max_pieces": 24},
        "criterion": {"@misc": f"spacy-spans.{criterion}_criterion.v1"},
        "gates": [1],
        "keep_ratio": 0.5,
        "warmup_steps": 0,
        "autocast": "none",
        **settings,
    }
    config = {"model": model, **(component or {})}
    if factory == "transformer":
        config["set_extra_annotations"] = {"@annotation_setters": "spacy-spans.kept_tokens.v1"}
    nlp.add_pipe(factory, name="transformer", config=config)
    nlp.add_pipe(
        "span_enumerator", config={"model": {"tok2vec": TRANSFORMER_LISTENER}, "within_kept": True}
    )
    return nlp


def random_texts(n, seed=0, words=WORDS + ODD):
    draw = random.Random(seed)
    lengths = [draw.choice([0, 1, 2, 8, 40]) for _ in range(n)]
    return [" ".join(draw.choices(words, k=length)) for length in lengths]


def make_examples(nlp, n=12, words=WORDS + ODD):
    examples = []
    for text in random_texts(n, 1, words):
        gold = nlp.make_doc(text)
        spans = [(i, i + 1, "W") for i, token in enumerate(gold) if token.text in SPAN_WORDS]
        examples.append(Example(nlp.make_doc(text), write_spans(gold, "sc", spans)))
    return examples


def train(nlp, n_updates, optimizer=None):
    optimizer = optimizer or Adam(0.003)
    for _ in range(n_updates):
        losses = nlp.update(make_examples(nlp), sgd=optimizer)
    return losses


def be_quiet():
    # Said once, of tokens with more pieces than a window.
    warnings.filterwarnings("ignore", ".*more than one window", SpansWarning)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        be_quiet()
        yield


@pytest.fixture(scope="module")
def trained(folder):
    """Trained for a few steps. Not to the end: it makes mistakes, and is unsure."""
    with warnings.catch_warnings():
        be_quiet()
        nlp = make_nlp(folder, gates=[1, 3])
        nlp.initialize(lambda: make_examples(nlp))
        train(nlp, 40)
    nlp.get_pipe("span_enumerator").cfg["threshold"] = 0.05
    return nlp


def attrs_of(nlp):
    return nlp.get_pipe("transformer").model.attrs


def vectors(doc):
    return doc._.trf_data.model_output.last_hidden_state


@pytest.fixture
def dial(trained):
    """Sets attributes of the trained model for one test."""
    attrs = attrs_of(trained)
    before = dict(attrs)
    yield attrs.update
    attrs.update(before)


def kept_mask(doc):
    mask = np.zeros(len(doc), dtype=bool)
    for start, end in [span[:2] for span in found(doc, "kept_tokens")]:
        mask[start:end] = True
    return mask


# What is kept


@pytest.mark.parametrize("settings", [{"keep_ratio": 0.3}, {"keep_ratio": None, "threshold": 0.4}])
def test_five_hundred_random_documents(trained, dial, settings):
    dial(**settings)
    n_dropped = n_spans = 0
    for doc in trained.pipe(random_texts(500), batch_size=64):
        kept = kept_mask(doc)
        runs = scored(doc, "kept_tokens")
        assert all(0 <= score <= 1 for *_, score in runs)
        # Runs do not touch.
        assert all(one[1] < other[0] for one, other in pairwise(runs))
        for start, end, _ in found(doc):
            assert kept[start:end].all()
        n_dropped += int((~kept).sum())
        n_spans += len(doc.spans["sc"])
    assert n_dropped > 100
    assert n_spans > 100


def test_each_window_keeps_its_share_of_words(trained, dial):
    dial(keep_ratio=0.5, gates=[1, 3])
    doc = trained("we want cooks who know law and food")
    # Half of eight words, and half of these.
    assert int(kept_mask(doc).sum()) == 2
    dial(keep_ratio=1e-6)
    assert int(kept_mask(trained(doc.text)).sum()) == 1


def test_dropped_words_are_those_that_later_layers_did_not_change(trained, dial):
    """What is said to be dropped is what was: without pooling its vector is that of the gate."""
    text = "we want cooks who know law and food"
    dial(dropped="drop", keep_ratio=0.5)
    doc = trained(text)
    model = trained.get_pipe("transformer").model
    pieces = doc._.trf_data.wordpieces
    with torch.no_grad():
        states = model.transformer(
            input_ids=torch.as_tensor(pieces.input_ids),
            attention_mask=torch.as_tensor(pieces.attention_mask),
            output_hidden_states=True,
        ).hidden_states
    at_first_gate = states[1].numpy()[0, 1:-1]
    changed = np.abs(vectors(doc)[0, 1:-1] - at_first_gate).max(axis=1) > 1e-5
    # The first gate keeps four words, of these the second keeps two.
    assert int(changed.sum()) == 4
    assert (changed[kept_mask(doc)]).all()


def test_a_threshold_that_nothing_reaches_drops_all_words(trained, dial):
    dial(keep_ratio=None, threshold=1.0)
    for doc in trained.pipe(["we want cooks", "", "law"]):
        assert found(doc, "kept_tokens") == []
        assert found(doc) == []
    dial(threshold=0.0)
    doc = trained("we want cooks")
    assert found(doc, "kept_tokens") == [(0, 3, "")]


@pytest.mark.parametrize("settings", [{"keep_ratio": 1.0}, {"gates": []}])
def test_where_nothing_is_dropped_the_whole_document_is_kept(trained, dial, settings):
    dial(**settings)
    assert scored(trained("we want \n\n cooks"), "kept_tokens") == [(0, 4, "", 1.0)]
    assert scored(trained(""), "kept_tokens") == []


def test_untrained_gates_keep_all_and_say_so(folder):
    nlp = make_nlp(folder)
    nlp.initialize(lambda: make_examples(nlp))
    with pytest.warns(SpansWarning, match="All words are kept"):
        doc = nlp("we want cooks")
    assert scored(doc, "kept_tokens") == [(0, 3, "", 1.0)]
    nlp("said once")


# The stock factory drops in training what it drops in prediction.
@pytest.mark.filterwarnings("ignore:.*do not lie inside one run")
@pytest.mark.parametrize("criterion", UNTRAINED)
@pytest.mark.parametrize("factory", ["pruned_transformer", "transformer"])
def test_criteria_that_learn_nothing_prune_at_once(folder, factory, criterion):
    nlp = make_nlp(folder, factory, criterion=criterion)
    nlp.initialize(lambda: make_examples(nlp))
    text = "we want cooks who know law and food"
    alone = nlp(text)
    assert int(kept_mask(alone).sum()) == 4
    # No result depends on what else is in the batch.
    (_, together) = nlp.pipe(["food " * 10, text])
    assert found(together, "kept_tokens") == found(alone, "kept_tokens")
    before = nlp.get_pipe("transformer").model.to_bytes()
    annotates = ["transformer"] if factory == "transformer" else []
    nlp.update(make_examples(nlp), sgd=Adam(0.001), annotates=annotates)
    assert nlp.get_pipe("transformer").model.to_bytes() != before
    assert not attrs_of(nlp)["gates_trained"]
    attrs_of(nlp)["keep_ratio"] = None
    with pytest.raises(SettingsError, match=f"criterion '{criterion}'.*set keep_ratio"):
        nlp(text)


# Training


def kept_in_update(nlp, seed=3, **kwargs):
    """Update once. RETURNS what of its documents the span_enumerator learns on, tokens of all."""
    pipe = nlp.get_pipe("span_enumerator")
    update = type(pipe).update
    masks = []

    def spy(examples, **own):
        examples = list(examples)
        masks.extend(kept_mask(example.predicted) for example in examples)
        return update(pipe, examples, **own)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipe, "update", spy, raising=False)
        # Of the ratio that is drawn.
        random.seed(seed)
        nlp.update(make_examples(nlp), sgd=Adam(0.001), **kwargs)
    return np.concatenate(masks)


def test_components_that_come_after_see_what_was_kept_of_the_vectors_they_learn_on(folder):
    nlp = make_nlp(folder, train_keep_ratio=0.3)
    nlp.initialize(lambda: make_examples(nlp))
    few, many = kept_in_update(nlp, seed=1), kept_in_update(nlp, seed=7)
    # By the ratios that were drawn, and windows round up.
    assert [round(random.Random(seed).uniform(0.3, 1.0), 2) for seed in (1, 7)] == [0.39, 0.53]
    assert 0.39 <= few.mean() < many.mean() < 0.7


def test_without_a_ratio_thresholds_are_drawn_as_far_apart_in_log_odds(folder, monkeypatch):
    nlp = make_nlp(folder, keep_ratio=None, threshold=0.1)
    nlp.initialize(lambda: make_examples(nlp))
    drawn = []

    def uniform(low, high):
        drawn.append((low, high))
        return high

    monkeypatch.setattr(random, "uniform", uniform)
    # 1 to 9 times e ** 2; the ratio that is the lowest in training has no say here.
    assert draw_threshold(0.1) == pytest.approx(math.exp(2) / (9 + math.exp(2)))
    assert draw_threshold(0.5) == pytest.approx(math.exp(2) / (1 + math.exp(2)))
    assert [draw_threshold(0.0), draw_threshold(1.0)] == [0.0, 1.0]
    assert drawn == [(-2.0, 2.0)] * 2
    gate = nlp.get_pipe("transformer").model.layers[1].shims[0].module.gates[0]
    # All words look alike to gates, and as likely as this.
    for bias, share in ((0.452, 1.0), (0.45, 0.0)):
        with torch.no_grad():
            gate.score.weight.zero_()
            gate.score.bias.fill_(math.log(bias / (1 - bias)))
        assert kept_in_update(nlp).mean() == share


@pytest.mark.filterwarnings("ignore:.*do not lie inside one run")
def test_the_stock_factory_annotates_where_it_is_told_to(trained, folder, tmp_path):
    trained.to_disk(tmp_path)
    make_stock(tmp_path)
    nlp = spacy.load(tmp_path)
    kept = kept_in_update(nlp, annotates=["transformer"])
    assert 0 < kept.mean() < 1


def test_nothing_is_dropped_in_training_before_the_warm_up_is_over(folder):
    nlp = make_nlp(folder, warmup_steps=3, train_keep_ratio=0.01)
    nlp.initialize(lambda: make_examples(nlp))
    n_kept = []
    gates = []
    for _ in range(5):
        n_kept.append(float(kept_in_update(nlp).mean()))
        gates.append(nlp.get_pipe("transformer").model.layers[1].to_bytes())
    assert [share == 1.0 for share in n_kept] == [True, True, True, False, False]
    # Gates learn from the first update on.
    assert len(set(gates)) == 5
    assert attrs_of(nlp)["n_updates"] == 5


def test_training_goes_on_where_it_was(folder, tmp_path):
    nlp = make_nlp(folder, warmup_steps=4)
    nlp.initialize(lambda: make_examples(nlp))
    train(nlp, 3)
    nlp.to_disk(tmp_path)
    for resumed in (spacy.load(tmp_path), make_nlp(folder, warmup_steps=4)):
        if not attrs_of(resumed)["n_updates"]:
            resumed.initialize(lambda resumed=resumed: make_examples(resumed))
            resumed.from_bytes(nlp.to_bytes())
        assert attrs_of(resumed)["n_updates"] == 3
        assert attrs_of(resumed)["gates_trained"]
        before = train(resumed, 1)["span_enumerator"]
        assert train(resumed, 20)["span_enumerator"] < before


def test_documents_without_the_key_teach_the_gates_nothing(folder):
    nlp = make_nlp(folder)
    nlp.initialize(lambda: make_examples(nlp))
    gates = nlp.get_pipe("transformer").model.layers[1]
    before = gates.to_bytes()
    docs = [nlp.make_doc(text) for text in random_texts(6)]
    nlp.update([Example(doc, doc.copy()) for doc in docs], sgd=Adam(0.01))
    assert gates.to_bytes() == before
    # They would drop words by chance.
    assert not attrs_of(nlp)["gates_trained"]


def test_gold_that_a_training_step_drops_is_not_called_lost(folder):
    # At another ratio, in the next step or in prediction, it is there.
    nlp = make_nlp(folder, train_keep_ratio=0.1)
    nlp.initialize(lambda: make_examples(nlp))
    examples = make_examples(nlp)
    random.seed(1)
    for _, pipe in nlp.pipeline:
        pipe.update(examples)
    masks = [kept_mask(own.predicted) for own in examples]
    lost = sum(
        not mask[span.start]
        for own, mask in zip(examples, masks, strict=True)
        for span in own.reference.spans["sc"]
    )
    assert lost
    kept = nlp.get_pipe("span_enumerator").listing._kept
    assert not kept.has_warned_of_lost
    # Runs that were not drawn say what prediction would be like.
    for own in examples:
        own.predicted.spans["kept_tokens"].attrs.pop("drawn")
    docs = [own.predicted for own in examples]
    with pytest.warns(SpansWarning, match="do not lie inside one run"):
        kept.warn_of_lost(docs, "span_enumerator", "sc", lost, lost)


@pytest.mark.parametrize("texts", [[], [""], ["", " "], ["we"]])
def test_batches_of_little_are_no_error_in_training(trained, texts):
    nlp = spacy.blank("en").from_config(trained.config).from_bytes(trained.to_bytes())
    examples = []
    for text in texts:
        examples.append(Example(nlp.make_doc(text), write_spans(nlp.make_doc(text), "sc", [])))
    losses = nlp.update(examples, sgd=Adam(0.001))
    assert np.isfinite(losses.get("span_enumerator", 0.0))
    assert all(np.isfinite(vectors(nlp("we want cooks"))).ravel())


# Data that is dense, or has no gold


def test_on_dense_data_pruning_is_switched_off(folder, tmp_path):
    dense = ["cooks", "law", "we"]
    nlp = make_nlp(folder)
    with pytest.warns(SpansWarning, match=r"of tokens are in gold spans of \['sc'\]"):
        nlp.initialize(lambda: make_examples(nlp, words=dense))
    assert attrs_of(nlp)["keep_ratio"] == attrs_of(nlp)["train_keep_ratio"] == 1.0
    train(nlp, 2)
    assert scored(nlp("cooks law we"), "kept_tokens") == [(0, 3, "", 1.0)]
    nlp.to_disk(tmp_path)
    assert attrs_of(spacy.load(tmp_path))["keep_ratio"] == 1.0
    told = make_nlp(folder, component={"max_span_share": None})
    told.initialize(lambda: make_examples(told, words=dense))
    assert attrs_of(told)["keep_ratio"] == 0.5


def test_without_gold_there_is_nothing_that_gates_could_learn(folder):
    nlp = make_nlp(folder, component={"spans_keys": ["elsewhere"]})
    with pytest.raises(SpansError, match=r"'elsewhere'.*Keys that are there: 'sc'"):
        nlp.initialize(lambda: make_examples(nlp))
    with pytest.raises(SettingsError, match="max_span_share = 2"):
        make_nlp(folder, component={"max_span_share": 2.0})


# Stored, loaded, overridden


def results(nlp):
    return [(scored(doc), scored(doc, "kept_tokens")) for doc in nlp.pipe(random_texts(20, 2))]


def make_stock(folder):
    """Let a stored pipeline have the stock factory, which does not know two of the settings."""
    config = spacy.util.load_config(folder / "config.cfg")
    transformer = config["components"]["transformer"]
    transformer["factory"] = "transformer"
    del transformer["spans_keys"], transformer["max_span_share"]
    config.to_disk(folder / "config.cfg")


@pytest.mark.parametrize("factory", ["pruned_transformer", "transformer"])
def test_saved_pipelines_give_the_same_and_the_dial_turns(trained, factory, tmp_path):
    expected = results(trained)
    trained.to_disk(tmp_path)
    if factory == "transformer":
        make_stock(tmp_path)
    assert results(spacy.load(tmp_path)) == expected
    loaded = spacy.load(tmp_path, config={"components.transformer.model.keep_ratio": 0.2})
    assert attrs_of(loaded)["keep_ratio"] == 0.2
    assert attrs_of(loaded)["gates_trained"]
    by_config = results(loaded)
    assert by_config != expected
    other = spacy.load(tmp_path)
    attrs_of(other)["keep_ratio"] = 0.2
    assert results(other) == by_config
    # What was changed is stored, and counts until the config says something else.
    other.to_disk(tmp_path / "changed")
    assert attrs_of(spacy.load(tmp_path / "changed"))["keep_ratio"] == 0.2
    back = {"components.transformer.model.keep_ratio": 0.9}
    again = spacy.load(tmp_path / "changed", config=back)
    assert attrs_of(again)["keep_ratio"] == 0.9


def test_bytes_and_sourced_components_give_the_same(trained, folder):
    expected = results(trained)
    nlp = spacy.blank("en").from_config(trained.config).from_bytes(trained.to_bytes())
    assert results(nlp) == expected
    sourced = spacy.blank("en", vocab=trained.vocab)
    sourced.add_pipe("transformer", source=trained)
    sourced.add_pipe("span_enumerator", source=trained)
    assert results(sourced) == expected
    again = spacy.blank("en").from_config(sourced.config).from_bytes(sourced.to_bytes())
    assert results(again) == expected


def test_replaced_listeners_have_the_dial_too(trained, tmp_path):
    trained.to_disk(tmp_path / "whole")
    # Nothing will write what was kept any more.
    unrestricted = {"components.span_enumerator.within_kept": False}
    nlp = spacy.load(tmp_path / "whole", config=unrestricted)
    nlp.replace_listeners("transformer", "span_enumerator", ["model.tok2vec"])
    nlp.remove_pipe("transformer")
    nlp.to_disk(tmp_path / "replaced")
    override = {"components.span_enumerator.model.tok2vec.keep_ratio": 0.2}
    loaded = spacy.load(tmp_path / "replaced", config=override)
    inner = loaded.get_pipe("span_enumerator").model.get_ref("tokens")
    (encoder,) = [own for own in inner.walk() if own.name == "transformer"]
    assert encoder.attrs["keep_ratio"] == 0.2
    assert encoder.attrs["gates_trained"]
    texts = random_texts(10, 2)
    at_ratio = [scored(doc) for doc in loaded.pipe(texts)]
    encoder.attrs["keep_ratio"] = 0.5
    expected = [scored(doc) for doc in nlp.pipe(texts)]
    assert [scored(doc) for doc in loaded.pipe(texts)] == expected
    assert at_ratio != expected


@pytest.mark.parametrize("content", ["truncated", "altered", "missing"])
@pytest.mark.parametrize("name", ["model", "cfg"])
def test_damage_is_an_error_that_names_the_file(trained, tmp_path, name, content):
    trained.to_disk(tmp_path)
    path = tmp_path / "transformer" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1 if name == "model" else 128
    path.write_bytes(data[: len(data) // 3] if content == "truncated" else data)
    if content == "missing":
        path.unlink()
    with pytest.raises(DataError, match=rf"{path}' cannot be read: .* damaged"):
        spacy.load(tmp_path)


def test_weights_without_a_checksum_are_those_of_the_stock_factory(trained, tmp_path):
    trained.to_disk(tmp_path)
    checksum = tmp_path / "transformer" / "model.sha256"
    assert len(checksum.read_text()) == 64
    checksum.unlink()
    assert results(spacy.load(tmp_path)) == results(trained)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"keep_ratio": 50}, "keep_ratio = 50"),
        ({"dropped": "mean"}, "dropped = 'mean'"),
        ({"autocast": "float16"}, "autocast = 'float16'"),
        ({"gates": [1, 9]}, r"gates = \[1, 9\] for an encoder of 4 layers"),
    ],
)
def test_settings_that_are_changed_are_checked(trained, dial, setting, message):
    dial(**setting)
    with pytest.raises(SettingsError, match=message):
        trained("we want cooks")


@pytest.mark.parametrize("gates", [[1], [1, 2], [1, 2, 3]])
def test_gates_that_were_not_trained_are_an_error(trained, dial, gates):
    dial(gates=gates)
    message = rf"gates = {gates}, but those behind layers [1, 3] were trained"
    with pytest.raises(SettingsError, match=re.escape(message)):
        trained("we want cooks")


def test_gates_may_be_put_elsewhere_in_training(folder):
    nlp = make_nlp(folder, gates=[1])
    nlp.initialize(lambda: make_examples(nlp))
    train(nlp, 1)
    assert attrs_of(nlp)["trained_gates"] == [1]
    attrs_of(nlp)["gates"] = [2]
    with pytest.raises(SettingsError, match=r"behind layers \[1\] were trained"):
        nlp("we want cooks")
    train(nlp, 1)
    assert attrs_of(nlp)["trained_gates"] == [2]
    assert "kept_tokens" in nlp("we want cooks").spans
    # As pipelines were stored that did not know.
    attrs_of(nlp).update(trained_gates=[], gates=[1, 2])
    with pytest.raises(SettingsError, match=r"but 1 gates were trained"):
        nlp("we want cooks")
