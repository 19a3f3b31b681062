"""Factories: settings reach the component, wrong ones are refused, nothing is shared."""

import pytest
import spacy

from spacy_spans.candidates import list_by_boundaries, list_by_length, list_preset
from spacy_spans.factories import DEFAULT_SPAN_ENUMERATOR
from spacy_spans.scorers import score_spans

from .pipeline import CANDIDATES


def add(**config):
    return spacy.blank("en").add_pipe("span_enumerator", config=config)


# A value other than the default for every setting, and where the component keeps it.
SETTINGS = {
    "spans_key": "skills",
    "candidates_key": "listed",
    "kept_key": "runs",
    "within_kept": True,
    "loss": "softmax",
    "add_gold_candidates": False,
    "negative_ratio": 7.5,
    "boundary_smoothing": 0.25,
    "threshold": 0.3,
    "label_thresholds": {"A": 0.2},
    "overlap": "flat",
    "top_k": 4,
}


# Settings without effect unless another one is set.
NEEDED = {"kept_key": {"within_kept": True}}


def value_of(pipe, setting):
    if setting == "within_kept":
        return pipe.listing.kept_key is not None
    if setting == "kept_key":
        return pipe.listing.kept_key
    return pipe.cfg[setting] if setting in pipe.cfg else getattr(pipe, setting)


def test_the_table_has_every_plain_setting():
    config = DEFAULT_SPAN_ENUMERATOR["span_enumerator"]
    assert set(SETTINGS) == set(config) - {"model", "candidates", "scorer"}


@pytest.mark.parametrize(("setting", "value"), SETTINGS.items())
def test_each_setting_reaches_the_component(setting, value):
    default = DEFAULT_SPAN_ENUMERATOR["span_enumerator"][setting]
    assert value != default
    needed = NEEDED.get(setting, {})
    assert value_of(add(**needed), setting) == default
    assert value_of(add(**needed, **{setting: value}), setting) == value


def test_all_settings_at_once_are_written_to_the_config():
    nlp = spacy.blank("en")
    nlp.add_pipe("span_enumerator", config=SETTINGS)
    config = nlp.config["components"]["span_enumerator"]
    assert {key: config[key] for key in SETTINGS} == SETTINGS
    again = spacy.blank("en").from_config(nlp.config).get_pipe("span_enumerator")
    for setting, value in SETTINGS.items():
        assert value_of(again, setting) == value


@pytest.mark.parametrize(
    ("name", "function"),
    [("length", list_by_length), ("boundary", list_by_boundaries), ("preset", list_preset)],
)
def test_candidates_reach_the_component(name, function):
    assert add(candidates=CANDIDATES[name]).listing.function.func is function


def test_scorers_reach_the_component():
    assert add().scorer is score_spans
    assert add(scorer=None).scorer is None


def test_model_settings_reach_the_model():
    pipe = add(model={"hidden_width": 5})
    assert pipe.model.get_ref("classifier").get_dim("nI") == 3 * 5 + 2


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("loss", "hinge"),
        ("overlap", "longest"),
        ("top_k", "many"),
        ("threshold", "high"),
        ("label_thresholds", {"A": "high"}),
        ("spans_key", None),
        ("no_such_setting", 1),
    ],
)
def test_values_of_the_wrong_kind_are_refused_by_name(setting, value):
    with pytest.raises(ValueError, match=setting):
        add(**{setting: value})


def test_components_share_no_settings():
    first, second = add(), add()
    first.cfg["label_thresholds"]["A"] = 0.1
    first.add_label("A")
    assert second.cfg["label_thresholds"] == {}
    assert second.labels == ()
    assert DEFAULT_SPAN_ENUMERATOR["span_enumerator"]["label_thresholds"] == {}


def test_two_components_of_one_pipeline_have_their_own_models():
    nlp = spacy.blank("en")
    one = nlp.add_pipe("span_enumerator", name="one")
    two = nlp.add_pipe("span_enumerator", name="two", config={"spans_key": "two"})
    assert (one.name, two.name) == ("one", "two")
    assert one.model is not two.model
    assert (one.key, two.key) == ("sc", "two")


@pytest.mark.parametrize("lang", ["en", "de", "xx"])
def test_the_default_pipeline_is_made_for_any_language(lang):
    assert spacy.blank(lang).add_pipe("span_enumerator").labels == ()


def test_the_component_says_what_it_assigns():
    nlp = spacy.blank("en")
    nlp.add_pipe("span_enumerator")
    analysis = nlp.analyze_pipes()
    assert analysis["summary"]["span_enumerator"]["assigns"] == ["doc.spans"]
    assert analysis["problems"]["span_enumerator"] == []
