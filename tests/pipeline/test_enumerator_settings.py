"""`span_enumerator`: settings out of range, and at the edge of it."""

import pytest

from spacy_spans.errors import SettingsError

from . import (
    CANDIDATES,
    TEXTS,
    make_examples,
    make_initialized,
    make_nlp,
    make_pipe,
)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("threshold", -0.1, r"a threshold of -0.1 for 'threshold'.*0 to 1"),
        ("threshold", 1.1, r"a threshold of 1.1 for 'threshold'.*0 to 1"),
        ("label_thresholds", {"A": 2.0}, r"a threshold of 2.0 for 'A'.*0 to 1"),
        ("top_k", 0, r"top_k = 0.*at least 1"),
        ("boundary_smoothing", 0.5, r"boundary_smoothing = 0.5.*0 to below 0.5"),
        ("boundary_smoothing", -0.1, r"boundary_smoothing = -0.1.*0 to below 0.5"),
        ("negative_ratio", 0.0, r"negative_ratio = 0.0.*above 0"),
        ("negative_ratio", -1.0, r"negative_ratio = -1.0.*above 0"),
    ],
)
def test_settings_out_of_range_are_an_error(setting, value, message):
    with pytest.raises(SettingsError, match=message):
        make_pipe(**{setting: value})


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("loss", "hinge", r"loss = 'hinge'.*sigmoid.*softmax"),
        ("overlap", "greedy", r"overlap = 'greedy'.*any.*nested.*flat"),
        ("threshold", float("nan"), r"a threshold of nan for 'threshold'.*0 to 1"),
    ],
)
def test_what_a_config_cannot_hold_is_an_error_too(setting, value, message):
    _, pipe = make_pipe()
    with pytest.raises(SettingsError, match=message):
        type(pipe)(pipe.vocab, pipe.model, pipe.listing.function, **{setting: value})


@pytest.mark.parametrize(
    "settings_",
    [
        {"candidates_key": "sc"},
        {"spans_key": "listed", "candidates_key": "listed"},
        {"spans_key": "kept_tokens", "within_kept": True},
        {"spans_key": "mine", "kept_key": "mine", "within_kept": True},
        {"spans_key": "given", "candidates": CANDIDATES["preset"]},
        {"candidates_key": "given", "candidates": CANDIDATES["preset"]},
        {"candidates_key": "kept_tokens", "within_kept": True},
    ],
    ids=str,
)
def test_spans_are_not_written_over_what_is_read_or_written_otherwise(settings_):
    with pytest.raises(SettingsError, match=r"to write to \['.*'\] and to read from .*to differ"):
        make_pipe(**settings_)


def test_spans_may_have_the_key_of_kept_runs_that_nothing_reads():
    _, pipe = make_pipe(spans_key="kept_tokens", within_kept=False)
    assert pipe.key == "kept_tokens"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("threshold", 0.0),
        ("threshold", 1.0),
        ("top_k", 1),
        ("boundary_smoothing", 0.49),
        ("negative_ratio", 0.01),
    ],
)
def test_settings_at_the_edge_of_their_range_are_taken(setting, value):
    make_pipe(**{setting: value})


def test_thresholds_of_unknown_labels_are_an_error_at_initialize():
    nlp = make_nlp(label_thresholds={"SKILL": 0.2, "SKIL": 0.3})
    examples = make_examples(nlp)
    with pytest.raises(SettingsError, match=r"names \['SKIL'\], but the labels are \['DUTY'"):
        nlp.initialize(lambda: examples)


def test_thresholds_of_unknown_labels_are_an_error_at_prediction():
    nlp, pipe, _ = make_initialized()
    pipe.cfg["label_thresholds"] = {"NOPE": 0.3}
    with pytest.raises(SettingsError, match=r"names \['NOPE'\]"):
        nlp(TEXTS[0])


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("overlap", "none", "overlap = 'none'"),
        ("top_k", -1, "top_k = -1"),
        ("threshold", 1.5, r"a threshold of 1\.5"),
    ],
)
def test_settings_changed_after_training_are_checked(setting, value, message):
    nlp, pipe, _ = make_initialized()
    pipe.cfg[setting] = value
    with pytest.raises(SettingsError, match=message):
        nlp(TEXTS[0])


def test_saved_settings_out_of_range_are_an_error_when_loaded():
    nlp, pipe, _ = make_initialized()
    pipe.cfg["threshold"] = 7.0
    with pytest.raises(SettingsError, match=r"a threshold of 7\.0"):
        make_nlp().from_bytes(nlp.to_bytes())
