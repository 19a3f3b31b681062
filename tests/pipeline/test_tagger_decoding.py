"""`multispan_tagger`: from tag scores to spans, by hand under each setting, in long documents."""

import tracemalloc

import numpy as np
import pytest
import spacy
import torch

from spacy_spans.errors import SettingsError
from spacy_spans.pipeline.tagging import make_batch
from spacy_spans.torch_layer import layer_shim

from . import (
    SCHEMES,
    TAG_DATA,
    TAGGER,
    logit,
    make_examples,
    make_initialized,
    scored,
    train,
)

# Decoding by hand


def patch_scores(pipe, monkeypatch, rows_of):
    """Give tokens the scores that a function of the number of tokens says."""

    class HandMade(torch.nn.Module):
        def forward(self, tokens, lengths):
            rows = torch.tensor(rows_of(len(tokens)), dtype=torch.float32)
            return rows, torch.zeros(pipe.layout.n_edges)

    monkeypatch.setattr(layer_shim(pipe.model.get_ref("projector")), "_model", HandMade())


# Probabilities of "inside" for the tokens of "w x y z". With io and no learned transitions tokens
# are independent, and a span is its tokens, and none before and after.
INSIDE = {"A": (0.9, 0.8, 0.2, 0.6), "B": (0.3, 0.7, 0.8, 0.9)}
A1, A2, B1 = 0.9 * 0.8 * 0.8, 0.8 * 0.6, 0.7 * 0.7 * 0.8 * 0.9


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {(0, 2, "A"): A1, (3, 4, "A"): A2, (1, 4, "B"): B1}),
        ({"threshold": 0.4}, {(0, 2, "A"): A1, (3, 4, "A"): A2}),
        ({"threshold": 0.5}, {(0, 2, "A"): A1}),
        ({"threshold": 0.9}, {}),
        ({"label_thresholds": {"A": 0.5}}, {(0, 2, "A"): A1, (1, 4, "B"): B1}),
        ({"threshold": 1.0, "label_thresholds": {"B": 0.3}}, {(1, 4, "B"): B1}),
        ({"min_length": 2}, {(0, 2, "A"): A1, (1, 4, "B"): B1}),
        ({"max_length": 2}, {(0, 2, "A"): A1, (3, 4, "A"): A2}),
        ({"min_length": 2, "max_length": 2}, {(0, 2, "A"): A1}),
    ],
    ids=str,
)
def test_scores_by_hand_under_each_setting(monkeypatch, changes, expected):
    nlp, pipe, _ = make_initialized(
        [("w x", [(0, 1, "A"), (0, 2, "B")])], **TAGGER, scheme=SCHEMES["io"]
    )
    pipe.cfg.update(changes)
    rows = [[0.0, logit(a), 0.0, logit(b)] for a, b in zip(*INSIDE.values(), strict=True)]
    patch_scores(pipe, monkeypatch, lambda n: rows[:n])
    spans = scored(nlp("w x y z"))
    assert {span[:3]: span[3] for span in spans} == {
        span: pytest.approx(value, abs=1e-6) for span, value in expected.items()
    }
    assert spans == sorted(spans), "in the order of the text"


def test_scores_by_hand_with_boundaries(monkeypatch):
    nlp, pipe, _ = make_initialized(
        [("w x", [(0, 1, "A")])], **TAGGER, scheme=SCHEMES["boundary"], loss="token"
    )
    # Probabilities of a start and of an end; the start at z has no end.
    bits = [(0.9, 0.1), (0.7, 0.3), (0.2, 0.8), (0.6, 0.4)]
    patch_scores(pipe, monkeypatch, lambda n: [[logit(s), logit(e)] for s, e in bits[:n]])
    assert scored(nlp("w x y z")) == [
        (0, 3, "A", pytest.approx(0.9 * 0.9 * 0.7 * 0.8)),
        (1, 3, "A", pytest.approx(0.7 * 0.7 * 0.8)),
    ]


def test_scores_on_one_layer_for_all_labels_are_shares_of_it(monkeypatch):
    data = [("w x", [(0, 1, "A"), (1, 2, "B")])]
    nlp, pipe, _ = make_initialized(data, **TAGGER, scheme=SCHEMES["io"], layers="shared")
    # Shares of O, A and B.
    rows = np.log([[0.1, 0.7, 0.2], [0.2, 0.2, 0.6]]).tolist()
    patch_scores(pipe, monkeypatch, lambda n: rows)
    assert scored(nlp("w x")) == [
        (0, 1, "A", pytest.approx(0.7 * 0.8)),
        (1, 2, "B", pytest.approx(0.6 * 0.8)),
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_scores_are_probabilities_whatever_the_weights_say(scheme, monkeypatch):
    loss = "token" if scheme == "boundary" else "crf"
    data = [("w x", [(0, 1, "A"), (0, 2, "B")])]
    nlp, pipe, _ = make_initialized(data, **TAGGER, scheme=SCHEMES[scheme], loss=loss)
    random = np.random.RandomState(0)
    for scale in (0.1, 3.0, 1e3, 1e10):
        patch_scores(
            pipe,
            monkeypatch,
            lambda n, scale=scale: (random.normal(size=(n, pipe.n_classes)) * scale).tolist(),
        )
        spans = scored(nlp("w x y z " * 50))
        assert spans
        assert all(0 <= span[3] <= 1 for span in spans)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("threshold", 2, "a threshold of 2 for"),
        ("min_length", 0, "min_length = 0"),
        ("max_length", 0, "max_length = 0"),
    ],
)
def test_settings_changed_after_training_are_checked(setting, value, message):
    nlp, pipe, _ = make_initialized(TAG_DATA, **TAGGER)
    pipe.cfg[setting] = value
    with pytest.raises(SettingsError, match=message):
        nlp("w x")


# Long documents


def test_a_very_long_document_is_tagged_as_its_parts_are():
    nlp = spacy.blank("en")
    nlp.add_pipe("multispan_tagger", config={"loss": "token"})
    data = [("we write clean Python code every day", [(1, 4, "A"), (2, 5, "B"), (4, 7, "A")])]
    data.append(("filler words . " * 10, []))
    train(nlp, make_examples(nlp, data), steps=30)
    unit = data[0][0] + " " + data[1][0]
    n = len(nlp.make_doc(unit))
    n_units = 30_000 // n + 1
    doc = nlp(unit * n_units)
    assert len(doc) > 30_000
    # Three units: what the middle one sees of its neighbours, all see.
    middle = [span for span in scored(nlp(unit * 3)) if n <= span[0] < 2 * n]
    assert middle
    by_unit = {}
    for start, end, label, score in scored(doc):
        by_unit.setdefault(start // n, []).append((start % n + n, end % n + n, label, score))
    for number in range(1, n_units - 1):
        own = by_unit[number]
        assert [span[:3] for span in own] == [span[:3] for span in middle]
        np.testing.assert_allclose(
            [span[3] for span in own], [span[3] for span in middle], atol=1e-4
        )


def test_decoding_needs_bounded_memory_for_each_token():
    _, pipe, _ = make_initialized(TAG_DATA, **TAGGER)
    n_tokens = 30_000
    random = np.random.RandomState(0)
    rows = random.normal(size=(n_tokens, pipe.n_classes + pipe.layout.n_links)).astype("f")
    edges = random.normal(size=pipe.layout.n_edges).astype("f")
    batch = make_batch([n_tokens])
    tracemalloc.start()
    try:
        pipe._decode(rows, edges, batch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 2**20
