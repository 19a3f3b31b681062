"""Registered scorers: metrics over `doc.spans[key]`, reported as `spans_{key}_...`."""

from collections.abc import Callable, Iterable
from typing import Any

from spacy.scorer import Scorer
from spacy.training import Example

from spacy_spans.metrics import (
    calibration_scores,
    character_scores,
    mention_scores,
    overlap_scores,
)


def make_spans_scorer_v1() -> Callable:
    """Make the scorer of the components of this package; see `score_spans`."""
    return score_spans


def score_spans(examples: Iterable[Example], *, spans_key: str, **kwargs: Any) -> dict[str, Any]:
    """Score `doc.spans[spans_key]` of predicted against reference documents.

    Counted as spaCy counts for `spancat`: reference documents without the key are not annotated
    and count neither way, equal spans of one document count once, and with no span on either side
    every score but `_char_f` is None.

    Where the two documents have different tokens, a gold span that starts or ends inside a
    predicted token counts as missed everywhere but in `_char_f`. A predicted one that starts or
    ends inside a gold token is left out of the strict scores, as spaCy does, and of `_mention_*`
    if that is true of all its fragments.

    spans_key (str): The key to compare.
    RETURNS (Dict[str, Any]): Each name after `spans_{key}`; all is ready for JSON.
        `_p|_r|_f`, `_per_type`: strict, boundaries and label equal.
        `_boundary_f`: the same without labels, spans of equal offsets counted once.
        `_partial_p|_r|_f`, `_partial_per_type`: overlap counts. Each span takes the Dice
        coefficient, twice the shared tokens over the sum of both lengths, of its best partner of
        the same label on the other side, the first of equally good ones. One partner gives at most
        1 in total, and all of it to an equal span: precision is the sum of what gold spans give to
        predictions over the number of predictions, recall the sum of what predictions give to gold
        spans over the number of gold spans. So one gold span found as two halves of the same
        length has a precision of 0.5 and a recall of 2/3.
        `_char_f`, `_char_f_per_type`: the mean over documents of the F1 of characters inside of
        spans, as in SemEval-2021 Task 5; labels are ignored, or each taken for itself in all
        documents. A document counts 1 without any on both sides, and 0 without on one. Where
        `spacy spans convert` stored the annotated characters, because tokens cannot hold
        them, those are gold.
        `_mention_p|_r|_f`: mentions of one fragment or more (see `spacy_spans.fragments`) whose
        label and fragments are all equal; fragments that touch are one. `_discontinuous_p|_r|_f`:
        the same of those of several fragments only; None without any. All other scores take
        fragments for spans.
    """
    examples = list(examples)
    attr = f"spans_{spans_key}"
    common: dict[str, Any] = {
        "attr": attr,
        "getter": lambda doc, _: doc.spans.get(spans_key, []),
        "has_annotation": lambda doc: spans_key in doc.spans,
        "allow_overlap": True,
    }
    scores: dict[str, Any] = Scorer.score_spans(examples, labeled=True, **common)
    unlabelled = Scorer.score_spans(examples, labeled=False, **common)
    scores[f"{attr}_boundary_f"] = unlabelled[f"{attr}_f"]
    annotated = [example for example in examples if spans_key in example.reference.spans]
    for count in (overlap_scores, character_scores, mention_scores, calibration_scores):
        scores |= {f"{attr}_{name}": score for name, score in count(annotated, spans_key).items()}
    return scores
