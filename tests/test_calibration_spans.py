"""Spans that a component scores: what settings make of them, against what components write."""

import numpy as np
import pytest
from spacy.tokens import Doc, Span, SpanGroup

from spacy_spans.calibration_spans import (
    Collected,
    collect,
    count_by_label,
    cross_fit,
    decode,
    thresholds_of,
)
from spacy_spans.errors import DataError
from spacy_spans.kernels.calibration import calibration_error

from .pipeline import DATA, LABELS, make_example, make_examples, make_nlp, make_trained

pytestmark = pytest.mark.installed

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


def test_spans_without_scores_are_an_error():
    nlp = make_nlp()
    example = make_example(nlp, "We pay well", [(0, 1, "DUTY")])
    predicted: Doc = example.predicted
    predicted.spans["sc"] = SpanGroup(predicted, name="sc", spans=[Span(predicted, 0, 1, "DUTY")])
    with pytest.raises(DataError, match="without attrs"):
        collect([example], "sc", LABELS)
