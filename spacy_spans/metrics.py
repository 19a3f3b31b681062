"""What the scorer counts beside spaCy's own scores: overlap, characters, and whole mentions.

All functions take examples whose reference has the key; what they count adds up over documents.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_spans.alignment import gold_spans, join_touching
from spacy_spans.converters.align import join_over_white_space
from spacy_spans.groups import fragments
from spacy_spans.kernels.calibration import calibration_error
from spacy_spans.kernels.coverage import count_covered
from spacy_spans.kernels.overlaps import Ints, share_credit
from spacy_spans.keys import CHARACTERS_KEY

Offsets: TypeAlias = tuple[int, int]
Scores: TypeAlias = dict[str, Any]
# None: a fragment with no counterpart in the reference.
Mention: TypeAlias = tuple[str, tuple[Offsets | None, ...]]


class StrictSpans(NamedTuple):
    """Distinct spans of one example on the tokens of its reference.

    predicted, gold (set): Label, start and end of each.
    left_out (int): Predicted spans that these tokens cannot hold, or that hold none themselves.
    misaligned (int): Gold spans that the predicted tokens cannot hold.
    """

    predicted: set[tuple[str, Offsets]]
    gold: set[tuple[str, Offsets]]
    left_out: int
    misaligned: int


def strict_spans(example: Example, key: str) -> StrictSpans:
    """Read what spaCy's strict scores compare; spans that are in both sets are right."""
    spans = _group(example.predicted, key)
    offsets = on_reference(example, spans)
    found = {
        (span.label_, tokens)
        for span, tokens in zip(spans, offsets, strict=True)
        if tokens is not None
    }
    wanted = {(span.label_, (span.start, span.end)) for span in _group(example.reference, key)}
    label_ids = {label: i for i, label in enumerate(_labels(example, key))}
    misaligned = len(gold_spans(example, key, label_ids).misaligned)
    return StrictSpans(found, wanted, offsets.count(None), misaligned)


class JudgedSpans(NamedTuple):
    """Predicted spans of one example, without those that strict scores leave out.

    labels (list): Of each span.
    offsets (ndarray): On the predicted tokens. Shape (n, 2).
    scores (ndarray): Of each span. Shape (n,), float32.
    right (ndarray): Whether gold has a span of these offsets and label. Shape (n,), bool.
    """

    labels: list[str]
    offsets: np.ndarray
    scores: np.ndarray
    right: np.ndarray


def judge_spans(example: Example, key: str) -> JudgedSpans | None:
    """Tell right from wrong among predicted spans with scores; None where a group has none."""
    spans = _group(example.predicted, key)
    scores = example.predicted.spans[key].attrs.get("scores") if spans else []
    if scores is None or len(scores) != len(spans):
        return None
    gold = {(span.label_, (span.start, span.end)) for span in _group(example.reference, key)}
    rows = [
        (span, score, (span.label_, tokens) in gold)
        for span, score, tokens in zip(spans, scores, on_reference(example, spans), strict=True)
        if tokens is not None
    ]
    return JudgedSpans(
        [span.label_ for span, _, _ in rows],
        np.asarray([(span.start, span.end) for span, _, _ in rows], dtype="i").reshape(-1, 2),
        np.asarray([score for _, score, _ in rows], dtype="f"),
        np.asarray([right for _, _, right in rows], dtype=bool),
    )


def calibration_scores(examples: Iterable[Example], key: str) -> Scores:
    """Score `ece`; see `score_spans`."""
    judged = [own for example in examples if (own := judge_spans(example, key)) is not None]
    if not judged:
        return {"ece": None}
    scores, right = (np.concatenate(parts) for parts in list(zip(*judged, strict=True))[2:])
    return {"ece": calibration_error(scores, right)}


def precision_recall_f(
    found: float, n_predicted: int, reached: float, n_gold: int
) -> dict[str, float] | None:
    """Precision, recall and F1 as p, r and f; None without predictions and without gold.

    found (float): What the predictions got right, of `n_predicted`.
    reached (float): What of the gold was predicted, of `n_gold`.
    """
    if not n_predicted and not n_gold:
        return None
    p = found / n_predicted if n_predicted else 0.0
    r = reached / n_gold if n_gold else 0.0
    return {"p": p, "r": r, "f": 2 * p * r / (p + r) if p + r else 0.0}


