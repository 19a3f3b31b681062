"""What components share: labels, errors at initialize, settings that are stored, score weights."""

from copy import deepcopy

import pytest
import spacy
import srsly
from spacy.training import Example
from thinc.api import Model

from spacy_spans.errors import SettingsError, SpansError, SpansWarning

from . import (
    DATA,
    LABELS,
    found,
    make_example,
    make_examples,
    make_initialized,
    make_nlp,
    make_pipe,
    make_trained,
    train,
    write_spans,
)

pytestmark = pytest.mark.installed


def reload(nlp, folder, **config):
    nlp.to_disk(folder)
    overrides = {f"components.span_enumerator.{key}": value for key, value in config.items()}
    loaded = spacy.load(folder, config=overrides)
    return loaded, loaded.get_pipe("span_enumerator")


# What the settings file holds of training with candidates that are not learned.
LEARNED = {"labels": list(LABELS), "score_map": None, "boundaries": False}


def stored_settings(folder):
    settings = srsly.read_json(folder / "span_enumerator" / "cfg")
    # Of the weights beside them, see test_on_disk.py.
    assert len(settings.pop("model_sha256")) == 64
    return settings


# Labels


def test_labels_start_empty_and_keep_their_order():
    _, pipe = make_pipe()
    assert (pipe.labels, pipe.label_data, pipe.label_ids) == ((), [], {})
    assert [pipe.add_label(label) for label in ("b", "a", "b", "c", "a")] == [1, 1, 0, 1, 0]
    assert pipe.labels == ("b", "a", "c")
    assert pipe.label_data == ["b", "a", "c"]
    assert pipe.label_ids == {"b": 0, "a": 1, "c": 2}
    assert "c" in pipe.vocab.strings


def test_label_data_is_a_copy():
    _, pipe = make_pipe()
    pipe.add_label("a")
    pipe.label_data.append("b")
    assert pipe.labels == ("a",)


@pytest.mark.parametrize("label", ["", 3, None])
def test_what_is_no_label_is_an_error(label):
    _, pipe = make_pipe()
    with pytest.raises(
        SettingsError, match=r"Got the label .* Expected a string that is not empty"
    ):
        pipe.add_label(label)
    assert pipe.labels == ()


def test_labels_are_read_from_the_data_sorted():
    _, pipe, _ = make_initialized()
    assert pipe.labels == LABELS


def test_given_labels_keep_their_order_and_may_go_beyond_the_data():
    nlp, pipe = make_pipe()
    examples = make_examples(nlp)
    with pytest.warns(SpansWarning, match="no training example for MORE in 'sc'"):
        pipe.initialize(lambda: examples, labels=["SKILL", "MORE", "DUTY", "KNOWLEDGE"])
    assert pipe.labels == ("SKILL", "MORE", "DUTY", "KNOWLEDGE")
    assert pipe.model.get_dim("nO") == 4


def test_initialize_twice_keeps_labels_once():
    nlp, pipe, examples = make_initialized()
    nlp.initialize(lambda: examples)
    assert pipe.labels == LABELS
    assert pipe.model.get_dim("nO") == 3


def test_data_with_a_label_that_was_not_given_is_an_error():
    nlp, pipe = make_pipe()
    examples = make_examples(nlp)
    message = r"'write clean Python' labelled 'SKILL' in 'sc'.*knows only \['DUTY', 'KNOWLEDGE'\]"
    with pytest.raises(SpansError, match=message):
        pipe.initialize(lambda: examples, labels=["DUTY", "KNOWLEDGE"])


@pytest.mark.parametrize("labels", [["A", ""], ["A", 3], [None]], ids=str)
def test_given_labels_that_are_none_are_an_error(labels):
    nlp, pipe = make_pipe()
    examples = make_examples(nlp)
    with pytest.raises(SettingsError, match=r"Got the label .* Expected a string that is not"):
        pipe.initialize(lambda: examples, labels=labels)


def test_one_string_is_no_list_of_labels():
    nlp, pipe = make_pipe()
    examples = make_examples(nlp)
    with pytest.raises(SettingsError, match=r"labels = 'SKILL'\. Expected a list of strings"):
        pipe.initialize(lambda: examples, labels="SKILL")
    assert pipe.labels == ()


def test_spans_without_a_label_are_an_error():
    nlp = make_nlp()
    examples = make_examples(nlp, [("a b", [(0, 1, "A"), (1, 2, "")])])
    with pytest.raises(SettingsError, match=r"Got the label ''.*spans in the training data"):
        nlp.initialize(lambda: examples)


def initialize_with_labels_file(path, *, require=True):
    nlp = make_nlp()
    nlp.config["initialize"]["components"]["span_enumerator"] = {
        "labels": {"@readers": "spacy.read_labels.v1", "path": str(path), "require": require}
    }
    examples = make_examples(nlp)
    nlp.initialize(lambda: examples)
    return nlp.get_pipe("span_enumerator")


