"""What components share: settings that are stored with the weights, score weights."""

from copy import deepcopy

import pytest
import spacy
import srsly
from thinc.api import Adam, Model

from spacy_spans.errors import SpansWarning

from . import (
    DATA,
    DATA_FOR,
    LABELS,
    found,
    make_examples,
    make_initialized,
    make_nlp,
    make_pipe,
    make_trained,
    train,
    train_on,
    write_spans,
)


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


# What was fitted to weights that then change


# What the commands leave in cfg.
TEMPERATURE = {"method": "temperature", "temperature": 2.0}
FITTED = {"score_map": TEMPERATURE, "threshold": 0.3, "label_thresholds": {"DUTY": 0.2}}


def fit(pipe):
    pipe.cfg.update(deepcopy(FITTED))


def test_training_what_was_calibrated_warns_once(factory):
    nlp, pipe, examples = make_initialized(DATA_FOR[factory], factory=factory)
    train_on(nlp, examples, steps=1)
    fit(pipe)
    # Nothing changes the weights yet.
    nlp.update(examples, sgd=False)
    message = f"{factory} is trained further, but `spacy spans calibrate` fitted"
    with pytest.warns(SpansWarning, match=message):
        train_on(nlp, examples, steps=1)
    # An error in tests if it was said again.
    train_on(nlp, examples, steps=2)
    # What comes of it is for the user to say.
    assert {key: pipe.cfg[key] for key in FITTED} == FITTED


def test_what_was_calibrated_and_is_not_trained_warns_of_nothing(factory):
    nlp, pipe, examples = make_initialized(DATA_FOR[factory], factory=factory)
    fit(pipe)
    nlp.update(examples, sgd=Adam(0.001), exclude=[factory])


@pytest.mark.parametrize("is_fitted", [True, False])
def test_initialize_forgets_thresholds_only_if_they_were_calibrated(factory, is_fitted):
    configured = {"threshold": 0.4, "label_thresholds": {"SKILL": 0.6}}
    nlp, pipe, examples = make_initialized(DATA_FOR[factory], factory=factory, **configured)
    fit(pipe)
    if not is_fitted:
        pipe.cfg["score_map"] = None
    nlp.initialize(lambda: examples)
    expected = configured if is_fitted else {key: FITTED[key] for key in configured}
    assert {key: pipe.cfg[key] for key in FITTED} == {"score_map": None, **expected}
    # What the config says is not what is changed now.
    pipe.cfg["label_thresholds"]["DUTY"] = 0.9
    fit(pipe)
    nlp.initialize(lambda: examples)
    assert {key: pipe.cfg[key] for key in configured} == configured


# Keys


def test_initialize_warns_of_another_component_that_writes_the_same_key():
    nlp = make_nlp()
    nlp.add_pipe("spancat")
    examples = make_examples(nlp)
    message = r"span_enumerator and spancat all write doc\.spans\['sc'\].*a spans_key of its own"
    with pytest.warns(SpansWarning, match=message):
        nlp.initialize(lambda: examples)


# Settings


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


def test_score_weights_of_a_stock_component_with_the_default_key_stay():
    nlp = make_nlp(spans_key="skills")
    nlp.add_pipe("spancat")
    nlp.config["training"]["score_weights"] = {"spans_sc_f": 0.7}
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
