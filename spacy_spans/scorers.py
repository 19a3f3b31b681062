"""Registered scorers: metrics over `doc.spans[key]`, reported as `spans_{key}_...`."""

from collections.abc import Callable, Iterable
from typing import Any

from spacy.scorer import Scorer
from spacy.training import Example


def make_spans_scorer_v1() -> Callable:
    """Make the scorer of the components of this package; see `score_spans`."""
    return score_spans


def score_spans(examples: Iterable[Example], *, spans_key: str, **kwargs: Any) -> dict[str, Any]:
    """Score `doc.spans[spans_key]` of predicted against reference documents.

    Counted as spaCy counts for `spancat`: reference documents without the key are not annotated
    and count neither way, and with no span on either side every score is None.

    spans_key (str): The key to compare.
    RETURNS (Dict[str, Any]): `spans_{key}_p|r|f` and `_per_type`: strict, boundaries and label
        equal. `_boundary_f`: the same without labels, spans of equal offsets counted once.
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
    return scores
