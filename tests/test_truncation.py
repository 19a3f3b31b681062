"""Which tokens an encoder with a limit would not see."""

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, Span

from spacy_spans.pieces import Pieces
from spacy_spans.truncation import find_lost, find_spans_on, find_truncated, piece_limit

VOCAB = spacy.blank("en").vocab


def pieces_of(counts):
    ends = np.cumsum(counts)
    return Pieces(np.arange(sum(counts)), ends - counts, ends)


@pytest.mark.parametrize(
    ("counts", "windows", "limit", "lost"),
    [
        ([1, 1, 1, 1], [(0, 4)], 4, []),
        ([1, 1, 1, 1], [(0, 4)], 3, [3]),
        # Its first pieces are seen.
        ([1, 4, 1], [(0, 3)], 3, [2]),
        # Another window begins later.
        ([3, 3, 1, 1], [(0, 3), (2, 4)], 4, []),
        # White space has no piece to lose.
        ([3, 0, 1], [(0, 3)], 3, [2]),
        # No window has the last token, by the getter's choice: nothing cuts it off.
        ([1, 1, 1], [(0, 2)], 1, [1]),
        ([], [], 3, []),
    ],
)
def test_lost_tokens(counts, windows, limit, lost):
    assert find_lost(pieces_of(np.asarray(counts, int)), windows, limit).tolist() == lost


def windows_of_three(docs):
    """One after two tokens."""
    return [[doc[i : i + 3] for i in range(0, len(doc), 2)] for doc in docs]


def make(text):
    return Doc(VOCAB, words=text.split())


@pytest.fixture(scope="module")
def tokenizer(letters):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(letters)


def test_truncated_documents_are_those_that_stock_truncates(letters):
    nlp = spacy.blank("en")
    model = {
        "@architectures": "spacy-transformers.TransformerModel.v3",
        "name": str(letters),
        "get_spans": {
            "@span_getters": "spacy-transformers.strided_spans.v1",
            "window": 3,
            "stride": 2,
        },
        "tokenizer_config": {"use_fast": True},
    }
    pipe = nlp.add_pipe("transformer", config={"model": model})
    docs = [make(text) for text in ("aaaa bbbb cccc dd e", "a b c", "aaaaaaa b ccccccc d e f")]
    pipe.model.initialize(X=docs)
    of_stock = [
        np.flatnonzero(np.asarray(d.align.lengths) == 0) for d in pipe.predict(docs).doc_data
    ]
    # The windows begin with every second token.
    assert [lost.tolist() for lost in of_stock] == [[], [], [1, 3]]
    found = find_truncated(docs, pipe.model.tokenizer, pipe.model.attrs["get_spans"])
    assert [(i, lost.tolist()) for i, lost in found] == [(2, [1, 3])]


def test_short_documents_are_not_split_into_pieces(tokenizer):
    def fail(docs):
        raise AssertionError("no window is needed")

    # The special piece at the end is cut off first.
    assert piece_limit(tokenizer) == 7
    assert list(find_truncated([], tokenizer, fail)) == []
    assert list(find_truncated([make(""), make("aa bb"), make("é a")], tokenizer, fail)) == []
    for text, expected in (("aaaaaa b", []), ("aaaaaaa b", [(1, [1])])):
        found = find_truncated([make(""), make(text)], tokenizer, windows_of_three)
        assert [(i, lost.tolist()) for i, lost in found] == expected


def test_spans_on_tokens_are_found_by_characters():
    doc = make("aa bb cc")
    other = Doc(VOCAB, words=["aa", "b", "b", "cc"], spaces=[True, False, True, False])
    spans = [Span(other, *own, "A") for own in ((0, 1), (0, 2), (2, 3), (3, 4))]
    found = find_spans_on(doc, np.asarray([1]), spans)
    assert [(span.start, span.end) for span in found] == [(0, 2), (2, 3)]
    assert find_spans_on(doc, np.asarray([], dtype=int), spans) == []
    assert find_spans_on(doc, np.asarray([0, 2]), []) == []