def named(prefix: str, scores: dict[str, float] | None) -> Scores:
    """The three scores with a prefix, each None when there are none."""
    return {f"{prefix}_{name}": scores and scores[name] for name in "prf"}


def overlap_scores(examples: Iterable[Example], key: str) -> Scores:
    """Scores `partial_p|r|f` and `partial_per_type`, which credit overlap; see `score_spans`."""
    counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(4))
    for example in examples:
        labels = _labels(example, key)
        for label, row in zip(labels, _count_overlap(example, key, labels), strict=True):
            counts[label] += row
    total = sum(counts.values(), np.zeros(4))
    per_type = {label: precision_recall_f(*row.tolist()) for label, row in sorted(counts.items())}
    return {
        **named("partial", precision_recall_f(*total.tolist())),
        "partial_per_type": per_type or None,
    }


def character_scores(examples: Iterable[Example], key: str) -> Scores:
    """Scores `char_f` and `char_f_per_type`, means over documents; see `score_spans`."""
    total, n_docs = 0.0, 0
    lacking: dict[str, float] = defaultdict(float)
    for example in examples:
        score, per_type = character_f(example, key)
        total += score
        n_docs += 1
        for label, value in per_type.items():
            lacking[label] += 1 - value
    # A document that has a label on neither side counts 1: nothing is lacking there.
    means = {label: 1 - value / n_docs for label, value in sorted(lacking.items())}
    return {"char_f": total / n_docs if n_docs else None, "char_f_per_type": means or None}


def character_f(example: Example, key: str) -> tuple[float, dict[str, float]]:
    """F1 of the characters inside of spans, labels ignored, and for each label in use.

    RETURNS (tuple): Numbers from 0 to 1. Without characters on both sides: 1, on one side: 0.
    """
    predicted, gold = _read_characters(example.predicted, key), _gold_characters(example, key)
    if example.predicted.text != example.reference.text:
        predicted = _without_space(predicted, example.predicted.text)
        gold = _without_space(gold, example.reference.text)
    none = np.zeros((0, 2), dtype=np.int64)
    per_type = {
        label: _interval_f(predicted.get(label, none), gold.get(label, none))
        for label in {**predicted, **gold}
    }
    return _interval_f(_join(predicted), _join(gold)), per_type


def mention_scores(examples: Iterable[Example], key: str) -> Scores:
    """Scores `mention_p|r|f` and `discontinuous_p|r|f` of whole mentions; see `score_spans`."""
    counts = {"mention": np.zeros(3, dtype=int), "discontinuous": np.zeros(3, dtype=int)}
    for example in examples:
        predicted, gold = _read_mentions(example, key)
        for name, least in (("mention", 1), ("discontinuous", 2)):
            mine = {mention for mention in predicted if len(mention[1]) >= least}
            wanted = {mention for mention in gold if len(mention[1]) >= least}
            counts[name] += len(mine & wanted), len(mine), len(wanted)
    scores: Scores = {}
    for name, row in counts.items():
        right, n_predicted, n_gold = row.tolist()
        scores |= named(name, precision_recall_f(right, n_predicted, right, n_gold))
    return scores


def on_reference(example: Example, spans: Sequence[Span]) -> list[Offsets | None]:
    """Map spans of the predicted document to the tokens of the reference, as spaCy's scorer does.

    spans (Sequence[Span]): Spans of `example.predicted`.
    RETURNS (list): Start and end for each span; None for those that hold no token, or start or end
        inside a token of the reference. spaCy leaves these out and counts them neither way.
    """
    to_reference = example.alignment.x2y
    found: list[Offsets | None] = []
    for span in spans:
        tokens = to_reference[span.start : span.end]
        start, end = (int(tokens[0]), int(tokens[-1]) + 1) if len(tokens) else (0, 0)
        same = len(tokens) > 0 and _bare(example.reference[start:end]) == _bare(span)
        found.append((start, end) if same else None)
    return found


def _group(doc: Doc, key: str) -> Sequence[Span]:
    return list(doc.spans[key]) if key in doc.spans else []


