"""Which tokens `token_pruner` keeps, given their scores."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc

from spacy_spans.errors import SpansError, SpansWarning
from spacy_spans.policies import (
    build_budget_policy_v1,
    build_threshold_policy_v1,
    build_top_k_policy_v1,
)

from . import write_spans
from .pruner import give_scores, kept, make_nlp


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (build_threshold_policy_v1(0.5), [(1, 2), (4, 6)]),
        (build_threshold_policy_v1(0.95), []),
        (build_top_k_policy_v1(0.3), [(1, 2), (4, 5)]),
        (build_budget_policy_v1(0.5, 2), [(1, 2), (4, 6)]),
    ],
)
def test_policies_choose_runs_with_their_best_score(monkeypatch, policy, expected):
    nlp, pipe = make_nlp()
    pipe.policy = policy
    scores = [0.1, 0.7, 0.2, 0.3, 0.9, 0.5]
    give_scores(pipe, monkeypatch, scores)
    doc = nlp("a b c d e f")
    assert kept(doc) == expected
    best = [max(scores[start:end]) for start, end in expected]
    np.testing.assert_allclose(doc.spans["kept_tokens"].attrs["scores"], best, rtol=1e-6)


def test_context_is_added_after_short_runs_were_dropped(monkeypatch):
    nlp, pipe = make_nlp(context=1, min_run=2)
    give_scores(pipe, monkeypatch, [0, 1, 0, 0, 0, 1, 1, 0, 0])
    assert kept(nlp("a b c d e f g h i")) == [(4, 8)]


def test_what_always_stays(monkeypatch):
    nlp, pipe = make_nlp(always_keep=["hits", "nowhere"], min_run=2)
    give_scores(pipe, monkeypatch, [0])
    doc = write_spans(nlp.make_doc("a b c d"), "hits", [(2, 3)])
    message = r"doc.spans \['nowhere'\], of always_keep \(keys that are there: hits\)"
    with pytest.warns(SpansWarning, match=message):
        assert kept(nlp(doc)) == [(2, 3)]
    # Said once.
    assert kept(nlp("a b")) == []


def test_sentence_starts_stay(monkeypatch):
    nlp, pipe = make_nlp(keep_sentence_starts=True)
    give_scores(pipe, monkeypatch, [0])
    with pytest.raises(SpansError, match=r"Add .* `sentencizer`"):
        nlp("a b")
    assert kept(nlp("")) == []
    nlp.add_pipe("sentencizer", first=True)
    assert kept(nlp("We pay. They go.")) == [(0, 1), (3, 4)]
    # As `senter` may see it.
    doc = Doc(nlp.vocab, words=["we", "pay", "well"], sent_starts=[False, False, True])
    assert kept(nlp(doc)) == [(0, 1), (2, 3)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 8), max_size=20), st.integers(0, 3), st.integers(0, 8))
def test_runs_are_in_order_and_do_not_touch(eighths, context, threshold):
    with pytest.MonkeyPatch.context() as patch:
        nlp, pipe = PRUNER
        pipe.cfg["context"] = context
        pipe.policy = build_threshold_policy_v1(threshold / 8)
        give_scores(pipe, patch, [n / 8 for n in eighths] or [0])
        runs = kept(nlp(Doc(nlp.vocab, words=["w"] * len(eighths))))
    inside = {i for start, end in runs for i in range(start, end)}
    near = {i for i, n in enumerate(eighths) if n >= threshold}
    assert inside == {
        i for i in range(len(eighths)) if any(abs(i - other) <= context for other in near)
    }
    assert all(a[1] < b[0] for a, b in pairwise(runs))


PRUNER = make_nlp()
