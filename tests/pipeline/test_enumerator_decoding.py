"""`span_enumerator`: from probabilities to spans, under every overlap policy and threshold."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.torch_layer import layer_shim
from spacy_spans.types import SpanArrays

from .. import reference
from . import (
    LABELS,
    found,
    logit,
    make_initialized,
    make_pipe,
    scored,
)


@cache
def decoder(overlap):
    """A component to decode with. Cached, because hypothesis calls a test many times."""
    _, pipe = make_pipe(overlap=overlap)
    return pipe


def span_arrays(spans, scores, labels=None):
    return SpanArrays(
        np.asarray(spans, dtype="i").reshape(-1, 2),
        np.asarray([0] * len(spans) if labels is None else labels, dtype="i"),
        np.asarray(scores, dtype="f"),
    )


def unique_scored_spans(max_size=7):
    """Spans with scores that are all different, and exact in binary."""
    spans = st.tuples(st.integers(0, 6), st.integers(1, 4)).map(lambda s: (s[0], s[0] + s[1]))
    return st.lists(spans, max_size=max_size).flatmap(
        lambda own: st.permutations([(i + 1) / 8 for i in range(len(own))]).map(
            lambda scores: (own, list(scores))
        )
    )


@settings(max_examples=60, deadline=None)
@given(unique_scored_spans())
def test_overlap_any_keeps_all(spans_scores):
    arrays = span_arrays(*spans_scores)
    decoded = decoder("any")._decode(arrays)
    assert decoded.offsets.tolist() == arrays.offsets.tolist()
    assert decoded.scores.tolist() == arrays.scores.tolist()


@settings(max_examples=60, deadline=None)
@given(unique_scored_spans())
def test_overlap_nested_is_the_slow_choice(spans_scores):
    spans, scores = spans_scores
    decoded = decoder("nested")._decode(span_arrays(spans, scores))
    rows = reference.nested_rows(spans, scores)
    assert decoded.offsets.tolist() == [list(spans[row]) for row in rows]
    assert decoded.scores.tolist() == [scores[row] for row in rows]


@settings(max_examples=60, deadline=None)
@given(unique_scored_spans())
def test_overlap_flat_is_the_best_sum_without_overlap(spans_scores):
    spans, scores = spans_scores
    decoded = decoder("flat")._decode(span_arrays(spans, scores))
    chosen = [tuple(span) for span in decoded.offsets.tolist()]
    assert float(decoded.scores.sum()) == reference.best_flat_sum(spans, scores)
    assert not any(
        reference.share_tokens(a, b) for i, a in enumerate(chosen) for b in chosen[i + 1 :]
    )
    assert set(zip(chosen, decoded.scores.tolist(), strict=True)) <= set(
        zip(spans, scores, strict=True)
    )


@settings(max_examples=60, deadline=None)
@given(unique_scored_spans(), st.sampled_from(["any", "nested", "flat"]), st.integers(1, 4))
def test_top_k_keeps_the_best_of_what_the_policy_leaves(spans_scores, overlap, top_k):
    pipe = decoder(overlap)
    everything = pipe._decode(span_arrays(*spans_scores)).scores.tolist()
    pipe.cfg["top_k"] = top_k
    try:
        decoded = pipe._decode(span_arrays(*spans_scores))
    finally:
        pipe.cfg["top_k"] = None
    assert sorted(decoded.scores.tolist()) == sorted(everything)[-top_k:]


def patch_logits(pipe, monkeypatch, logits_of):
    """Give the classifier logits that depend on the offsets into the batch's tokens."""

    class HandMade(torch.nn.Module):
        def forward(self, tokens, offsets):
            rows = [logits_of(*span) for span in offsets.tolist()]
            return torch.tensor(rows, dtype=torch.float32)

    monkeypatch.setattr(layer_shim(pipe.model.get_ref("classifier")), "_model", HandMade())


