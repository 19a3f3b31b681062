"""Documents that occur twice, and annotations that look like mistakes."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from spacy.attrs import ORTH
from spacy.tokens import Doc, Span

from spacy_spans.debugging.findings import Section
from spacy_spans.debugging.gold import Sides
from spacy_spans.groups import is_annotated_for, spans_of
from spacy_spans.pipeline.gold_report import amount, format_counts, shorten

# Longer strings hardly occur twice.
MAX_TOKENS = 8
# A string counts as annotated unevenly from so many documents on, each way.
MIN_DOCS = 2
N_SHOWN = 5
# Odd, hence no power of it is 0 in 64 bits.
BASE = np.uint64(0x9E3779B97F4A7C15)
Hashes = npt.NDArray[np.uint64]


def check_duplicates(sides: Sides, key: str) -> Section:
    """Texts that occur more than once, on one side or on both."""
    section = Section("Duplicated documents")
    seen: dict[str, dict[str, list[Doc]]] = {}
    for side, examples in sides.items():
        docs_of: dict[str, list[Doc]] = defaultdict(list)
        for example in examples:
            # A text of white space only is no document to be mixed up.
            if text := example.reference.text.strip():
                docs_of[text].append(example.reference)
        seen[side] = docs_of
        n_more = sum(len(docs) - 1 for docs in docs_of.values())
        if n_more:
            text = next(text for text, docs in docs_of.items() if len(docs) > 1)
            section.add(
                "warning",
                f"{side}: {n_more:,} of {amount(len(examples), 'document')} with the text of "
                f"another, {_differing(docs_of, key):,} of these texts with other spans (e.g. "
                f"{shorten(text)!r})",
            )
    if len(seen) == 2:
        shared = [text for text in seen["dev"] if text in seen["train"]]
        if shared:
            section.add(
                "warning",
                f"{amount(len(shared), 'text')} of dev in train as well, so scores are too high "
                f"(e.g. {shorten(shared[0])!r}). Keep each on one side only.",
            )
    if not section.findings:
        section.add("good", "no text occurs twice")
    return section


def _differing(docs_of: dict[str, list[Doc]], key: str) -> int:
    def spans(doc: Doc) -> frozenset[Any]:
        return frozenset((s.start_char, s.end_char, s.label) for s in spans_of(doc, key))

    return sum(len({spans(doc) for doc in docs}) > 1 for docs in docs_of.values())


def check_annotations(sides: Sides, key: str) -> Section:
    """Boundaries at white space or punctuation, and strings that are annotated unevenly."""
    section = Section("Suspicious annotations")
    docs = [example.reference for examples in sides.values() for example in examples]
    edges: dict[str, Counter[str]] = defaultdict(Counter)
    example_of: dict[str, str] = {}
    for doc in docs:
        for span in spans_of(doc, key):
            for kind in _odd_edges(span):
                edges[kind][span.label_] += 1
                example_of.setdefault(kind, span.text)
    for kind, counts in sorted(edges.items()):
        section.add(
            "warning",
            f"{amount(counts.total(), 'span')} {kind} ({format_counts(counts)}; e.g. "
            f"{shorten(example_of[kind])!r})",
        )
    annotated = [doc for doc in docs if is_annotated_for(doc, key)]
    _report_uneven(section, annotated, key)
    _report_relabelled(section, annotated, key)
    if not section.findings:
        section.add("good", "none")
    return section


def _odd_edges(span: Span) -> list[str]:
    """What is odd about where a span begins and ends."""
    if span.end <= span.start:
        return ["without any token"]
    first, last = span[0], span[len(span) - 1]
    kinds = []
    if first.is_space or last.is_space:
        kinds.append("with white space at an end")
    # Brackets and quotes belong where their partners are inside too.
    if first.is_punct and not (first.is_bracket or first.is_quote):
        kinds.append("beginning with punctuation")
    if last.is_punct and not (last.is_bracket or last.is_quote):
        kinds.append("ending with punctuation")
    return kinds


def _report_uneven(section: Section, docs: Sequence[Doc], key: str) -> None:
    """Strings that are a span in some documents and, outside of any span, none in others."""
    uneven = find_uneven(docs, key)
    if not uneven:
        return
    shown = "; ".join(
        f"{shorten(text, 40)!r} in {amount(n_with, 'document')} and not in {n_without:,}"
        for text, n_with, n_without in uneven[:N_SHOWN]
    )
    section.add(
        "warning",
        f"{amount(len(uneven), 'string')} annotated in {MIN_DOCS} documents or more, and outside "
        f"of any span in {MIN_DOCS} or more that have no span on it: {shown}",
    )


def _report_relabelled(section: Section, docs: Sequence[Doc], key: str) -> None:
    """Strings that have one label in some documents and another in others."""
    found = find_relabelled(docs, key)
    if found:
        shown = "; ".join(
            f"{shorten(text, 40)!r} ({format_counts(n_docs)})" for text, n_docs in found[:N_SHOWN]
        )
        section.add(
            "warning",
            f"{amount(len(found), 'string')} with one label in {MIN_DOCS} documents or more, and "
            f"another in {MIN_DOCS} or more: {shown}",
        )


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


def find_uneven(docs: Sequence[Doc], key: str) -> list[tuple[str, int, int]]:
    """Strings of up to 8 tokens that are annotated in some documents and not in others.

    Compares hashes of all runs of tokens: the time grows with tokens, not with strings.

    RETURNS (list): Text, documents where it is a span, and documents where it occurs outside of
        any span and never is one; the most even first.
    """
    lengths = np.asarray([len(doc) for doc in docs], dtype=np.int64)
    starts_of = np.cumsum(lengths) - lengths
    words = np.concatenate([np.zeros(0, np.uint64), *(doc.to_array(ORTH) for doc in docs)])
    doc_of = np.repeat(np.arange(len(docs)), lengths)
    rows = [
        (start + span.start, start + span.end)
        for doc, start in zip(docs, starts_of.tolist(), strict=True)
        for span in spans_of(doc, key)
        if span.start < span.end
    ]
    spans = np.unique(np.asarray(rows, dtype=np.int64).reshape(-1, 2), axis=0)
    change = np.zeros(len(words) + 1, dtype=np.int64)
    np.add.at(change, spans[:, 0], 1)
    np.add.at(change, spans[:, 1], -1)
    # Tokens before each position that lie in some span.
    covered = np.append(0, np.cumsum(np.cumsum(change[:-1]) > 0))
    found = []
    hashes = np.zeros(len(words), dtype=np.uint64)
    for length in range(1, MAX_TOKENS + 1):
        n = len(words) - length + 1
        if n <= 0:
            break
        hashes = hashes[:n] * BASE + words[length - 1 :]
        own = spans[spans[:, 1] - spans[:, 0] == length, 0]
        outside = covered[length:] - covered[:n] == 0
        whole = doc_of[:n] == doc_of[length - 1 :]
        free = np.flatnonzero(outside & whole & np.isin(hashes, hashes[own]))
        for at, n_with, n_without in _compare(hashes, doc_of, own, free):
            doc = docs[doc_of[at]]
            start = at - int(starts_of[doc_of[at]])
            found.append((doc[start : start + length].text, n_with, n_without))
    return sorted(found, key=lambda row: (-min(row[1:]), row))


def _compare(
    hashes: Hashes,
    doc_of: npt.NDArray[np.int64],
    own: npt.NDArray[np.int64],
    free: npt.NDArray[np.int64],
) -> list[tuple[int, int, int]]:
    """A place of each uneven string, and its documents with and without."""
    docs_with: dict[int, set[int]] = defaultdict(set)
    docs_without: dict[int, set[int]] = defaultdict(set)
    place: dict[int, int] = {}
    for docs, places in ((docs_with, own), (docs_without, free)):
        for code, at, doc in zip(
            hashes[places].tolist(), places.tolist(), doc_of[places].tolist(), strict=True
        ):
            docs[code].add(doc)
            place.setdefault(code, at)
    rows = []
    for code, without in docs_without.items():
        only = without - docs_with[code]
        if len(docs_with[code]) >= MIN_DOCS and len(only) >= MIN_DOCS:
            rows.append((place[code], len(docs_with[code]), len(only)))
    return rows
