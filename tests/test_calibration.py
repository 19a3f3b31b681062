"""Fitting a component's scores and thresholds, and what becomes of them."""

import json

import numpy as np
import pytest
import spacy
import srsly

from spacy_spans.calibration import LOWEST_SCORE, MIN_GOLD, Goal, calibrate
from spacy_spans.calibration_report import format_report
from spacy_spans.errors import DataError, SettingsError
from spacy_spans.kernels.calibration import apply_score_map

from .pipeline import (
    DATA,
    DATA_FOR,
    LABELS,
    ONE_LABEL_DATA,
    make_example,
    make_examples,
    make_nlp,
    make_trained,
    predictions,
    train,
    train_by_heart,
)

pytestmark = pytest.mark.installed

FACTORIES = ("span_enumerator", "multispan_tagger")
QUICK = Goal(n_samples=20)


def gold_of(nlp, data):
    return [example.reference for example in make_examples(nlp, data)]


@pytest.fixture(scope="module", params=FACTORIES)
def calibrated(request):
    """A calibrated pipeline, the name of its component, and the report."""
    nlp = train_by_heart(request.param)
    gold = gold_of(nlp, DATA_FOR[request.param] * 2)
    return nlp, request.param, calibrate(nlp, gold, goal=QUICK, min_gold=4)


def test_the_map_and_the_thresholds_are_set(calibrated):
    nlp, name, report = calibrated
    cfg = nlp.get_pipe(name).cfg
    assert report["component"] == name
    assert cfg["score_map"] == report["score_map"]
    assert cfg["threshold"] == report["threshold"]["threshold"]
    own = {label: row["threshold"] for label, row in report["labels"].items() if row["own"]}
    assert cfg["label_thresholds"] == own
    few = {label for label, row in report["labels"].items() if row["gold"] < 4}
    assert set(own) == {*LABELS} - few
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert "fewer than 4 gold spans" in format_report(report) or not few


def test_scores_are_mapped_and_the_report_is_what_evaluation_finds(calibrated):
    nlp, name, report = calibrated
    examples = make_examples(nlp, DATA_FOR[name] * 2)
    scores = nlp.evaluate(examples)
    for key in "prf":
        assert report["after"][key] == pytest.approx(scores[f"spans_sc_{key}"])
    pipe = nlp.get_pipe(name)
    mapped = predictions(nlp)
    score_map, pipe.cfg["score_map"] = pipe.cfg["score_map"], None
    try:
        raw = predictions(nlp)
    finally:
        pipe.cfg["score_map"] = score_map
    pairs = {
        (doc, *row[:3]): row[3] for doc, rows in enumerate(raw) for row in rows if row and row[3:]
    }
    assert pairs
    for doc, rows in enumerate(mapped):
        for row in rows:
            if (doc, *row[:3]) in pairs and len(row) > 3:
                before = np.asarray([pairs[(doc, *row[:3])]], "f")
                assert row[3] == pytest.approx(apply_score_map(score_map, before)[0])


def test_it_is_stored_sourced_and_copied(calibrated, tmp_path):
    nlp, name, _ = calibrated
    expected = predictions(nlp)
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert predictions(loaded) == expected
    assert loaded.get_pipe(name).cfg == nlp.get_pipe(name).cfg
    again = spacy.load(tmp_path)
    again.get_pipe(name).cfg.update(score_map=None, label_thresholds={})
    assert predictions(again.from_bytes(nlp.to_bytes())) == expected
    other = spacy.blank("en")
    other.add_pipe(name, source=loaded)
    assert predictions(other) == expected


@pytest.mark.parametrize("damage", ["method", "scores", "rates"])
def test_a_damaged_score_map_is_an_error_that_names_the_file(calibrated, tmp_path, damage):
    nlp, name, _ = calibrated
    nlp.to_disk(tmp_path)
    path = tmp_path / name / "cfg"
    cfg = srsly.read_json(path)
    del cfg["score_map"][damage]
    srsly.write_json(path, cfg)
    with pytest.raises(DataError, match=rf"{path}' cannot be read: the .* of its score map"):
        spacy.load(tmp_path)


def test_a_threshold_of_the_config_has_the_last_word(calibrated, tmp_path):
    nlp, name, _ = calibrated
    nlp.to_disk(tmp_path)
    overrides = {"components": {name: {"threshold": 0.9, "label_thresholds": {"DUTY": 0.8}}}}
    pipe = spacy.load(tmp_path, config=overrides).get_pipe(name)
    assert (pipe.cfg["threshold"], pipe.cfg["label_thresholds"]) == (0.9, {"DUTY": 0.8})
    assert pipe.cfg["score_map"] == nlp.get_pipe(name).cfg["score_map"]