def test_labels_come_from_a_file_that_init_labels_wrote(tmp_path):
    _, pipe, _ = make_initialized()
    path = tmp_path / "labels.json"
    srsly.write_json(path, list(reversed(pipe.label_data)))
    assert initialize_with_labels_file(path).labels == tuple(reversed(LABELS))


def test_a_labels_file_that_is_not_there_is_an_error_if_required(tmp_path):
    with pytest.raises(ValueError, match=r"E170|labels|not\.json"):
        initialize_with_labels_file(tmp_path / "not.json")


def test_a_labels_file_that_is_not_there_is_ignored_if_not_required(tmp_path):
    pipe = initialize_with_labels_file(tmp_path / "not.json", require=False)
    assert pipe.labels == LABELS


# Errors at initialize


@pytest.mark.parametrize("labels", [None, list(LABELS)], ids=["from data", "given"])
def test_a_missing_key_is_an_error_that_lists_the_keys_there_are(labels):
    nlp, pipe = make_pipe()
    examples = [*make_examples(nlp, key="skills"), make_example(nlp, "x", [(0, 1, "A")], "other")]
    message = (
        r"No training document has doc\.spans\['sc'\].*"
        r"'other' \(1 documents\), 'skills' \(4 documents\).*spans_key"
    )
    with pytest.raises(SpansError, match=message):
        pipe.initialize(lambda: examples, labels=labels)


def test_data_without_any_key_is_an_error_that_says_so():
    nlp = make_nlp()
    examples = [Example(nlp.make_doc("a"), nlp.make_doc("a"))]
    with pytest.raises(SpansError, match="Keys that are there: none"):
        nlp.initialize(lambda: examples)


def test_data_with_empty_groups_only_is_an_error_that_says_so():
    nlp = make_nlp()
    examples = make_examples(nlp, [("a", []), ("", [])])
    with pytest.raises(SpansError, match=r"that have doc\.spans\['sc'\] have no span in it"):
        nlp.initialize(lambda: examples)


def test_given_labels_and_empty_groups_only_are_no_error():
    nlp, pipe = make_pipe()
    examples = make_examples(nlp, [("a", []), ("", [])])
    with pytest.warns(SpansWarning, match="no training example for A in 'sc'"):
        pipe.initialize(lambda: examples, labels=["A"])
    assert pipe.labels == ("A",)


def test_no_examples_are_an_error():
    nlp, pipe = make_pipe()
    for get_examples in (list, None):
        with pytest.raises(TypeError, match=r"E930.*SpanEnumerator\.initialize"):
            pipe.initialize(get_examples)
    with pytest.raises(TypeError, match="E930"):
        nlp.initialize(list)


def test_empty_documents_first_do_not_hinder_initialize():
    nlp = make_nlp()
    train(nlp, make_examples(nlp, [("", [])] * 12 + DATA))
    assert found(nlp(DATA[0][0])) == DATA[0][1]


def test_spans_may_be_in_the_last_document_only():
    nlp = make_nlp()
    examples = [Example(nlp.make_doc("a"), nlp.make_doc("a")) for _ in range(15)]
    examples.append(make_example(nlp, "b c", [(0, 2, "LAST")]))
    with pytest.warns(SpansWarning, match=r"15 of 16 training documents have no doc\.spans"):
        nlp.initialize(lambda: examples)
    assert nlp.get_pipe("span_enumerator").labels == ("LAST",)


def test_examples_may_come_from_a_generator():
    nlp = make_nlp()
    nlp.initialize(lambda: iter(make_examples(nlp)))
    assert nlp.get_pipe("span_enumerator").labels == LABELS


def test_initialize_warns_of_another_component_that_writes_the_same_key():
    nlp = make_nlp()
    nlp.add_pipe("spancat")
    examples = make_examples(nlp)
    message = r"span_enumerator and spancat all write doc\.spans\['sc'\].*a spans_key of its own"
    with pytest.warns(SpansWarning, match=message):
        nlp.initialize(lambda: examples)


# Settings


@pytest.mark.parametrize("key", ["", "a=b", "a:b", "a\nb", "a\n", "\u2028"])
def test_keys_that_a_config_cannot_name_are_an_error(key):
    _, pipe = make_pipe()
    with pytest.raises(SettingsError, match=r"Got spans_key = .* expected a name"):
        type(pipe)(pipe.vocab, pipe.model, pipe.listing.function, spans_key=key)


def test_settings_that_were_not_changed_are_not_stored(tmp_path):
    nlp, _, _ = make_initialized(threshold=0.4, top_k=7)
    nlp.to_disk(tmp_path)
    assert stored_settings(tmp_path) == {**LEARNED, "changed": {}}


