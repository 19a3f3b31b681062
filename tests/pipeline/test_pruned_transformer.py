"""`pruned_transformer`: what its gates keep, where there is little to learn, its settings."""

import re
from itertools import pairwise

import numpy as np
import pytest
import spacy
import torch
from thinc.api import Adam

from spacy_spans.errors import SettingsError, SpansError, SpansWarning

from . import found, scored
from .pruned import (
    QUIET,
    attrs_of,
    kept_mask,
    make_examples,
    make_nlp,
    random_texts,
    train,
    vectors,
)

UNTRAINED = ("norm", "attention", "random")
pytestmark = [pytest.mark.slow, QUIET]


@pytest.mark.parametrize("settings", [{"keep_ratio": 0.3}, {"keep_ratio": None, "threshold": 0.4}])
def test_five_hundred_random_documents(pruned, dial, settings):
    dial(**settings)
    n_dropped = n_spans = 0
    for doc in pruned.pipe(random_texts(500), batch_size=64):
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


def test_each_window_keeps_its_share_of_words(pruned, dial):
    dial(keep_ratio=0.5, gates=[1, 3])
    doc = pruned("we want cooks who know law and food")
    # Half of eight words, and half of these.
    assert int(kept_mask(doc).sum()) == 2
    dial(keep_ratio=1e-6)
    assert int(kept_mask(pruned(doc.text)).sum()) == 1


def test_dropped_words_are_those_that_later_layers_did_not_change(pruned, dial):
    """What is said to be dropped is what was: without pooling its vector is that of the gate."""
    text = "we want cooks who know law and food"
    dial(dropped="drop", keep_ratio=0.5)
    doc = pruned(text)
    model = pruned.get_pipe("transformer").model
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


def test_a_threshold_that_nothing_reaches_drops_all_words(pruned, dial):
    dial(keep_ratio=None, threshold=1.0)
    for doc in pruned.pipe(["we want cooks", "", "law"]):
        assert found(doc, "kept_tokens") == []
        assert found(doc) == []
    dial(threshold=0.0)
    doc = pruned("we want cooks")
    assert found(doc, "kept_tokens") == [(0, 3, "")]


@pytest.mark.parametrize("settings", [{"keep_ratio": 1.0}, {"gates": []}])
def test_where_nothing_is_dropped_the_whole_document_is_kept(pruned, dial, settings):
    dial(**settings)
    assert scored(pruned("we want \n\n cooks"), "kept_tokens") == [(0, 4, "", 1.0)]
    assert scored(pruned(""), "kept_tokens") == []


def test_untrained_gates_keep_all_and_say_so(bert):
    nlp = make_nlp(bert)
    nlp.initialize(lambda: make_examples(nlp))
    with pytest.warns(SpansWarning, match="All words are kept"):
        doc = nlp("we want cooks")
    assert scored(doc, "kept_tokens") == [(0, 3, "", 1.0)]
    nlp("said once")


# The stock factory drops in training what it drops in prediction.
@pytest.mark.filterwarnings("ignore:.*do not lie inside one run")
@pytest.mark.parametrize("criterion", UNTRAINED)
@pytest.mark.parametrize("factory", ["pruned_transformer", "transformer"])
def test_criteria_that_learn_nothing_prune_at_once(bert, factory, criterion):
    nlp = make_nlp(bert, factory, criterion=criterion)
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


# Data that is dense, or has no gold


def test_on_dense_data_pruning_is_switched_off(bert, tmp_path):
    dense = ["cooks", "law", "we"]
    nlp = make_nlp(bert)
    with pytest.warns(SpansWarning, match=r"of tokens are in gold spans of \['sc'\]"):
        nlp.initialize(lambda: make_examples(nlp, words=dense))
    assert attrs_of(nlp)["keep_ratio"] == attrs_of(nlp)["train_keep_ratio"] == 1.0
    train(nlp, 2)
    assert scored(nlp("cooks law we"), "kept_tokens") == [(0, 3, "", 1.0)]
    nlp.to_disk(tmp_path)
    assert attrs_of(spacy.load(tmp_path))["keep_ratio"] == 1.0
    told = make_nlp(bert, component={"max_span_share": None})
    told.initialize(lambda: make_examples(told, words=dense))
    assert attrs_of(told)["keep_ratio"] == 0.5


def ratios(nlp):
    return [attrs_of(nlp)[key] for key in ("keep_ratio", "train_keep_ratio")]


@pytest.mark.parametrize("stored", [False, True])
def test_sparse_data_after_dense_switches_pruning_on_again(bert, tmp_path, stored):
    nlp = make_nlp(bert, keep_ratio=0.6, train_keep_ratio=0.2)
    with pytest.warns(SpansWarning, match="none is dropped"):
        nlp.initialize(lambda: make_examples(nlp, words=["cooks", "law", "we"]))
    assert ratios(nlp) == [1.0, 1.0]
    if stored:
        nlp.to_disk(tmp_path)
        nlp = spacy.load(tmp_path)
        assert ratios(nlp) == [1.0, 1.0]
    nlp.initialize(lambda: make_examples(nlp))
    assert ratios(nlp) == [0.6, 0.2]


def test_initialize_leaves_a_ratio_that_was_set_by_hand(bert):
    nlp = make_nlp(bert, keep_ratio=0.6, train_keep_ratio=0.2)
    attrs_of(nlp)["keep_ratio"] = 1.0
    nlp.initialize(lambda: make_examples(nlp))
    assert ratios(nlp) == [1.0, 0.2]


def test_without_gold_there_is_nothing_that_gates_could_learn(bert):
    nlp = make_nlp(bert, component={"spans_keys": ["elsewhere"]})
    with pytest.raises(SpansError, match=r"'elsewhere'.*Keys that are there: 'sc'"):
        nlp.initialize(lambda: make_examples(nlp))
    with pytest.raises(SettingsError, match="max_span_share = 2"):
        make_nlp(bert, component={"max_span_share": 2.0})


# Settings


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"keep_ratio": 50}, "keep_ratio = 50"),
        ({"dropped": "mean"}, "dropped = 'mean'"),
        ({"autocast": "float16"}, "autocast = 'float16'"),
        ({"gates": [1, 9]}, r"gates = \[1, 9\] for an encoder of 4 layers"),
    ],
)
def test_settings_that_are_changed_are_checked(pruned, dial, setting, message):
    dial(**setting)
    with pytest.raises(SettingsError, match=message):
        pruned("we want cooks")


@pytest.mark.parametrize("gates", [[1], [1, 2], [1, 2, 3]])
def test_gates_that_were_not_trained_are_an_error(pruned, dial, gates):
    dial(gates=gates)
    message = rf"gates = {gates}, but those behind layers [1, 3] were trained"
    with pytest.raises(SettingsError, match=re.escape(message)):
        pruned("we want cooks")
