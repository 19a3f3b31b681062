"""Metrics of `doc.spans`, by hand."""

import pytest
import spacy
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.vocab import Vocab

pytestmark = pytest.mark.installed

VOCAB = Vocab()
WORDS = ["zero", "one", "two", "three", "four"]


def score(examples, key="sc"):
    scorer = spacy.registry.scorers.get("spacy-spans.spans_scorer.v1")()
    return scorer(examples, spans_key=key)


def make_doc(spans, key="sc", words=WORDS):
    """Spans are (start, end, label); None leaves the key out."""
    doc = Doc(VOCAB, words=words)
    if spans is not None:
        doc.spans[key] = [Span(doc, start, end, label=label) for start, end, label in spans]
    return doc


def make_example(predicted, gold, key="sc"):
    return Example(make_doc(predicted, key), make_doc(gold, key))


# One hit, one wrong label, one wrong end, one missed and one invented span.
PREDICTED = [(0, 2, "A"), (1, 3, "A"), (3, 4, "B"), (4, 5, "A")]
GOLD = [(0, 2, "A"), (1, 3, "B"), (3, 5, "B"), (0, 1, "A"), (2, 3, "C")]


def prf(n_right, n_predicted, n_gold):
    p, r = n_right / n_predicted, n_right / n_gold
    return {
        "p": pytest.approx(p),
        "r": pytest.approx(r),
        "f": pytest.approx(2 * p * r / (p + r) if p + r else 0.0),
    }


def assert_scores(scores, key, expected, boundary_f):
    for name, value in expected.items():
        assert scores[f"spans_{key}_{name}"] == value
    assert scores[f"spans_{key}_boundary_f"] == boundary_f


def test_spans_count_with_their_label_and_per_type_and_without_it():
    scores = score([make_example(PREDICTED, GOLD)])
    # Without labels (1, 3) is right as well: 2 of 4 predicted, 2 of 5 gold.
    assert_scores(scores, "sc", prf(1, 4, 5), prf(2, 4, 5)["f"])
    assert scores["spans_sc_per_type"] == {
        "A": prf(1, 3, 2),
        "B": {"p": 0.0, "r": 0.0, "f": 0.0},
        "C": {"p": 0.0, "r": 0.0, "f": 0.0},
    }


def test_documents_are_counted_together():
    examples = [
        make_example(PREDICTED, GOLD),
        make_example([(0, 1, "A")], [(0, 1, "A")]),
        make_example([], [(0, 1, "B")]),
        make_example([(0, 1, "B")], []),
    ]
    scores = score(examples)
    assert_scores(scores, "sc", prf(2, 6, 7), prf(3, 6, 7)["f"])
    assert scores["spans_sc_per_type"]["A"] == prf(2, 4, 3)


def test_nested_spans_and_two_labels_of_one_span_each_count():
    spans = [(0, 5, "A"), (0, 2, "A"), (1, 3, "B"), (1, 3, "A")]
    scores = score([make_example(spans, spans)])
    assert_scores(scores, "sc", {"p": 1.0, "r": 1.0, "f": 1.0}, 1.0)
    # Without labels the two at (1, 3) are one: predicting either finds it.
    scores = score([make_example(spans[:3], spans)])
    assert_scores(scores, "sc", prf(3, 3, 4), 1.0)


def test_the_asked_key_is_scored_and_names_the_scores():
    example = make_example([(0, 1, "A")], [(0, 1, "A")], key="other")
    example.predicted.spans["sc"] = []
    example.reference.spans["sc"] = [Span(example.reference, 0, 2, label="A")]
    scores = score([example], key="other")
    assert_scores(scores, "other", {"p": 1.0, "r": 1.0, "f": 1.0}, 1.0)
    assert sorted(scores) == [
        f"spans_other_{name}" for name in ("boundary_f", "f", "p", "per_type", "r")
    ]


def test_reference_documents_without_the_key_count_neither_way():
    annotated = make_example([(0, 1, "A")], [(0, 1, "A")])
    scores = score([annotated, make_example([(0, 2, "A")], None)])
    assert_scores(scores, "sc", {"p": 1.0, "r": 1.0, "f": 1.0}, 1.0)


def test_predicted_documents_without_the_key_found_nothing():
    scores = score([make_example([(0, 1, "A")], [(0, 1, "A")]), make_example(None, [(0, 2, "A")])])
    assert_scores(scores, "sc", prf(1, 1, 2), prf(1, 1, 2)["f"])


NO_SCORES = {
    "spans_sc_p": None,
    "spans_sc_r": None,
    "spans_sc_f": None,
    "spans_sc_per_type": None,
    "spans_sc_boundary_f": None,
}


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param([], id="no documents"),
        pytest.param([([], [])], id="no span on either side"),
        pytest.param([(None, None)], id="no key on either side"),
        pytest.param([([(0, 1, "A")], None)], id="nothing annotated"),
    ],
)
def test_without_spans_to_compare_scores_are_none(pairs):
    assert score([make_example(*pair) for pair in pairs]) == NO_SCORES


def test_empty_documents_do_not_matter():
    empty = Example(make_doc([], words=[]), make_doc([], words=[]))
    assert score([empty]) == NO_SCORES
    scores = score([empty, make_example([(0, 1, "A")], [(0, 1, "A")])])
    assert_scores(scores, "sc", {"p": 1.0, "r": 1.0, "f": 1.0}, 1.0)


@pytest.mark.parametrize(("predicted", "gold"), [([(0, 1, "A")], []), ([], [(0, 1, "A")])])
def test_spans_on_one_side_only_score_zero(predicted, gold):
    scores = score([make_example(predicted, gold)])
    assert_scores(scores, "sc", {"p": 0.0, "r": 0.0, "f": 0.0}, 0.0)


def test_predicted_spans_are_compared_on_the_tokens_of_the_reference():
    predicted = make_doc([(0, 2, "A"), (2, 3, "B")], words=["ze", "ro", "one"])
    reference = make_doc([(0, 1, "A"), (1, 2, "B")], words=["zero", "one"])
    scores = score([Example(predicted, reference)])
    assert_scores(scores, "sc", {"p": 1.0, "r": 1.0, "f": 1.0}, 1.0)


def test_examples_may_come_from_a_generator():
    examples = [make_example(PREDICTED, GOLD)]
    assert score(example for example in examples) == score(examples)
