"""`span_enumerator` within the runs of tokens that a pruner kept."""

import numpy as np
import pytest
from thinc.api import Adam

from spacy_spans.candidates import split_offsets
from spacy_spans.errors import SpansWarning

from . import (
    DATA,
    LABELS,
    TEXTS,
    found,
    make_examples,
    make_initialized,
    make_pipe,
    make_trained,
    train_on,
    write_spans,
)


@pytest.fixture(scope="module")
def within_kept():
    with pytest.warns(SpansWarning, match=r"None of the 4 documents .*'kept_tokens'") as caught:
        nlp = make_trained(within_kept=True, candidates_key="listed", threshold=0.0, steps=2)
    assert len(caught) == 1
    return nlp


def spans_inside(runs):
    return sorted(
        (start, end)
        for low, high in runs
        for start in range(low, high)
        for end in range(start + 1, high + 1)
    )


@pytest.mark.parametrize(
    ("runs", "allowed"),
    [
        (None, spans_inside([(0, 6)])),
        ([], []),
        ([(0, 2), (3, 6)], spans_inside([(0, 2), (3, 6)])),
        ([(2, 3)], [(2, 3)]),
        ([(0, 6)], spans_inside([(0, 6)])),
    ],
)
def test_no_span_leaves_a_kept_run(within_kept, runs, allowed):
    doc = within_kept.make_doc(TEXTS[0])
    if runs is not None:
        write_spans(doc, "kept_tokens", runs)
    doc = within_kept(doc)
    assert sorted({(span.start, span.end) for span in doc.spans["sc"]}) == allowed
    assert [(span.start, span.end) for span in doc.spans["listed"]] == allowed
    assert len(doc.spans["sc"].attrs["scores"]) == len(LABELS) * len(allowed)


def test_boundaries_outside_of_kept_runs_push_out_none_inside():
    candidates = {"@misc": "spacy-spans.boundary_candidates.v1", "ratio": 0.3, "max_candidates": 4}
    nlp, pipe = make_pipe(within_kept=True, candidates=candidates)
    docs = [nlp.make_doc("a b c d e f g h i j") for _ in range(2)]
    write_spans(docs[0], "kept_tokens", [(1, 3), (6, 8)])
    # The best boundaries are outside, and the best pairs go from one run to the other.
    scores = np.asarray([9, 1, 2, 9, 9, 9, 4, 3, 9, 9], dtype="f")
    listed = pipe.listing(docs, [np.stack([scores, scores], axis=1)] * 2)
    own, other = split_offsets(listed)
    assert own.tolist() == [[2, 3], [6, 7], [6, 8], [7, 8]]
    assert set(other.ravel()) <= {0, 1, 3, 4, 5, 6, 8, 9, 10}
    assert len(other) == 4


def test_documents_of_a_batch_have_their_own_kept_runs(within_kept):
    docs = [within_kept.make_doc(text) for text in ("a b", "", "c d e", "f g")]
    for doc, runs in zip(docs, ([(1, 2)], [], None, []), strict=True):
        if runs is not None:
            write_spans(doc, "kept_tokens", runs)
    docs = list(within_kept.pipe(docs))
    listed = [[(span.start, span.end) for span in doc.spans["listed"]] for doc in docs]
    assert listed == [[(1, 2)], [], spans_inside([(0, 3)]), []]


def test_kept_runs_are_ignored_unless_asked_for():
    nlp = make_trained()
    doc = write_spans(nlp.make_doc(TEXTS[0]), "kept_tokens", [(0, 1)])
    assert found(nlp(doc)) == DATA[0][1]


def test_kept_runs_are_read_from_the_configured_key():
    with pytest.warns(SpansWarning, match="'mine'"):
        nlp = make_trained(within_kept=True, kept_key="mine")
    doc = write_spans(nlp.make_doc(TEXTS[0]), "kept_tokens", [(0, 1)])
    assert found(nlp(doc)) == DATA[0][1]
    doc = write_spans(nlp.make_doc(TEXTS[0]), "mine", [(0, 3)])
    assert found(nlp(doc)) == [span for span in DATA[0][1] if span[1] <= 3]


def test_a_misspelt_key_is_warned_of_once_and_names_the_keys_that_are_there():
    nlp, pipe, _ = make_initialized(within_kept=True, kept_key="kept")
    doc = write_spans(nlp.make_doc(TEXTS[0]), "kept_tokens", [(0, 1)])
    with pytest.warns(SpansWarning, match=r"'kept'\] \(keys that are there: kept_tokens\)"):
        nlp(doc)
    nlp(TEXTS[0])
    pipe.listing._kept.has_warned = False
    nlp("")


def test_training_within_kept_runs_learns_nothing_outside_them():
    nlp, _ = make_pipe(within_kept=True)
    examples = make_examples(nlp)
    for example in examples:
        runs = [(0, min(4, len(example.predicted)))] if len(example.predicted) else []
        write_spans(example.predicted, "kept_tokens", runs)
    with pytest.warns(SpansWarning, match="3 of 7 gold spans"):
        nlp.initialize(lambda: examples)
    train_on(nlp, examples)
    pipe = nlp.get_pipe("span_enumerator")
    for example, (_, spans) in zip(examples, DATA, strict=True):
        pipe(example.predicted)
        assert found(example.predicted) == [span for span in spans if span[1] <= 4]


def test_training_where_nothing_was_kept_learns_nothing():
    nlp, _, examples = make_initialized(within_kept=True)
    for example in examples:
        write_spans(example.predicted, "kept_tokens", [])
    with pytest.warns(SpansWarning, match="7 of the 7 gold spans"):
        losses = nlp.update(examples, sgd=Adam(0.1))
    assert losses["span_enumerator"] == 0.0