def _labels(example: Example, key: str) -> list[str]:
    docs = (example.predicted, example.reference)
    return sorted({span.label_ for doc in docs for span in _group(doc, key)})


def _count_overlap(example: Example, key: str, labels: Sequence[str]) -> np.ndarray:
    """Credit and number of predictions, credit and number of gold spans. Shape (n_labels, 4)."""
    label_ids = {label: i for i, label in enumerate(labels)}
    gold = gold_spans(example, key, label_ids)
    wanted = np.column_stack((gold.offsets, gold.labels)).astype(np.int64)
    rows = [
        (span.start, span.end, label_ids[span.label_])
        for span in _group(example.predicted, key)
        if span.end > span.start
    ]
    found = np.unique(np.asarray(rows, dtype=np.int64).reshape(-1, 3), axis=0)
    misaligned = np.asarray([label_ids[own.label] for own in gold.misaligned], dtype=np.int64)

    def per_label(ids: Ints, weights: np.ndarray | None = None) -> np.ndarray:
        return np.bincount(ids, weights, minlength=len(labels))

    return np.column_stack(
        (
            per_label(wanted[:, 2], share_credit(found, wanted)),
            per_label(found[:, 2]),
            per_label(found[:, 2], share_credit(wanted, found)),
            per_label(wanted[:, 2]) + per_label(misaligned),
        )
    )


def _read_characters(doc: Doc, key: str) -> dict[str, Ints]:
    """Characters of the spans of each label. Shapes (n, 2)."""
    return _by_label(
        (span.label_, span.start_char, span.end_char)
        for span in _group(doc, key)
        if span.end > span.start
    )


def _gold_characters(example: Example, key: str) -> dict[str, Ints]:
    """As annotated, where tokens could not hold all of it; else those of the gold spans. What white
    space parts is one stretch of text either way.
    """
    original = example.reference.user_data.get(CHARACTERS_KEY, {}).get(key)
    if original is None:
        return _read_characters(example.reference, key)
    # spaCy joins tokens each time it is asked for the text.
    text = example.reference.text
    return _by_label(
        (label, *offsets)
        for label, parts in original
        for offsets in join_over_white_space(parts, text)
    )


def _by_label(rows: Iterable[tuple[str, int, int]]) -> dict[str, Ints]:
    offsets: dict[str, list[tuple[int, int]]] = {}
    for label, start, end in rows:
        offsets.setdefault(label, []).append((start, end))
    return {label: np.asarray(found, dtype=np.int64) for label, found in offsets.items()}


def _without_space(offsets: Mapping[str, Ints], text: str) -> dict[str, Ints]:
    """Offsets in the text without its white space: in nothing else may two documents differ."""
    before = np.cumsum([0, *(not character.isspace() for character in text)])
    return {label: before[found] for label, found in offsets.items()}


def _join(offsets: Mapping[str, Ints]) -> Ints:
    return np.concatenate([np.zeros((0, 2), dtype=np.int64), *offsets.values()])


def _interval_f(a: Ints, b: Ints) -> float:
    """F1 of what two sets of intervals cover. Shapes (n, 2) and (m, 2)."""
    in_a, in_b, in_any = (count_covered(*x.T) for x in (a, b, np.concatenate((a, b))))
    return 2 * (in_a + in_b - in_any) / (in_a + in_b) if in_a + in_b else 1.0


def _read_mentions(example: Example, key: str) -> tuple[set[Mention], set[Mention]]:
    """Predicted and gold mentions, both on the tokens of the reference. Fragments that touch are
    one, as they are in training.
    """
    wanted: set[Mention] = {
        (mention[0].label_, tuple(join_touching([(span.start, span.end) for span in mention])))
        for mention in fragments(example.reference, key)
    }
    found: set[Mention] = set()
    mentions = fragments(example.predicted, key) if key in example.predicted.spans else []
    offsets = iter(on_reference(example, [span for mention in mentions for span in mention]))
    for mention in mentions:
        parts = [next(offsets) for _ in mention]
        inside = [part for part in parts if part is not None]
        if inside:
            outside = [None] * (len(parts) - len(inside))
            found.add((mention[0].label_, (*join_touching(inside), *outside)))
    return found, wanted


def _bare(span: Span) -> str:
    return span.text.lower().strip().replace(" ", "")
