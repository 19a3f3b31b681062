import pytest
import spacy
from spacy.tokens import Doc

from spacy_spans.converters import ALIGNMENT_MODES
from spacy_spans.converters.align import TokenEdges, align_annotation
from spacy_spans.converters.records import Annotation

#       0123456789012345678901
TEXT = "We can't stop,  can we"  # We ca n't stop , _ can we


@pytest.fixture(scope="module")
def edges():
    doc = spacy.blank("en")(TEXT)
    assert [t.text for t in doc] == ["We", "ca", "n't", "stop", ",", " ", "can", "we"]
    return TokenEdges(doc)


@pytest.mark.parametrize(
    ("start", "end", "strict", "contract", "expand"),
    [
        (0, 2, (0, 1), (0, 1), (0, 1)),
        (3, 8, (1, 3), (1, 3), (1, 3)),
        (0, 22, (0, 8), (0, 8), (0, 8)),
        (4, 8, "misaligned start", (2, 3), (1, 3)),
        (2, 8, "misaligned start", (1, 3), (1, 3)),
        (3, 9, "misaligned end", (1, 3), (1, 3)),
        (3, 11, "misaligned end", (1, 3), (1, 4)),
        (1, 6, "misaligned start and end", (1, 2), (0, 3)),
        (10, 11, "misaligned start and end", "empty after contract", (3, 4)),
        (9, 11, "misaligned end", "empty after contract", (3, 4)),
        (2, 3, "white space only", "white space only", "white space only"),
        (14, 16, "white space only", "white space only", "white space only"),
        (14, 17, "misaligned start and end", "empty after contract", (5, 7)),
        (8, 10, "misaligned start and end", "empty after contract", (3, 4)),
    ],
)
def test_alignment_modes(edges, start, end, strict, contract, expand):
    assert [edges.align(start, end, mode) for mode in ALIGNMENT_MODES] == [strict, contract, expand]


@pytest.mark.parametrize("mode", ALIGNMENT_MODES)
@pytest.mark.parametrize("text", [TEXT, " a  b-c\n\n d.", "x", "don't\t(e.g. 5km)!  ", "🚀🚀 café"])
def test_boundaries_are_those_of_char_span(text, mode):
    doc = spacy.blank("en")(text)
    edges = TokenEdges(doc)
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            span = doc.char_span(start, end, alignment_mode=mode)
            expected = None if span is None or span.text.isspace() else (span.start, span.end)
            if text[start:end].isspace():
                expected = None
            found = edges.align(start, end, mode)
            assert (None if isinstance(found, str) else found) == expected, (start, end)


@pytest.mark.parametrize(
    ("fragments", "mode", "expected"),
    [
        ([(0, 2)], "strict", (((0, 1),), False)),
        ([(0, 2), (9, 13)], "strict", (((0, 1), (3, 4)), False)),
        ([(0, 2), (9, 12)], "strict", "misaligned end"),
        ([(0, 2), (9, 12)], "expand", (((0, 1), (3, 4)), True)),
        ([(0, 2), (9, 12)], "contract", "empty after contract"),
        ([(0, 2), (3, 5)], "strict", (((0, 2),), False)),  # parted by a space
        ([(3, 5), (5, 8)], "strict", (((1, 3),), False)),  # parted by nothing
        ([(0, 1), (4, 5)], "expand", (((0, 2),), True)),  # tokens that touch
        ([(9, 10), (12, 13)], "expand", (((3, 4),), True)),  # in one token
        ([(0, 2), (5, 8), (9, 13)], "strict", (((0, 1), (2, 4)), False)),
    ],
)
def test_fragments(edges, fragments, mode, expected):
    assert align_annotation(edges, Annotation("X", tuple(fragments)), mode) == expected


def test_many_look_ups_in_a_long_document():
    """100,000 spans in 100,000 tokens: a scan for each would take hours."""
    doc = Doc(spacy.blank("en").vocab, words=["word"] * 100_000)
    edges = TokenEdges(doc)
    for index in range(100_000):
        assert edges.align(5 * index, 5 * index + 4, "strict") == (index, index + 1)