# Probabilities of (A, B) for spans of "w x y z"; all others get 0.01.
HAND_MADE = {
    (0, 2): (0.9, 0.2),
    (1, 3): (0.8, 0.01),
    (2, 3): (0.55, 0.6),
    (3, 4): (0.5, 0.45),
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["0-2 A", "1-3 A", "2-3 A", "2-3 B", "3-4 A"]),
        ({"threshold": 0.7}, ["0-2 A", "1-3 A"]),
        ({"threshold": 0.95}, []),
        (
            {"label_thresholds": {"B": 0.15}},
            ["0-2 A", "0-2 B", "1-3 A", "2-3 A", "2-3 B", "3-4 A", "3-4 B"],
        ),
        ({"threshold": 0.85, "label_thresholds": {"B": 0.6}}, ["0-2 A", "2-3 B"]),
        ({"label_thresholds": {"A": 1.0, "B": 1.0}}, []),
        # 0.9 beats 0.8, which it crosses; two labels of the same offsets do not cross.
        ({"overlap": "nested"}, ["0-2 A", "2-3 A", "2-3 B", "3-4 A"]),
        # 0.9 + 0.6 + 0.5 is more than 0.8 + 0.5.
        ({"overlap": "flat"}, ["0-2 A", "2-3 B", "3-4 A"]),
        ({"top_k": 2}, ["0-2 A", "1-3 A"]),
        ({"top_k": 2, "overlap": "flat"}, ["0-2 A", "2-3 B"]),
        ({"top_k": 99}, ["0-2 A", "1-3 A", "2-3 A", "2-3 B", "3-4 A"]),
    ],
    ids=str,
)
def test_predictions_by_hand_under_each_setting(monkeypatch, changes, expected):
    nlp, pipe, _ = make_initialized([("w x y z", [(0, 2, "A"), (1, 3, "B")])])
    assert pipe.labels == ("A", "B")
    pipe.cfg.update(changes)

    def logits_of(start, end):
        a, b = HAND_MADE.get((start, end), (0.01, 0.01))
        # A hair above, so that float32 does not decide whether 0.5 reaches 0.5.
        return logit(a) + 1e-5, logit(b) + 1e-5

    patch_logits(pipe, monkeypatch, logits_of)
    doc = nlp("w x y z")
    assert sorted(f"{start}-{end} {label}" for start, end, label in found(doc)) == expected
    for start, end, label, score in scored(doc):
        assert score == pytest.approx(HAND_MADE[start, end]["AB".index(label)], abs=1e-4)


def test_a_score_equal_to_the_threshold_is_kept(monkeypatch):
    nlp, pipe, _ = make_initialized([("w x", [(0, 2, "A")])], threshold=0.5)
    patch_logits(pipe, monkeypatch, lambda start, end: (0.0 if end - start == 2 else -1e-3,))
    assert scored(nlp("w x")) == [(0, 2, "A", 0.5)]


def test_threshold_zero_keeps_every_candidate_and_label():
    nlp, _, _ = make_initialized(threshold=0.0)
    assert len(nlp("We pay well").spans["sc"]) == 6 * len(LABELS)
    assert len(nlp("").spans["sc"]) == 0


def test_settings_apply_to_each_document_of_a_batch(monkeypatch):
    nlp, pipe, _ = make_initialized([("w x y z", [(0, 2, "A")])], overlap="flat", top_k=1)
    # Documents of 2, 0, 3 and 1 tokens lie at 0, 2, 2 and 5 of the batch.
    patch_logits(pipe, monkeypatch, lambda start, end: (logit(0.6 + 0.01 * start - 0.001 * end),))
    docs = list(nlp.pipe(["a b", "", "c d e", "f"]))
    assert [found(doc) for doc in docs] == [[(1, 2, "A")], [], [(2, 3, "A")], [(0, 1, "A")]]


def test_softmax_gives_a_span_one_label_even_if_another_reaches_the_threshold(monkeypatch):
    nlp, pipe, _ = make_initialized(
        [("w x", [(0, 2, "A"), (1, 2, "B")])], loss="softmax", threshold=0.1
    )
    # Null, A, B.
    rows = {(0, 1): (0.8, 0.05, 0.15), (0, 2): (0.2, 0.45, 0.35), (1, 2): (0.95, 0.04, 0.01)}
    patch_logits(pipe, monkeypatch, lambda *span: tuple(np.log(rows[span])))
    spans = scored(nlp("w x"))
    assert [span[:3] for span in spans] == [(0, 1, "B"), (0, 2, "A")]
    np.testing.assert_allclose([span[3] for span in spans], [0.15, 0.45], rtol=1e-5)
