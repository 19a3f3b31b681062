"""What is said of gold that is lost whatever a component does with it."""

import pytest

from spacy_spans.alignment import Annotation
from spacy_spans.pipeline.gold_report import MISALIGNED, GoldReport, amount, format_counts, shorten


def test_nothing_counted_says_nothing():
    report = GoldReport([])
    assert report.messages("pipe", "sc") == []
    assert (report.n_docs, report.n_tokens, report.n_gold, report.n_misaligned) == (0, 0, 0, 0)


def test_counts_add_up_over_documents():
    report = GoldReport(["A", "B"])
    report.add_gold(5, [0, 0, 1], [])
    report.add_gold(0, [], [])
    report.add_gold(3, [1], [])
    assert (report.n_docs, report.n_tokens, report.n_gold) == (3, 8, 4)
    assert report.gold_of_label == {0: 2, 1: 2}
    assert report.messages("pipe", "sc") == []


def test_misaligned_gold_is_counted_by_label_with_the_first_example():
    report = GoldReport(["A", "B"])
    report.add_gold(5, [0, 1], [Annotation("first", "B", 1, 6), Annotation("second", "A", 8, 14)])
    report.add_gold(5, [0], [Annotation("third", "B", 0, 5)])
    assert report.n_misaligned == 3
    assert report.n_gold == 6
    (message,) = report.messages("pipe", "key")
    assert message.startswith(
        "pipe: 3 of 6 gold spans in 'key' begin or end inside a token, or hold none, and are not "
        "learned (A 1, B 2; e.g. 'first')."
    )
    assert "alignment" in message
    # Of the first document with one of each label.
    assert report.losses[MISALIGNED].first_of_label == {
        "B": (0, Annotation("first", "B", 1, 6)),
        "A": (0, Annotation("second", "A", 8, 14)),
    }
    assert report.n_lost == 3


def test_documents_without_the_key_are_counted():
    report = GoldReport(["A"])
    for n_tokens in (1, 2, 3):
        report.add_gold(n_tokens, [0], [])
    report.add_without_key()
    report.add_without_key()
    (message,) = report.messages("pipe", "key")
    assert message.startswith("pipe: 2 of 5 training documents have no doc.spans['key']")


def test_labels_without_examples_are_named_misaligned_ones_as_well():
    report = GoldReport(["A", "B", "C"])
    report.add_gold(1, [1], [Annotation("x", "C", 0, 1)])
    messages = report.messages("pipe", "key")
    assert len(messages) == 2
    assert messages[1].startswith("pipe: no training example for A, C in 'key'.")


def test_counts_are_listed_by_name():
    assert format_counts({"B": 1, "A": 3}) == "A 3, B 1"
    assert format_counts({}) == ""


def test_amounts_have_a_plural():
    given = [amount(n, "span") for n in (0, 1, 2, 1000)]
    assert given == ["0 spans", "1 span", "2 spans", "1,000 spans"]


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [("", 3, ""), ("abc", 3, "abc"), ("abcd", 3, "ab…"), ("x" * 61, 60, "x" * 59 + "…")],
)
def test_long_texts_are_shortened(text, width, expected):
    assert shorten(text, width) == expected