@pytest.mark.parametrize("factory", FACTORIES)
def test_training_anew_forgets_the_map(factory):
    nlp = train_by_heart(factory)
    calibrate(nlp, gold_of(nlp, DATA_FOR[factory]), goal=QUICK)
    assert nlp.get_pipe(factory).cfg["score_map"] is not None
    examples = make_examples(nlp, DATA_FOR[factory])
    nlp.initialize(lambda: examples)
    assert nlp.get_pipe(factory).cfg["score_map"] is None


def test_thresholds_below_the_present_one_are_seen():
    nlp = make_trained(steps=12, threshold=0.999)
    assert not any(predictions(nlp))
    report = calibrate(nlp, gold_of(nlp, DATA), goal=QUICK)
    assert report["before"]["r"] == 0
    assert report["after"]["r"] > 0.5
    assert any(predictions(nlp))
    # With few examples all labels share one threshold.
    assert nlp.get_pipe("span_enumerator").cfg["label_thresholds"] == {}
    assert f"fewer than {MIN_GOLD} gold spans" in report["labels"]["SKILL"]["note"]


@pytest.mark.parametrize(
    ("settings", "lowest"),
    [
        ({}, LOWEST_SCORE),
        ({"threshold": 0.001}, 0.001),
        ({"label_thresholds": {"DUTY": 0.002}}, 0.002),
        ({"label_thresholds": {"DUTY": 0.5}}, LOWEST_SCORE),
    ],
)
def test_what_low_thresholds_let_pass_is_looked_at(settings, lowest):
    nlp = make_trained(steps=4, **settings)
    expected = nlp.evaluate(make_examples(nlp, DATA))
    report = calibrate(nlp, gold_of(nlp, DATA), goal=QUICK)
    assert report["lowest_score"] == lowest
    for key in "prf":
        assert report["before"][key] == pytest.approx(expected[f"spans_sc_{key}"])


@pytest.mark.parametrize("method", ["isotonic", "temperature"])
def test_low_thresholds_on_mapped_scores_are_those_of_other_scores(method):
    nlp = make_trained(steps=4)
    calibrate(nlp, gold_of(nlp, DATA), goal=QUICK, method=method)
    pipe = nlp.get_pipe("span_enumerator")
    lowest = np.asarray([0.002], "f")
    pipe.cfg["threshold"] = float(apply_score_map(pipe.cfg["score_map"], lowest)[0])
    expected = nlp.evaluate(make_examples(nlp, DATA))
    report = calibrate(nlp, gold_of(nlp, DATA), goal=QUICK)
    assert 0.001 < report["lowest_score"] <= 0.002
    assert report["before"]["r"] == pytest.approx(expected["spans_sc_r"])
    assert report["before"]["p"] == pytest.approx(expected["spans_sc_p"])


def test_softmax_keeps_one_label_for_a_span():
    nlp = make_trained(ONE_LABEL_DATA, steps=12, loss="softmax")
    calibrate(
        nlp, gold_of(nlp, ONE_LABEL_DATA), goal=Goal("precision_at_recall", at=0.9, n_samples=5)
    )
    found = [row[:2] for rows in predictions(nlp) for row in rows if not isinstance(row, str)]
    assert found
    for rows in predictions(nlp):
        offsets = [row[:2] for row in rows if not isinstance(row, str)]
        assert len({*offsets}) == len(offsets)


# Stock components, and what cannot be done


def test_stock_spancat_gets_a_threshold():
    nlp = spacy.blank("en")
    nlp.add_pipe("spancat", config={"threshold": 0.9999})
    train(nlp, make_examples(nlp, DATA), steps=30)
    report = calibrate(nlp, gold_of(nlp, DATA), goal=QUICK)
    assert report["score_map"] is None
    assert nlp.get_pipe("spancat").cfg["threshold"] == report["threshold"]["threshold"] < 0.99
    assert "label_thresholds" not in nlp.get_pipe("spancat").cfg
    assert not any(row["own"] for row in report["labels"].values())
    assert "Its scores stay as they are" in format_report(report)
    scores = nlp.evaluate(make_examples(nlp, DATA))
    assert report["after"]["f"] == pytest.approx(scores["spans_sc_f"])


def test_pipelines_without_such_a_component_are_refused():
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    with pytest.raises(SettingsError, match=r"Got the component None.*\[\] of \['sentencizer'\]"):
        calibrate(nlp, [])
    nlp.add_pipe("span_enumerator")
    with pytest.raises(SettingsError, match="Got the component 'tagger'"):
        calibrate(nlp, [], name="tagger")


