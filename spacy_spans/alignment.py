"""From an `Example` to gold spans on the predicted document's tokens."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from spacy.tokens import Doc
from spacy.training import Example

from spacy_spans.errors import SpansError
from spacy_spans.groups import is_annotated_for, spans_of
from spacy_spans.kernels.enumeration import batch_offsets
from spacy_spans.keys import ENTITIES
from spacy_spans.types import IntArray

# Offsets, and masks of those that map, and map exactly.
Aligned: TypeAlias = tuple[IntArray, np.ndarray, np.ndarray]


class Annotation(NamedTuple):
    """A mention in a text.

    text (str): Its fragments, with "…" between them.
    start, end (int): Characters from the first to the last of all fragments.
    """

    text: str
    label: str
    start: int
    end: int


class GoldSpans(NamedTuple):
    """Gold spans of one example on its predicted tokens.

    offsets (ndarray): Half-open, without duplicates of the same label. Shape (n, 2), int32.
    labels (ndarray): Label indices. Shape (n,), int32.
    misaligned (list): Gold spans whose ends fall inside predicted tokens, or that hold no token.
    """

    offsets: IntArray
    labels: IntArray
    misaligned: list[Annotation]


class GoldMentions(NamedTuple):
    """Gold mentions of one example on its predicted tokens, of one fragment or several.

    offsets (ndarray): Fragments, those of a mention in order. Shape (n, 2), int32.
    labels (ndarray): Label index of each fragment. Shape (n,), int32.
    mentions (ndarray): Mention of each fragment, counted from 0, ascending. Shape (n,), int32.
    misaligned (list): Mentions left out because of the tokens.
    moved (list): Mentions that are another on the predicted tokens: ends moved, or fragments touch
        there and were joined.
    n_merged (int): Mentions that are the same as another one on the predicted tokens.
    """

    offsets: IntArray
    labels: IntArray
    mentions: IntArray
    misaligned: list[Annotation]
    moved: list[Annotation]
    n_merged: int


def gold_mentions(
    example: Example, key: str, label_ids: Mapping[str, int], alignment_mode: str = "strict"
) -> GoldMentions:
    """Read the mentions of `example.reference.spans[key]` onto the tokens of `example.predicted`.

    Spans that share a `Span.id` and a label are fragments of one mention; those that touch or
    overlap are joined. Mentions that are the same on these tokens count once. A missing key means
    that the document is not annotated and gives no mention.

    alignment_mode (str): For ends inside of predicted tokens. "strict": leave the mention out.
        "contract": keep the tokens inside. "expand": take the tokens whole. White space at an end
        that has no predicted token is left off by the last two.
    RETURNS (GoldMentions): Empty arrays for a document without spans.
    RAISES (SpansError): When a span has a label that is not among `label_ids`.
    """
    mentions = _annotated_mentions(example, key, label_ids)
    fragments = np.asarray([span for _, *spans in mentions for span in spans], dtype="i")
    offsets, aligned, exact = _align_filled(example, fragments.reshape(-1, 2), alignment_mode)
    names = list(label_ids)
    kept: set[Any] = set()
    misaligned: list[Annotation] = []
    moved: list[Annotation] = []
    first = n_merged = 0
    for label, *spans in mentions:
        own = slice(first, first + len(spans))
        first += len(spans)
        joined = join_touching(offsets[own].tolist())
        # A part would be another mention than the one annotated.
        is_lost = not aligned[own].all()
        if not is_lost:
            n_merged += (label, *joined) in kept
            kept.add((label, *joined))
        if is_lost or not exact[own].all() or len(joined) < len(spans):
            annotation = annotation_of(example.reference, spans, names[label])
            (misaligned if is_lost else moved).append(annotation)
    return GoldMentions(*_lay_out(kept), misaligned, moved, n_merged)


def gold_spans(example: Example, key: str, label_ids: Mapping[str, int]) -> GoldSpans:
    """Read `example.reference.spans[key]` onto the tokens of `example.predicted`, or, for the key
    `ENTITIES`, its entities.

    Nested and overlapping spans are kept. A missing key means that the document is not annotated
    and gives no span.

    key (str): The spans key of the reference.
    label_ids (Mapping): The index of each label.
    RETURNS (GoldSpans): Empty arrays for a document without spans.
    RAISES (SpansError): When a span has a label that is not among `label_ids`.
    """
    spans = np.unique(_label_rows(example, key, label_ids), axis=0)
    offsets, aligned, _ = _align_filled(example, spans[:, :2], "strict")
    names = list(label_ids)
    misaligned = [
        annotation_of(example.reference, [(start, end)], names[label])
        for start, end, label in spans[~aligned].tolist()
    ]
    return GoldSpans(offsets[aligned], spans[aligned, 2], misaligned)


def gold_ranges(example: Example, keys: Sequence[str]) -> IntArray:
    """Where on the tokens of `example.predicted` there are gold spans, whatever their label.

    Fragments of a mention count one by one. Tokens that a span covers in part count whole.

    keys (Sequence[str]): Keys of the reference's spans; a missing one gives none. `ENTITIES`
        stands for its entities.
    RETURNS (ndarray): Half-open offsets, each once, in order. Shape (n, 2), int32.
    """
    found = [np.zeros((0, 2), dtype="i")]
    for key in keys:
        if key == ENTITIES:
            entities = [(span.start, span.end) for span in example.reference.ents]
            offsets = np.asarray(entities, dtype="i").reshape(-1, 2)
            moved, aligned, _ = _align(example, offsets, "expand")
            found.append(moved[aligned])
            continue
        labels = {span.label_: 0 for span in example.reference.spans.get(key, ())}
        found.append(gold_mentions(example, key, labels, "expand").offsets)
    return np.unique(np.concatenate(found), axis=0)


def is_annotated(example: Example, keys: Sequence[str]) -> bool:
    """Whether the reference has any of the keys, as of `gold_ranges`."""
    return any(is_annotated_for(example.reference, key) for key in keys)


def annotation_of(doc: Doc, spans: Sequence[Sequence[int]], label: str) -> Annotation:
    """spans (Sequence): Fragments in tokens, ordered by start; some may overlap."""
    fragments = [doc[start:end] for start, end in spans]
    text = " … ".join(span.text for span in fragments)
    end = max(span.end_char for span in fragments)
    return Annotation(text, label, fragments[0].start_char, end)


def join_gold(gold: Sequence[GoldSpans], doc_lengths: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Gold of documents laid end to end: offsets (n, 2) into all their tokens, and labels (n,)."""
    counts = [len(spans.offsets) for spans in gold]
    offsets = np.concatenate([np.zeros((0, 2), "i"), *(spans.offsets for spans in gold)])
    labels = np.concatenate([np.zeros(0, "i"), *(spans.labels for spans in gold)])
    return batch_offsets(offsets, counts, doc_lengths), labels


