"""Duplicates, odd boundaries and strings that are annotated unevenly."""

from collections import defaultdict

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_spans.debugging.texts import (
    check_annotations,
    check_duplicates,
    find_relabelled,
    find_uneven,
)


@pytest.fixture(scope="module")
def vocab():
    return spacy.blank("en").vocab


def make(vocab, text, *spans):
    doc = Doc(vocab, words=text.split(" ")) if text else Doc(vocab)
    doc.spans["sc"] = [Span(doc, *span) for span in spans]
    return doc


def side(*docs):
    return [Example(Doc(doc.vocab, words=[t.text for t in doc]), doc) for doc in docs]


def slow_uneven(docs):
    """Every run of tokens of every document, one by one."""
    annotated, free, texts = defaultdict(set), defaultdict(set), {}
    for number, doc in enumerate(docs):
        inside = {i for span in doc.spans["sc"] for i in range(span.start, span.end)}
        marked = {(span.start, span.end) for span in doc.spans["sc"]}
        for start in range(len(doc)):
            for end in range(start + 1, min(start + 8, len(doc)) + 1):
                words = tuple(token.text for token in doc[start:end])
                texts[words] = doc[start:end].text
                if (start, end) in marked:
                    annotated[words].add(number)
                elif not inside & set(range(start, end)):
                    free[words].add(number)
    rows = set()
    for words, where in annotated.items():
        without = free[words] - where
        if len(where) >= 2 and len(without) >= 2:
            rows.add((texts[words].strip(), len(where), len(without)))
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_uneven_strings_are_those_of_a_slow_search(vocab, seed):
    rng = np.random.default_rng(seed)
    docs = []
    for _ in range(12):
        n = int(rng.integers(0, 12))
        doc = Doc(vocab, words=rng.choice(list("abc"), n).tolist())
        spans = []
        for _ in range(int(rng.integers(0, 3)) if n else 0):
            start = int(rng.integers(0, n))
            spans.append(Span(doc, start, min(n, start + int(rng.integers(1, 4))), "A"))
        doc.spans["sc"] = spans
        docs.append(doc)
    found = find_uneven(docs, "sc")
    assert {(text.strip(), *rest) for text, *rest in found} == slow_uneven(docs)
    evenness = [min(row[1:]) for row in found]
    assert evenness == sorted(evenness, reverse=True)


def test_nothing_gives_nothing(vocab):
    assert find_uneven([], "sc") == []
    assert find_uneven([make(vocab, ""), make(vocab, "a b")], "sc") == []
    assert check_annotations({"train": []}, "sc").findings == [("good", "none")]


def test_parts_of_longer_spans_are_not_uneven(vocab):
    docs = [make(vocab, "in York", (1, 2, "GPE"))] * 2 + [
        make(vocab, "New York", (0, 2, "GPE"))
    ] * 2
    assert find_uneven(docs, "sc") == []
    docs += [make(vocab, "York")] * 3
    assert find_uneven(docs, "sc") == [("York", 2, 3)]


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


def test_strings_with_different_labels(vocab):
    as_a, as_b = make(vocab, "x y", (0, 1, "A")), make(vocab, "z x", (1, 2, "B"))
    both = make(vocab, "x", (0, 1, "A"), (0, 1, "B"))
    assert find_relabelled([], "sc") == []
    assert find_relabelled([make(vocab, ""), as_a, as_a, as_b], "sc") == []
    # One label of two on one place agrees with those that have only that.
    assert find_relabelled([as_a, as_a, both, both], "sc") == []
    # Twice in one document is one document.
    twice = make(vocab, "x x", (0, 1, "B"), (1, 2, "B"))
    assert find_relabelled([as_a, as_a, twice], "sc") == []
    docs = [as_a, as_a, as_a, as_b, twice, both]
    assert find_relabelled(docs, "sc") == [("x", {"A": 3, "B": 2})]
    messages = [message for _, message in check_annotations({"dev": side(*docs)}, "sc").findings]
    assert messages == [
        "1 string with one label in 2 documents or more, and another in 2 or more: 'x' (A 3, B 2)"
    ]