def test_a_setting_of_the_config_can_be_overridden_when_loading(tmp_path):
    nlp = make_trained()
    loaded, pipe = reload(nlp, tmp_path, threshold=0.9, overlap="flat", top_k=1)
    assert (pipe.cfg["threshold"], pipe.cfg["overlap"], pipe.cfg["top_k"]) == (0.9, "flat", 1)
    assert len(found(loaded(DATA[0][0]))) == 1
    assert len(found(nlp(DATA[0][0]))) == 5


def test_an_override_stays_when_saved_again(tmp_path):
    nlp = make_trained()
    loaded, _ = reload(nlp, tmp_path / "one", threshold=0.9)
    _, pipe = reload(loaded, tmp_path / "two")
    assert pipe.cfg["threshold"] == 0.9


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("threshold", 0.31),
        ("label_thresholds", {"SKILL": 0.2}),
        ("overlap", "nested"),
        ("top_k", 3),
        ("top_k", None),
    ],
)
def test_a_setting_changed_at_run_time_survives_saving(tmp_path, setting, value):
    nlp = make_trained(steps=1, **({"top_k": 5} if value is None else {}))
    settings = nlp.get_pipe("span_enumerator").cfg
    change = {"config": settings[setting], "value": value}
    settings[setting] = value
    loaded, pipe = reload(nlp, tmp_path / "one")
    assert pipe.cfg[setting] == value
    assert stored_settings(tmp_path / "one") == {
        **LEARNED,
        "changed": {setting: change},
    }
    # And saving what was loaded.
    _, again = reload(loaded, tmp_path / "two")
    assert again.cfg[setting] == value
    from_bytes = spacy.blank("en").from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert from_bytes.get_pipe("span_enumerator").cfg[setting] == value


def test_what_is_given_at_load_beats_a_stored_change_to_the_same_setting(tmp_path):
    nlp = make_trained(steps=1)
    nlp.get_pipe("span_enumerator").cfg.update(threshold=0.31, top_k=3)
    loaded, pipe = reload(nlp, tmp_path / "one", threshold=0.9)
    assert (pipe.cfg["threshold"], pipe.cfg["top_k"]) == (0.9, 3)
    # And saving what was loaded.
    _, again = reload(loaded, tmp_path / "two")
    assert (again.cfg["threshold"], again.cfg["top_k"]) == (0.9, 3)


def test_what_is_written_in_the_config_of_a_saved_pipeline_beats_a_stored_change(tmp_path):
    nlp = make_trained(steps=1)
    nlp.get_pipe("span_enumerator").cfg.update(threshold=0.31, overlap="flat")
    nlp.to_disk(tmp_path)
    config = spacy.util.load_config(tmp_path / "config.cfg")
    config["components"]["span_enumerator"]["threshold"] = 0.6
    config.to_disk(tmp_path / "config.cfg")
    pipe = spacy.load(tmp_path).get_pipe("span_enumerator")
    assert (pipe.cfg["threshold"], pipe.cfg["overlap"]) == (0.6, "flat")


def test_loading_resets_settings_that_were_changed_in_memory(tmp_path):
    _, pipe, _ = make_initialized(threshold=0.4, label_thresholds={"SKILL": 0.3})
    stored = pipe.to_bytes()
    pipe.to_disk(tmp_path / "pipe")
    before = deepcopy(pipe.cfg)
    for load in (
        lambda: pipe.from_bytes(stored),
        lambda: pipe.from_disk(tmp_path / "pipe"),
    ):
        pipe.cfg.update(threshold=0.9, top_k=2)
        pipe.cfg["label_thresholds"]["SKILL"] = 0.8
        load()
        assert pipe.cfg == before
    # The reset settings are no changes.
    assert pipe.to_bytes() == stored


def test_a_component_can_predict_while_it_is_saved(tmp_path, monkeypatch):
    nlp = make_trained()
    pipe = nlp.get_pipe("span_enumerator")
    pipe.cfg["threshold"] = 0.31
    cfg, expected = pipe.cfg, found(nlp(DATA[0][0]))
    seen = []

    def predict_meanwhile(original):
        def stored(*args, **kwargs):
            seen.append((pipe.cfg is cfg, found(nlp(DATA[0][0]))))
            return original(*args, **kwargs)

        return stored

    # With what is stored first, the settings, and with what is stored last, the weights.
    monkeypatch.setattr(pipe, "_stored_cfg", predict_meanwhile(pipe._stored_cfg))
    monkeypatch.setattr(Model, "to_bytes", predict_meanwhile(Model.to_bytes))
    pipe.to_bytes()
    pipe.to_disk(tmp_path / "pipe")
    assert seen == [(True, expected)] * 4
    assert pipe.cfg is cfg


