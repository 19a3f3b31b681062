"""Duplicates, odd boundaries and strings that are annotated unevenly, as they are found."""

from collections import defaultdict

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, Span

from spacy_spans.suspicious import (
    AFTER_PUNCTUATION,
    AT_SPACE,
    BEFORE_PUNCTUATION,
    find_odd_edges,
    find_relabelled,
    find_uneven,
    group_by_text,
    is_contradictory,
)


@pytest.fixture(scope="module")
def vocab():
    return spacy.blank("en").vocab


def make(vocab, text, *spans):
    doc = Doc(vocab, words=text.split(" ")) if text else Doc(vocab)
    doc.spans["sc"] = [Span(doc, *span) for span in spans]
    return doc


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
    n_often = 0
    for words, where in annotated.items():
        without = free[words] - where
        n_often += len(where) >= 2
        if len(where) >= 2 and len(without) >= 2:
            rows.add((texts[words].strip(), len(where), len(without)))
    return rows, n_often


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
    found, n_often = find_uneven(docs, "sc")
    rows = {(text.strip(), *rest) for text, *rest in found}
    assert (rows, n_often) == slow_uneven(docs)
    evenness = [min(row[1:]) for row in found]
    assert evenness == sorted(evenness, reverse=True)


def test_parts_of_longer_spans_are_not_uneven(vocab):
    docs = [make(vocab, "in York", (1, 2, "GPE"))] * 2 + [
        make(vocab, "New York", (0, 2, "GPE"))
    ] * 2
    assert find_uneven(docs, "sc") == ([], 2)
    docs += [make(vocab, "York")] * 3
    assert find_uneven(docs, "sc") == ([("York", 2, 3)], 2)


def test_nothing_gives_nothing(vocab):
    for docs in ([], [make(vocab, "")], [make(vocab, ""), make(vocab, "a b")]):
        assert find_uneven(docs, "sc") == ([], 0)
        assert find_uneven(docs, "other") == ([], 0)
        assert find_relabelled(docs, "sc") == []
        assert find_odd_edges(docs, "sc") == {}
    assert group_by_text([]) == group_by_text([make(vocab, ""), make(vocab, "\n")]) == {}
    assert not is_contradictory([], "sc")


def test_odd_edges_are_counted_by_label_with_the_first(vocab):
    doc = make(vocab, ", a . ( b ) \n", (0, 2, "A"), (1, 3, "B"), (3, 6, "B"), (5, 7, "A"))
    other = make(vocab, "b .", (0, 2, "B"))
    found = find_odd_edges([make(vocab, "a", (0, 1, "A")), doc, doc, other], "sc")
    assert {kind: odd.of_label for kind, odd in found.items()} == {
        AFTER_PUNCTUATION: {"A": 2},
        BEFORE_PUNCTUATION: {"B": 3},
        AT_SPACE: {"A": 2},
    }
    firsts = found[BEFORE_PUNCTUATION].first_of_label
    assert {label: span.text for label, span in firsts.items()} == {"B": "a ."}


def test_documents_of_one_text_may_differ_in_their_spans(vocab):
    one, other = make(vocab, "a b", (0, 1, "A")), make(vocab, "a b", (0, 1, "B"))
    grouped = group_by_text([one, make(vocab, "c"), make(vocab, "a b \n"), other])
    assert {text: len(docs) for text, docs in grouped.items()} == {"a b": 3, "c": 1}
    assert is_contradictory([one, other], "sc")
    assert is_contradictory([one, make(vocab, "a b")], "sc")
    assert not is_contradictory([one, one], "sc")
    assert not is_contradictory([one, other], "none")


def test_strings_with_different_labels(vocab):
    as_a, as_b = make(vocab, "x y", (0, 1, "A")), make(vocab, "z x", (1, 2, "B"))
    both = make(vocab, "x", (0, 1, "A"), (0, 1, "B"))
    assert find_relabelled([make(vocab, ""), as_a, as_a, as_b], "sc") == []
    # One label of two on one place agrees with those that have only that.
    assert find_relabelled([as_a, as_a, both, both], "sc") == []
    # Twice in one document is one document.
    twice = make(vocab, "x x", (0, 1, "B"), (1, 2, "B"))
    assert find_relabelled([as_a, as_a, twice], "sc") == []
    docs = [as_a, as_a, as_a, as_b, twice, both]
    assert find_relabelled(docs, "sc") == [("x", {"A": 3, "B": 2})]