@pytest.mark.parametrize(
    ("goal", "settings", "message"),
    [
        (Goal("accuracy"), {}, r"Got metric = 'accuracy'\. Expected one of \('f', 'prec"),
        (Goal(), {"method": "platt"}, r"Got method = 'platt'\. Expected one of \('temp"),
        (Goal(beta=0), {}, r"Got beta = 0\. Expected a number above 0: with 1 precision and"),
        (Goal(beta=-1), {}, "Got beta = -1"),
        (Goal(beta=float("nan")), {}, "Got beta = nan"),
        (Goal(beta=float("inf")), {}, "Got beta = inf"),
        (Goal(at=0.9), {}, r"metric = 'f' and at = 0\.9\. Expected at, from 0 to 1, with"),
        (Goal("precision_at_recall"), {}, "and at = None"),
        (Goal("precision_at_recall", at=90), {}, r"Got at = 90\. Expected 0 to 1: 0\.9 stands"),
        (Goal("recall_at_precision", at=-0.1), {}, "Got at = -0.1"),
        (Goal("recall_at_precision", at=float("nan")), {}, "Got at = nan"),
        (Goal(n_samples=0), {}, r"Got n_samples = 0\. Expected 1 or more"),
        (Goal(seed=-1), {}, r"Got seed = -1\. Expected 0 or more"),
        (Goal(), {"min_gold": 0}, r"Got min_gold = 0\. Expected 1 or more"),
    ],
)
def test_settings_out_of_range(goal, settings, message):
    with pytest.raises(SettingsError, match=message):
        calibrate(make_nlp(), [], goal=goal, **settings)


@pytest.fixture(scope="module")
def trained():
    return make_trained(steps=30)


@pytest.mark.parametrize(
    ("data", "key", "message"),
    [
        ([], "sc", r"has no documents, expected some .* Give data that the pipeline was not"),
        ([("", []), ("We pay well", [])], "sc", "of the labels of .* it has no spans at all"),
        (DATA, "other", r"has no doc\.spans\['sc'\], .* only \['other'\]\. Give data with this"),
        ([("a", [(0, 1, "NEW")])], "sc", r"'SKILL'\]: it has {'NEW': 1}\. Give data that is"),
        ([("write clean", [(0, 2, "KNOWLEDGE")])], "sc", "finds none of the 1 gold spans"),
    ],
)
def test_data_that_teaches_nothing_changes_nothing(trained, data, key, message):
    before = dict(trained.get_pipe("span_enumerator").cfg)
    gold = [make_example(trained, text, spans, key).reference for text, spans in data]
    with pytest.raises(DataError, match=message):
        calibrate(trained, gold, goal=QUICK)
    assert trained.get_pipe("span_enumerator").cfg == before


def test_documents_without_any_key_are_named(trained):
    with pytest.raises(DataError, match=r"has no doc\.spans\['sc'\].* only no keys at all"):
        calibrate(trained, [trained.make_doc("We pay well")], goal=QUICK)


def test_what_does_not_count_is_counted():
    nlp = make_trained(steps=30)
    data = [*DATA, ("x y", [(0, 1, "NEW"), (1, 2, "NEW"), (0, 2, "SKILL")])]
    gold = [*gold_of(nlp, data), nlp.make_doc("no key"), nlp.make_doc("")]
    report = calibrate(nlp, gold, goal=QUICK)
    assert report["documents"] == len(data)
    assert report["left_out"] == {"documents": 2, "labels": {"NEW": 2}}
    assert report["threshold"]["gold"] == sum(len(spans) for _, spans in DATA) + 1
    text = format_report(report)
    assert "Documents without doc.spans['sc'], left out: 2" in text
    assert "labels that the component does not know, left out: NEW 2" in text
    everything = calibrate(nlp, gold_of(nlp, DATA), goal=QUICK)
    assert everything["left_out"] == {"documents": 0, "labels": {}}
    assert "left out" not in format_report(everything)


def test_a_label_without_gold_takes_the_threshold_of_all():
    nlp = make_trained(steps=30)
    data = [(text, [span for span in spans if span[2] != "DUTY"]) for text, spans in DATA]
    report = calibrate(nlp, gold_of(nlp, data), goal=QUICK, min_gold=1)
    row = report["labels"]["DUTY"]
    assert (row["gold"], row["own"], row["value"]) == (0, False, None)
    assert row["threshold"] == report["threshold"]["threshold"]
    assert row["note"] == "fewer than 1 gold spans"
    assert {*nlp.get_pipe("span_enumerator").cfg["label_thresholds"]} == {"KNOWLEDGE", "SKILL"}


def test_a_recall_out_of_reach_is_reported():
    nlp = make_trained(steps=30)
    # Longer than any candidate.
    data = [*DATA, ("a b c d e f g h i j", [(0, 10, "SKILL")])]
    nearest = Goal("precision_at_recall", at=1.0, n_samples=5)
    report = calibrate(nlp, gold_of(nlp, data), goal=nearest)
    assert not report["threshold"]["reached"]
    assert report["threshold"]["recall"] == pytest.approx(7 / 8)
    assert "not reached" in format_report(report)
    report = calibrate(nlp, gold_of(nlp, DATA), goal=nearest)
    assert report["threshold"]["reached"]
    assert "not reached" not in format_report(report)
