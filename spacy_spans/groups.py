"""Between arrays and `doc.spans` groups. The only place that builds groups.

Groups are rebuilt, never edited; the name of a group equals its key, or it is lost on save; and
`attrs["scores"]` has one float per span, in their order, on empty groups too.

A discontinuous mention is one span for each fragment, and these share a `Span.id`; all other spans
have none.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from spacy.tokens import Doc, Span, SpanGroup

from spacy_spans.errors import SpansError
from spacy_spans.keys import ENTITIES
from spacy_spans.types import IntArray, SpanArrays


def is_annotated_for(doc: Doc, key: str) -> bool:
    """Whether a document has a group of this key, or, for `ENTITIES`, entities or the word that
    there are none. Of a document without tokens nothing says so.
    """
    if key == ENTITIES:
        return len(doc) > 0 and doc.has_annotation("ENT_IOB")
    return key in doc.spans


def spans_of(doc: Doc, key: str) -> Sequence[Span]:
    """The spans under a key, or, for `ENTITIES`, the entities; none where the key is missing."""
    spans: Sequence[Span] = doc.ents if key == ENTITIES else doc.spans.get(key, ())
    return spans


def describe_keys(docs: Iterable[Doc]) -> str:
    """The keys that any of the documents has, for a message; "none" without any."""
    return ", ".join(sorted({key for doc in docs for key in doc.spans})) or "none"


def write_group(
    doc: Doc,
    key: str,
    spans: SpanArrays,
    labels: Sequence[str],
    mentions: IntArray | None = None,
) -> None:
    """Set `doc.spans[key]` to the given spans, sorted by start, then end, best score first.

    spans (SpanArrays): Offsets, label indices and scores of n spans; n may be 0.
    labels (Sequence[str]): The label of each index.
    mentions (ndarray): A number for each span, any integer: spans with the same one are fragments
        of one mention and have the same label. Shape (n,). None: each is a mention of its own.
    """
    offsets, label_ids, scores = spans
    order = np.lexsort((-scores, offsets[:, 1], offsets[:, 0]))
    names = [""] * len(order) if mentions is None else _name_mentions(mentions[order])
    rows = zip(offsets[order].tolist(), label_ids[order].tolist(), names, strict=True)
    doc.spans[key] = SpanGroup(
        doc,
        name=key,
        attrs={"scores": scores[order].tolist()},
        spans=[
            Span(doc, start, end, label=labels[label], span_id=name)
            for (start, end), label, name in rows
        ],
    )


def fragments(doc: Doc, key: str) -> list[list[Span]]:
    """The mentions in `doc.spans[key]`, each as the list of its fragments.

    Spans that share a label and a `Span.id_` that is not empty are fragments of one mention. Every
    other span is a mention of one fragment.

    doc (Doc): With a group as this package writes it. Other components may give `Span.id_` other
        meanings: `span_ruler` writes the id of the pattern. Ids are those of one document: in what
        `Doc.from_docs` makes of several, mentions with equal ids become one.
    key (str): The key in `doc.spans`.
    RETURNS (list): Mentions in the order of their first fragment, fragments in the order of the
        text. An empty group gives [].

    Raises KeyError when there is no such group.
    """
    if key not in doc.spans:
        raise KeyError(
            f"This document has no doc.spans[{key!r}]. Keys that are there: {sorted(doc.spans)}."
        )
    mentions: dict[Any, list[Span]] = {}
    # Stable: at the same place the order of the group stays.
    for row, span in enumerate(sorted(doc.spans[key], key=_offsets_of)):
        mentions.setdefault((span.id, span.label) if span.id else row, []).append(span)
    return list(mentions.values())


def write_fragments(
    doc: Doc,
    key: str,
    mentions: Iterable[Sequence[Span]],
    scores: Iterable[float] | None = None,
) -> None:
    """Set `doc.spans[key]` to the given mentions; `fragments` reads them again.

    The spans are written in the order of the text. Fragments of a mention of several get a
    `Span.id_`, "m1", "m2" and so on in the order of the first fragments; other spans have none.

    doc (Doc): The document.
    key (str): The key in `doc.spans`; a group that is there is replaced.
    mentions (Iterable): Each as its fragments: spans of the document, with the same label, in any
        order.
    scores (Iterable): One for each mention; all its fragments get it. None: all 1.0.
    RAISES (SpansError): For a mention without fragments, or whose fragments hold no token, touch,
        overlap, differ in their label or belong to another document; and when there are not as
        many scores as mentions.
    """
    ordered = [sorted(mention, key=_offsets_of) for mention in mentions]
    values = [1.0] * len(ordered) if scores is None else [float(score) for score in scores]
    if len(values) != len(ordered):
        raise SpansError(f"Got {len(values)} scores, expected {len(ordered)}: one for each mention")
    for mention in ordered:
        _check_mention(doc, mention)
    rows = [(span, i) for i, mention in enumerate(ordered) for span in mention]
    rows.sort(key=lambda row: _offsets_of(row[0]))
    names = _name_mentions(np.asarray([i for _, i in rows], dtype="i"))
    doc.spans[key] = SpanGroup(
        doc,
        name=key,
        attrs={"scores": [values[i] for _, i in rows]},
        spans=[
            Span(doc, span.start, span.end, label=span.label, kb_id=span.kb_id, span_id=name)
            for (span, _), name in zip(rows, names, strict=True)
        ],
    )


def mention_name(number: int) -> str:
    """The `Span.id_` of all fragments of a discontinuous mention.

    number (int): Counts the discontinuous mentions of a group from 1; 0 for any other mention.
    RETURNS (str): "" for 0.
    """
    return f"m{number}" if number else ""


def count_spans(docs: Iterable[Doc]) -> dict[str, dict[str, Any]]:
    """Count what is in `doc.spans`.

    docs (Iterable[Doc]): Documents.
    RETURNS (dict): For each key, sorted: "documents" that have it, "spans", and "labels", the
        number of spans of each. No documents give {}.
    """
    counts: dict[str, dict[str, Any]] = {}
    for doc in docs:
        for key, group in doc.spans.items():
            found = counts.setdefault(key, {"documents": 0, "spans": 0, "labels": {}})
            found["documents"] += 1
            found["spans"] += len(group)
            for span in group:
                found["labels"][span.label_] = found["labels"].get(span.label_, 0) + 1
    for found in counts.values():
        found["labels"] = dict(sorted(found["labels"].items()))
    return dict(sorted(counts.items()))


def write_candidates(doc: Doc, key: str, offsets: IntArray) -> None:
    """Set `doc.spans[key]` to unlabelled spans. Shape (n, 2); n may be 0."""
    spans = [Span(doc, start, end) for start, end in offsets.tolist()]
    doc.spans[key] = SpanGroup(doc, name=key, attrs={"scores": [1.0] * len(spans)}, spans=spans)


def read_offsets(doc: Doc, key: str) -> IntArray:
    """Offsets of `doc.spans[key]`. Shape (n, 2), int32; (0, 2) for an empty group.

    Raises KeyError when there is no such group.
    """
    spans = [(span.start, span.end) for span in doc.spans[key]]
    return np.asarray(spans, dtype="i").reshape(-1, 2)


def _offsets_of(span: Span) -> tuple[int, int]:
    return span.start, span.end


def _name_mentions(mentions: IntArray) -> list[str]:
    """Name each row's mention. The rows are in the order in which they are written."""
    _, first, which, sizes = np.unique(
        mentions, return_index=True, return_inverse=True, return_counts=True
    )
    (several,) = np.nonzero(sizes > 1)
    numbers = np.zeros(len(sizes), dtype="i")
    numbers[several[np.argsort(first[several])]] = np.arange(1, len(several) + 1)
    return [mention_name(number) for number in numbers[which].tolist()]


def _check_mention(doc: Doc, mention: list[Span]) -> None:
    """Raise SpansError unless these spans, in order, are one mention of the document."""
    if not mention:
        raise SpansError("Got a mention without fragments, expected one span or more")
    for span in mention:
        if span.doc is not doc:
            raise SpansError(f"The span {span.text!r} belongs to another document")
        if span.end <= span.start:
            raise SpansError(f"The span at token {span.start} is empty, expected one token or more")
    labels = sorted({span.label_ for span in mention})
    if len(labels) > 1:
        raise SpansError(f"The fragments of one mention have the labels {labels}, expected one")
    for span, after in pairwise(mention):
        if after.start <= span.end:
            how = "touch" if after.start == span.end else "overlap"
            raise SpansError(
                f"The fragments {span.text!r} (tokens {span.start} to {span.end}) and "
                f"{after.text!r} ({after.start} to {after.end}) of one mention {how}. Make one "
                "span of them, or two mentions."
            )
