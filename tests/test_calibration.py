"""Fitting a component's scores and thresholds, and what becomes of them."""

import json

import numpy as np
import pytest
import spacy
import srsly
from spacy.tokens import Doc, Span, SpanGroup

from spacy_spans.calibration import (
    MIN_GOLD,
    Collected,
    Goal,
    calibrate,
    collect,
    count_by_label,
    cross_fit,
    decode,
    thresholds_of,
)
from spacy_spans.calibration_report import format_report
from spacy_spans.errors import DataError, SettingsError
from spacy_spans.kernels.calibration import apply_score_map, calibration_error

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


# Spans that compete

POLICIES = [
    {"overlap": "any"},
    {"overlap": "nested"},
    {"overlap": "flat"},
    {"overlap": "flat", "top_k": 1},
    {"overlap": "any", "top_k": 2},
]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_spans_are_decoded_as_the_component_does(policy):
    nlp = make_trained(steps=12)
    pipe = nlp.get_pipe("span_enumerator")

    def read(**settings):
        pipe.cfg.update(settings)
        examples = make_examples(nlp, DATA)
        for example in examples:
            nlp(example.predicted)
        return collect(examples, "sc", pipe.labels)

    everything = read(threshold=0.01, overlap="any", top_k=None)
    labels = {"SKILL": 0.1, "DUTY": 0.4}
    for threshold, own in ((0.02, {}), (0.3, {}), (0.2, labels), (1.0, {})):
        written = read(threshold=threshold, label_thresholds=own, **policy)
        kept = decode(everything, everything.scores, thresholds_of(pipe), pipe.cfg)
        for mine, its in zip(everything[:5], written[:5], strict=True):
            assert mine[kept] == pytest.approx(its)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_counts_of_each_threshold_are_those_of_decoding_at_it(policy):
    rng = np.random.default_rng(0)
    n = 40
    starts = rng.integers(0, 8, n)
    data = Collected(
        docs=np.sort(rng.integers(0, 3, n)),
        labels=rng.integers(0, 2, n),
        offsets=np.column_stack([starts, starts + rng.integers(1, 5, n)]).astype("i"),
        scores=rng.uniform(0.01, 1, n).astype("f"),
        right=rng.uniform(size=n) < 0.4,
        gold=np.asarray([[4, 3], [2, 0], [5, 5]]),
    )
    curves = count_by_label(data, data.scores, policy, 0.01)
    assert set(curves) == {None, 0, 1}
    for label, (grid, counts) in curves.items():
        own = data.labels == label if label is not None else np.ones(n, bool)
        for row, threshold in enumerate(grid):
            kept = own & decode(data, data.scores, np.full(2, threshold), policy)
            for doc in range(3):
                assert counts.kept[row, doc] == (kept & (data.docs == doc)).sum()
                assert counts.right[row, doc] == (kept & data.right & (data.docs == doc)).sum()
        assert counts.gold.sum() == (
            data.gold.sum() if label is None else data.gold[:, label].sum()
        )


def test_a_lower_threshold_can_change_what_wins_without_overlap():
    """Two weak spans together beat a strong one over both."""
    offsets = np.asarray([[0, 4], [0, 2], [2, 4]], "i")
    scores = np.asarray([0.8, 0.45, 0.44], "f")
    zeros = np.zeros(3, dtype=int)
    data = Collected(
        zeros, zeros, offsets, scores, np.asarray([True, False, False]), np.ones((1, 1))
    )
    assert decode(data, scores, np.asarray([0.5]), {"overlap": "flat"}).tolist() == [
        True,
        False,
        False,
    ]
    assert decode(data, scores, np.asarray([0.1]), {"overlap": "flat"}).tolist() == [
        False,
        True,
        True,
    ]
    grid, counts = count_by_label(data, scores, {"overlap": "flat"}, 0.1)[None]
    assert grid == pytest.approx([0.1, 0.445, 0.625])
    assert counts.right.sum(axis=1).tolist() == [0, 1, 1]


def test_halves_are_mapped_by_each_other():
    rng = np.random.default_rng(0)
    n = 2000
    scores = rng.uniform(0.05, 0.95, n).astype("f")
    right = rng.uniform(size=n) < scores**2
    docs = np.arange(n) // 10
    zeros = np.zeros(n, dtype=int)
    data = Collected(docs, zeros, np.zeros((n, 2), "i"), scores, right, np.ones((200, 1)))
    for method in ("temperature", "isotonic"):
        mapped = cross_fit(data, method, seed=0)
        assert mapped.shape == scores.shape
        assert (mapped > 0).all()
    assert calibration_error(scores, right) > 0.1
    assert calibration_error(cross_fit(data, "isotonic", seed=0), right) < 0.04


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
    ("goal", "method", "message"),
    [
        (Goal("accuracy"), "isotonic", "Got metric = 'accuracy'"),
        (Goal(), "platt", "Got method = 'platt'"),
        (Goal(beta=0), "isotonic", "Got beta = 0"),
        (Goal(at=0.9), "isotonic", "metric = 'f' and at = 0.9"),
        (Goal("precision_at_recall"), "isotonic", "and at = None"),
        (Goal("precision_at_recall", at=90), "isotonic", "Got at = 90"),
        (Goal(n_samples=0), "isotonic", "Got n_samples = 0"),
    ],
)
def test_settings_out_of_range(goal, method, message):
    nlp = make_nlp()
    with pytest.raises(SettingsError, match=message):
        calibrate(nlp, [], goal=goal, method=method)


@pytest.mark.parametrize(
    ("data", "key", "message"),
    [
        ([], "sc", "no gold spans"),
        ([("", []), ("We pay well", [])], "sc", "no gold spans"),
        (DATA, "other", r"no gold spans in doc\.spans\['sc'\]"),
        ([("We pay well", [(0, 1, "UNKNOWN")])], "sc", "no gold spans"),
        ([("write clean", [(0, 2, "KNOWLEDGE")])], "sc", "finds none of the 1 gold spans"),
    ],
)
def test_data_that_teaches_nothing_changes_nothing(data, key, message):
    nlp = make_trained(steps=30)
    before = dict(nlp.get_pipe("span_enumerator").cfg)
    gold = [make_example(nlp, text, spans, key).reference for text, spans in data]
    with pytest.raises(DataError, match=message):
        calibrate(nlp, gold, goal=QUICK)
    assert nlp.get_pipe("span_enumerator").cfg == before


def test_spans_without_scores_are_an_error():
    nlp = make_nlp()
    example = make_example(nlp, "We pay well", [(0, 1, "DUTY")])
    predicted: Doc = example.predicted
    predicted.spans["sc"] = SpanGroup(predicted, name="sc", spans=[Span(predicted, 0, 1, "DUTY")])
    with pytest.raises(DataError, match="without attrs"):
        collect([example], "sc", LABELS)
