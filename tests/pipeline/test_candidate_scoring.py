"""Candidates are scored in blocks, in prediction and in training: their size has no influence."""

import numpy as np
import pytest

from spacy_spans.modules.span_classifier import SpanClassifier

from . import (
    CANDIDATES,
    TEXTS,
    assert_same_gradients,
    make_initialized,
    make_update,
    scored,
)


def test_blocks_of_candidates_give_what_one_block_gives(monkeypatch):
    nlp, _, _ = make_initialized(threshold=0.0)
    texts = [*TEXTS, "one more text with several words", "x"]
    whole = [scored(doc) for doc in nlp.pipe(texts)]
    monkeypatch.setattr("spacy_spans.pipeline.candidate_scoring.SPANS_PER_BLOCK", 7)
    blocks = [scored(doc) for doc in nlp.pipe(texts)]
    for own, other in zip(whole, blocks, strict=True):
        assert [span[:3] for span in sorted(own)] == [span[:3] for span in sorted(other)]
        np.testing.assert_allclose(
            [span[3] for span in sorted(own)], [span[3] for span in sorted(other)], atol=1e-6
        )


@pytest.mark.parametrize("candidates", ["length", "boundary"])
@pytest.mark.parametrize(
    "settings_",
    [
        {},
        {"loss": "softmax"},
        {"boundary_smoothing": 0.2},
        {"loss": "softmax", "boundary_smoothing": 0.2},
        {"negative_ratio": 2.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [1, 7, 48])
def test_blocks_of_candidates_train_as_one_block(monkeypatch, size, settings_, candidates):
    config = {"candidates": CANDIDATES[candidates], **settings_}
    whole, gradients = make_update(**config)
    monkeypatch.setattr("spacy_spans.pipeline.candidate_scoring.SPANS_PER_TRAINING_BLOCK", size)
    seen = []
    classify = SpanClassifier.forward

    def spy(self, tokens, offsets):
        seen.append(len(offsets))
        return classify(self, tokens, offsets)

    monkeypatch.setattr(SpanClassifier, "forward", spy)
    blocks, others = make_update(**config)
    assert set(seen[:-1]) <= {size}
    assert 0 < seen[-1] <= size
    assert sum(seen) > 10
    assert blocks == pytest.approx(whole, rel=1e-5)
    assert_same_gradients(gradients, others)
