"""Which component is recommended for which spans."""

import pytest
import spacy
from spacy.tokens import Doc, Span

from spacy_spans.debugging.advice import _overlap_within, recommend_component


@pytest.fixture(scope="module")
def vocab():
    return spacy.blank("en").vocab


def make(vocab, *spans):
    doc = Doc(vocab, words=["w"] * 20)
    doc.spans["sc"] = [Span(doc, *span) for span in spans]
    return doc


@pytest.mark.parametrize(
    ("spans", "share"),
    [
        ([], 0),
        ([(0, 3, "A"), (3, 5, "A")], 0),
        ([(0, 3, "A"), (0, 3, "B")], 0),
        ([(0, 3, "A"), (2, 5, "A")], 0.5),
        # The last one lies in the first, though the second ends before it.
        ([(0, 9, "A"), (1, 2, "A"), (5, 6, "A"), (9, 10, "A")], 0.5),
    ],
)
def test_share_of_spans_that_overlap_one_of_their_label(vocab, spans, share):
    assert _overlap_within([make(vocab, *spans), Doc(vocab)], "sc") == share


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 10, "A"), (0, 10, "B")], "multispan_tagger: spans are long"),
        ([(0, 10, "A"), (5, 15, "A")], "span_enumerator: spans of a label overlap"),
        ([(0, 2, "A")], "span_enumerator: spans are short"),
        ([], "nothing to go by"),
    ],
)
def test_component_follows_length_and_overlap(vocab, spans, expected):
    section = recommend_component([make(vocab, *spans)], "sc")
    assert any(message.startswith(expected) for _, message in section.findings)
    assert {level for level, _ in section.findings} == {"info"}
