"""Documents that occur twice, and annotations that look like mistakes. Found, not judged: much of
it occurs in good data too.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from spacy.attrs import ORTH
from spacy.tokens import Doc, Span

from spacy_spans.groups import spans_of
from spacy_spans.types import LongArray

# Longer strings hardly occur twice.
MAX_TOKENS = 8
# A string counts as annotated unevenly from so many documents on, each way.
MIN_DOCS = 2
AT_SPACE = "with white space at an end"
AFTER_PUNCTUATION = "beginning with punctuation"
BEFORE_PUNCTUATION = "ending with punctuation"
# Odd, hence no power of it is 0 in 64 bits.
BASE = np.uint64(0x9E3779B97F4A7C15)
Hashes = npt.NDArray[np.uint64]


class OddEdges(NamedTuple):
    """Spans that begin or end in one odd way: how many of each label, and the first of each."""

    of_label: Counter[str]
    first_of_label: dict[str, Span]


class Uneven(NamedTuple):
    """A string that is annotated in some documents and not in others.

    n_with, n_without (int): Documents where it is a span, and documents where it occurs outside of
        any span and never is one.
    """

    text: str
    n_with: int
    n_without: int


def group_by_text(docs: Iterable[Doc]) -> dict[str, list[Doc]]:
    """Documents of each text. White space at its ends does not count, and a text of nothing else
    is left out: that is no document to be mixed up.
    """
    docs_of: dict[str, list[Doc]] = defaultdict(list)
    for doc in docs:
        if text := doc.text.strip():
            docs_of[text].append(doc)
    return docs_of


def is_contradictory(docs: Sequence[Doc], key: str) -> bool:
    """Whether documents of one text differ in their spans."""
    found = {
        frozenset((span.start_char, span.end_char, span.label) for span in spans_of(doc, key))
        for doc in docs
    }
    return len(found) > 1


def find_odd_edges(docs: Iterable[Doc], key: str) -> dict[str, OddEdges]:
    """Spans with white space or punctuation at an end, by what is odd about them."""
    found: dict[str, OddEdges] = defaultdict(lambda: OddEdges(Counter(), {}))
    for doc in docs:
        for span in spans_of(doc, key):
            for kind in _odd_edges(span):
                found[kind].of_label[span.label_] += 1
                found[kind].first_of_label.setdefault(span.label_, span)
    return found


def _odd_edges(span: Span) -> list[str]:
    if span.end <= span.start:
        return ["without any token"]
    first, last = span[0], span[len(span) - 1]
    kinds = []
    if first.is_space or last.is_space:
        kinds.append(AT_SPACE)
    # Brackets and quotes belong where their partners are inside too.
    if first.is_punct and not (first.is_bracket or first.is_quote):
        kinds.append(AFTER_PUNCTUATION)
    if last.is_punct and not (last.is_bracket or last.is_quote):
        kinds.append(BEFORE_PUNCTUATION)
    return kinds


def find_relabelled(docs: Sequence[Doc], key: str) -> list[tuple[str, dict[str, int]]]:
    """Strings whose label differs between documents. Several labels on one place are no difference.

    RETURNS (list): Text, and documents by label, or by labels joined with "+"; those first whose
        second label is the most frequent.
    """
    docs_of: dict[str, dict[frozenset[str], set[int]]] = defaultdict(lambda: defaultdict(set))
    for number, doc in enumerate(docs):
        labels_at: dict[tuple[int, int], set[str]] = defaultdict(set)
        for span in spans_of(doc, key):
            labels_at[span.start, span.end].add(span.label_)
        for (start, end), labels in labels_at.items():
            docs_of[doc[start:end].text][frozenset(labels)].add(number)
    found = []
    for text, sets in docs_of.items():
        often = {labels: len(own) for labels, own in sets.items() if len(own) >= MIN_DOCS}
        if any(not one & other for one in often for other in often):
            counts = {"+".join(sorted(labels)): n for labels, n in often.items()}
            found.append((text, counts))
    return sorted(found, key=lambda row: (-sorted(row[1].values())[-2], row[0]))


def find_uneven(docs: Sequence[Doc], key: str) -> tuple[list[Uneven], int]:
    """Strings of up to 8 tokens that are annotated in some documents and not in others.

    Compares hashes of all runs of tokens: the time grows with tokens, not with strings.

    RETURNS (tuple): The strings, the most even first; and how many there are, uneven or not, that
        are annotated in `MIN_DOCS` documents or more.
    """
    lengths = np.asarray([len(doc) for doc in docs], dtype=np.int64)
    starts_of = np.cumsum(lengths) - lengths
    words = np.concatenate([np.zeros(0, np.uint64), *(doc.to_array(ORTH) for doc in docs)])
    doc_of = np.repeat(np.arange(len(docs)), lengths)
    starts, ends = _join_spans(docs, key, starts_of)
    change = np.zeros(len(words) + 1, dtype=np.int64)
    np.add.at(change, starts, 1)
    np.add.at(change, ends, -1)
    # Tokens before each position that lie in some span.
    covered = np.append(0, np.cumsum(np.cumsum(change[:-1]) > 0))
    found = []
    n_often = 0
    hashes = np.zeros(len(words), dtype=np.uint64)
    for length in range(1, MAX_TOKENS + 1):
        n = len(words) - length + 1
        own = starts[ends - starts == length]
        if n > 0:
            hashes = hashes[:n] * BASE + words[length - 1 :]
        if not len(own):
            continue
        whole = doc_of[:n] == doc_of[length - 1 :]
        free = np.flatnonzero(whole & (covered[length:] == covered[:n]))
        places, n_with, n_without = _compare(hashes, doc_of, own, free)
        often = n_with >= MIN_DOCS
        n_often += int(often.sum())
        for row in np.flatnonzero(often & (n_without >= MIN_DOCS)).tolist():
            doc = docs[doc_of[places[row]]]
            start = int(places[row] - starts_of[doc_of[places[row]]])
            text = doc[start : start + length].text
            found.append(Uneven(text, int(n_with[row]), int(n_without[row])))
    return sorted(found, key=lambda row: (-min(row[1:]), row)), n_often


def _join_spans(docs: Sequence[Doc], key: str, starts_of: LongArray) -> tuple[LongArray, LongArray]:
    """Starts and ends of spans that hold any token, of documents laid end to end, each once."""
    rows = [
        (start + span.start, start + span.end)
        for doc, start in zip(docs, starts_of.tolist(), strict=True)
        for span in spans_of(doc, key)
        if span.start < span.end
    ]
    spans = np.unique(np.asarray(rows, dtype=np.int64).reshape(-1, 2), axis=0)
    return spans[:, 0], spans[:, 1]


def _compare(
    hashes: Hashes, doc_of: LongArray, own: LongArray, free: LongArray
) -> tuple[LongArray, LongArray, LongArray]:
    """For each string that is a span somewhere: its first place, and its documents with and
    without. Shape (n_strings,) each.
    """
    codes, first, strings = np.unique(hashes[own], return_index=True, return_inverse=True)
    near = np.searchsorted(codes, hashes[free])
    same = codes[np.minimum(near, len(codes) - 1)] == hashes[free]
    # A string and a document as one number.
    n_docs = int(doc_of[-1]) + 1
    with_it = np.unique(strings.reshape(-1) * n_docs + doc_of[own])
    without = np.unique(near[same] * n_docs + doc_of[free[same]])
    without = np.setdiff1d(without, with_it, assume_unique=True)
    counts = [np.bincount(pairs // n_docs, minlength=len(codes)) for pairs in (with_it, without)]
    return own[first], counts[0], counts[1]