def join_touching(spans: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Join what touches or overlaps, of spans ordered by start."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            start, end = joined[-1][0], max(end, joined.pop()[1])
        joined.append((start, end))
    return joined


def count_keys(examples: Sequence[Example]) -> dict[str, int]:
    """How many reference documents hold each spans key."""
    counts: dict[str, int] = {}
    for example in examples:
        for key in example.reference.spans:
            counts[key] = counts.get(key, 0) + 1
    return counts


def _label_rows(example: Example, key: str, label_ids: Mapping[str, int]) -> IntArray:
    """Start, end and label index of each span of the reference's group. Shape (n, 3)."""
    rows = []
    for span in spans_of(example.reference, key):
        if span.label_ not in label_ids:
            raise SpansError(
                f"The training data has a span {span.text!r} labelled {span.label_!r} in "
                f"{key!r}, but the component knows only {sorted(label_ids)}. Add the label to "
                "the labels file (`spacy init labels` writes one), or call add_label before "
                "initialize."
            )
        rows.append((span.start, span.end, label_ids[span.label_]))
    return np.asarray(rows, dtype="i").reshape(-1, 3)


def _annotated_mentions(
    example: Example, key: str, label_ids: Mapping[str, int]
) -> list[tuple[Any, ...]]:
    """Label and fragments of each mention on the reference's tokens, each once, by their place."""
    rows = _label_rows(example, key, label_ids)
    group = example.reference.spans.get(key, ())
    parts: dict[Any, list[tuple[int, int]]] = {}
    for i, (span, (start, end, label)) in enumerate(zip(group, rows.tolist(), strict=True)):
        # By number: other components may set ids that the vocabulary does not know.
        mention = ("id", span.id) if span.id else ("row", i)
        parts.setdefault((label, mention), []).append((start, end))
    found = {(label, *sorted({*spans})) for (label, _), spans in parts.items()}
    return sorted(found, key=lambda mention: (mention[1], mention))


def _align_filled(example: Example, spans: IntArray, mode: str) -> Aligned:
    """As `_align`, where spans may hold no token at all: nothing to point at, nothing to learn."""
    filled = spans[:, 1] > spans[:, 0]
    offsets = np.zeros_like(spans)
    aligned, exact = (np.zeros(len(spans), dtype=bool) for _ in range(2))
    offsets[filled], aligned[filled], exact[filled] = _align(example, spans[filled], mode)
    return offsets, aligned, exact


def _lay_out(mentions: Iterable[Any]) -> tuple[IntArray, IntArray, IntArray]:
    """Offsets, label and mention of each fragment, of labels with fragments in any order."""
    in_order = sorted(mentions, key=lambda mention: (mention[1], mention))
    table = np.asarray(
        [
            (start, end, label, number)
            for number, (label, *spans) in enumerate(in_order)
            for start, end in spans
        ],
        dtype="i",
    ).reshape(-1, 4)
    return table[:, :2], table[:, 2], table[:, 3]


def _align(example: Example, offsets: IntArray, mode: str) -> Aligned:
    """Map reference offsets to predicted ones, with masks of those that map, and map exactly."""
    if len(offsets) == 0 or _same_tokens(example):
        every = np.ones(len(offsets), dtype=bool)
        return offsets, every, every
    to_predicted, to_reference = example.alignment.y2x, example.alignment.x2y
    first_pred, last_pred, n_pred = _token_ranges(to_predicted)
    first_ref, last_ref, n_ref = _token_ranges(to_reference)
    starts, lasts = offsets[:, 0], offsets[:, 1] - 1
    if mode == "strict":
        found = (n_pred[starts] > 0) & (n_pred[lasts] > 0)
    else:
        # What has no token there, such as a blank of its own, is no reason to lose the words.
        starts, lasts, found = _without_unaligned_ends(starts, lasts, n_pred)
    new_starts = np.where(found, first_pred[starts], 0)
    new_lasts = np.where(found, last_pred[lasts], 0)
    found &= (n_ref[new_starts] > 0) & (n_ref[new_lasts] > 0)
    # Exact only if the predicted boundary tokens reach no further than the reference ones.
    starts_fit = first_ref[new_starts] == starts
    lasts_fit = last_ref[new_lasts] == lasts
    exact = found & starts_fit & lasts_fit & (starts == offsets[:, 0])
    exact &= lasts == offsets[:, 1] - 1
    if mode == "contract":
        new_starts = new_starts + ~starts_fit
        new_lasts = new_lasts - ~lasts_fit
    aligned = exact if mode == "strict" else found & (new_starts <= new_lasts)
    return np.stack([new_starts, new_lasts + 1], axis=1).astype("i"), aligned, exact


def _without_unaligned_ends(
    starts: IntArray, lasts: IntArray, n_aligned: np.ndarray
) -> tuple[IntArray, IntArray, np.ndarray]:
    """Move first and last tokens inwards to aligned ones, with a mask of spans that hold any."""
    aligned = np.flatnonzero(n_aligned > 0)
    first = np.searchsorted(aligned, starts)
    after = np.searchsorted(aligned, lasts, side="right")
    found = first < after
    # One more, for spans that hold none and begin behind the last.
    aligned = np.append(aligned, 0)
    return (
        np.where(found, aligned[first], starts),
        np.where(found, aligned[after - 1], lasts),
        found,
    )


def _same_tokens(example: Example) -> bool:
    predicted, reference = example.predicted, example.reference
    return len(predicted) == len(reference) and bool(
        np.array_equal(predicted.to_array("ORTH"), reference.to_array("ORTH"))
    )


def _token_ranges(alignment) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First and last aligned token and number of aligned tokens, for each token."""
    lengths = np.asarray(alignment.lengths)
    data = np.append(np.asarray(alignment.data), 0)
    ends = np.cumsum(lengths)
    last_row = np.minimum(np.maximum(ends - 1, 0), len(data) - 1)
    first_row = np.minimum(ends - lengths, len(data) - 1)
    return data[first_row], data[last_row], lengths
