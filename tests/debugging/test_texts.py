"""Duplicates, odd boundaries and strings that are annotated unevenly."""

import pytest
import spacy
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_spans.debugging.texts import check_annotations, check_duplicates


@pytest.fixture(scope="module")
def vocab():
    return spacy.blank("en").vocab


def make(vocab, text, *spans):
    doc = Doc(vocab, words=text.split(" ")) if text else Doc(vocab)
    doc.spans["sc"] = [Span(doc, *span) for span in spans]
    return doc


def side(*docs):
    return [Example(Doc(doc.vocab, words=[t.text for t in doc]), doc) for doc in docs]


def test_nothing_gives_nothing(vocab):
    assert check_annotations({"train": []}, "sc").findings == [("good", "none")]


def test_odd_boundaries_are_counted_by_label(vocab):
    doc = make(vocab, ", a . ( b ) \n", (0, 2, "A"), (1, 3, "B"), (3, 6, "B"), (5, 7, "A"))
    assert [message for _, message in check_annotations({"train": side(doc)}, "sc").findings] == [
        "1 span beginning with punctuation (A 1; e.g. ', a')",
        "1 span ending with punctuation (B 1; e.g. 'a .')",
        "1 span with white space at an end (A 1; e.g. ') \\n')",
    ]


def test_duplicates_within_and_across(vocab):
    one, other = make(vocab, "a b", (0, 1, "A")), make(vocab, "a b")
    sides = {"train": side(one, other, make(vocab, "c")), "dev": side(one, make(vocab, ""))}
    messages = [message for _, message in check_duplicates(sides, "sc").findings]
    assert messages == [
        "train: 1 of 3 documents with the text of another, 1 of these texts with other spans "
        "(e.g. 'a b')",
        "1 text of dev in train as well, so scores are too high (e.g. 'a b'). Keep each on one "
        "side only.",
    ]
    apart = {"train": side(one), "dev": side(make(vocab, "c"), make(vocab, ""), make(vocab, ""))}
    assert check_duplicates(apart, "sc").findings == [("good", "no text occurs twice")]


def test_strings_that_are_annotated_and_labelled_unevenly(vocab):
    as_a, as_b = make(vocab, "x y", (0, 1, "A")), make(vocab, "z x", (1, 2, "B"))
    docs = side(as_a, as_a, as_a, as_b, as_b, make(vocab, "x"), make(vocab, "x"))
    assert [message for _, message in check_annotations({"dev": docs}, "sc").findings] == [
        "1 string annotated in 2 documents or more, and outside of any span in 2 or more that "
        "have no span on it: 'x' in 5 documents and not in 2",
        "1 string with one label in 2 documents or more, and another in 2 or more: 'x' (A 3, B 2)",
    ]
