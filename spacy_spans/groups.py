"""Between arrays and `doc.spans` groups. The only place that builds groups.

Groups are rebuilt, never edited; the name of a group equals its key, or it is lost on save; and
`attrs["scores"]` has one float per span, in their order, on empty groups too.
"""

from collections.abc import Sequence

import numpy as np
from spacy.tokens import Doc, Span, SpanGroup

from spacy_spans.types import IntArray, SpanArrays


def write_group(doc: Doc, key: str, spans: SpanArrays, labels: Sequence[str]) -> None:
    """Set `doc.spans[key]` to the given spans, sorted by start, then end, best score first.

    spans (SpanArrays): Offsets, label indices and scores of n spans; n may be 0.
    labels (Sequence[str]): The label of each index.
    """
    offsets, label_ids, scores = spans
    order = np.lexsort((-scores, offsets[:, 1], offsets[:, 0]))
    rows = zip(offsets[order].tolist(), label_ids[order].tolist(), strict=True)
    doc.spans[key] = SpanGroup(
        doc,
        name=key,
        attrs={"scores": scores[order].tolist()},
        spans=[Span(doc, start, end, label=labels[label]) for (start, end), label in rows],
    )


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