def test_changing_thresholds_in_place_counts_as_a_change(tmp_path):
    nlp = make_trained(steps=1, label_thresholds={"SKILL": 0.5})
    nlp.get_pipe("span_enumerator").cfg["label_thresholds"]["SKILL"] = 0.2
    _, pipe = reload(nlp, tmp_path)
    assert pipe.cfg["label_thresholds"] == {"SKILL": 0.2}


def test_saving_leaves_the_settings_in_place(tmp_path):
    nlp, pipe, _ = make_initialized()
    before = dict(pipe.cfg)
    nlp.to_disk(tmp_path)
    nlp.to_bytes()
    assert pipe.cfg == before


def test_saving_before_initialize_keeps_labels(tmp_path):
    nlp, pipe = make_pipe()
    pipe.add_label("A")
    loaded, other = reload(nlp, tmp_path)
    assert other.labels == ("A",)
    train(loaded, make_examples(loaded, [("x y", [(0, 2, "A")])]))
    assert found(loaded("x y")) == [(0, 2, "A")]


# Score weights


def weights_of(nlp):
    return {key: value for key, value in nlp.config["training"]["score_weights"].items() if value}


@pytest.mark.parametrize("key", ["sc", "skills"])
def test_score_weights_follow_the_key(key):
    nlp = make_nlp(spans_key=key)
    examples = make_examples(nlp, key=key)
    nlp.initialize(lambda: examples)
    assert weights_of(nlp) == {f"spans_{key}_f": 1.0}
    every = nlp.config["training"]["score_weights"]
    names = ("candidate_recall", "f", "p", "r")
    in_use = [name for name, weight in every.items() if weight is not None]
    assert sorted(in_use) == [f"spans_{key}_{name}" for name in names]
    # Those of the default key are off: spaCy would take a missing score for an error.
    assert set(every) - set(in_use) == {f"spans_sc_{name}" for name in names} - set(in_use)
    assert set(in_use) <= set(nlp.evaluate(examples))


def test_score_weights_stay_with_the_key_when_loaded(tmp_path):
    nlp = make_nlp(spans_key="skills")
    examples = make_examples(nlp, key="skills")
    nlp.initialize(lambda: examples)
    expected = dict(nlp.config["training"]["score_weights"])
    assert expected["spans_skills_f"] == 1.0
    assert expected["spans_sc_f"] is None
    for i in range(2):
        nlp.to_disk(tmp_path / str(i))
        nlp = spacy.load(tmp_path / str(i))
        assert nlp.config["training"]["score_weights"] == expected
    nlp.resume_training()
    assert nlp.config["training"]["score_weights"] == expected
    # Initialized once more, e.g. by `spacy train` with the config of the loaded pipeline.
    nlp.initialize(lambda: examples)
    assert nlp.config["training"]["score_weights"] == expected


def test_score_weights_of_the_default_key_stay_where_another_component_has_it():
    nlp = make_nlp(spans_key="skills")
    nlp.add_pipe("span_enumerator", name="second")
    examples = make_examples(nlp, key="skills")
    for example, (_, spans) in zip(examples, DATA, strict=True):
        write_spans(example.reference, "sc", spans)
    nlp.initialize(lambda: examples)
    assert weights_of(nlp) == {"spans_sc_f": 0.5, "spans_skills_f": 0.5}


def test_score_weights_of_two_components_are_shared_out():
    nlp = make_nlp(spans_key="one")
    nlp.add_pipe("span_enumerator", name="second", config={"spans_key": "two"})
    examples = make_examples(nlp, key="one")
    for example, (_, spans) in zip(examples, DATA, strict=True):
        write_spans(example.reference, "two", spans)
    nlp.initialize(lambda: examples)
    assert weights_of(nlp) == {"spans_one_f": 0.5, "spans_two_f": 0.5}


def test_score_weights_given_in_the_config_are_kept():
    nlp = make_nlp()
    nlp.config["training"]["score_weights"] = {"spans_sc_r": 1.0, "spans_sc_f": 0.0}
    examples = make_examples(nlp)
    nlp.initialize(lambda: examples)
    assert weights_of(nlp) == {"spans_sc_r": 1.0}


def test_score_weights_follow_the_key_of_a_renamed_component():
    nlp = make_nlp(spans_key="skills")
    nlp.rename_pipe("span_enumerator", "skill_finder")
    examples = make_examples(nlp, key="skills")
    nlp.initialize(lambda: examples)
    assert weights_of(nlp) == {"spans_skills_f": 1.0}


def test_components_of_one_factory_have_their_own_names_and_losses():
    nlp = make_nlp(name="finder")
    losses = train(nlp, make_examples(nlp), steps=1)
    assert list(losses) == ["finder"]
