"""Score a pipeline's `doc.spans` against gold: by key, by label, and document by document.

`evaluate` turns a pipeline and documents into a report of plain numbers, `format_report` shows it.
Any pipeline will do, also one of stock components.
"""

from collections import Counter
from collections.abc import Sequence
from timeit import default_timer
from typing import Any, Literal, TypeAlias

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from tqdm import tqdm
from wasabi.tables import table

from spacy_spans.errors import DataError, SettingsError
from spacy_spans.groups import count_spans
from spacy_spans.keys import percent, printable
from spacy_spans.metrics import character_f, strict_spans
from spacy_spans.pipelines import predict
from spacy_spans.scorers import score_spans

Report: TypeAlias = dict[str, Any]

# Characters of a document that the report shows.
TEXT_LENGTH = 60


def evaluate(
    nlp: Language,
    gold: Sequence[Doc],
    *,
    spans_keys: Sequence[str] = (),
    batch_size: int | None = None,
    progress: bool = False,
) -> Report:
    """Run a pipeline on gold documents and score what it writes to `doc.spans`.

    nlp (Language): The pipeline; it tokenizes the texts itself.
    gold (Sequence[Doc]): Documents with spans.
    spans_keys (Sequence[str]): Keys to look at; none for all, gold and predicted.
    batch_size (int | None): Documents in a batch; None for the pipeline's own.
    progress (bool): Show a progress bar when standard error is a terminal.
    RETURNS (Report): Plain data, ready for JSON. "documents", "words", "seconds" and
        "words_per_second". "keys": for each the counts of "gold" and "predicted" spans, None where
        no document has the key; where both have it also "scores", those of `score_spans` and of
        the component without the prefix, the counts of "spans" and "labels". "docs": for each
        document its index, the beginning of its text, and counts by key.
    RAISES (DataError): The data has no documents or no spans, a key is in neither, or no key is in
        both.
    RAISES (SettingsError): batch_size is below 1.
    """
    if batch_size is not None and batch_size < 1:
        raise SettingsError(f"Got batch_size = {batch_size}, expected 1 or more")
    _check_gold(gold)
    start = default_timer()
    docs = predict(nlp, gold, batch_size=batch_size)
    silent = None if progress else True
    predicted = list(tqdm(docs, total=len(gold), unit=" docs", leave=False, disable=silent))
    seconds = default_timer() - start
    n_words = sum(map(len, predicted))
    keys = _count_keys(gold, predicted, spans_keys)
    rows: list[Report] = [
        {"index": i, "text": _begin(doc.text), "keys": {}} for i, doc in enumerate(gold)
    ]
    for key, found in keys.items():
        if found["gold"] and found["predicted"]:
            examples = [Example(*pair) for pair in zip(predicted, gold, strict=True)]
            found |= _compare(nlp, examples, key, rows)
    return {
        "documents": len(gold),
        "words": n_words,
        "seconds": seconds,
        "words_per_second": n_words / seconds if seconds else None,
        "keys": keys,
        "docs": rows,
    }


def find_worst(report: Report, n: int) -> list[Report]:
    """The documents with the most spans missed and spurious, over all keys: at most n, none without
    any. Equally bad ones stay in the order of the data.
    """
    faulty = [row for row in report["docs"] if _count_errors(row)]
    return sorted(faulty, key=_count_errors, reverse=True)[:n]


def format_report(report: Report, *, worst: int = 5) -> str:
    """Write a report as tables for people.

    report (Report): From `evaluate`.
    worst (int): Most documents to list, those with the most errors.
    RETURNS (str): Several lines, without a line break at the end.
    """
    parts = []
    for key, found in report["keys"].items():
        parts.append(_format_counts(key, found))
        if "scores" in found:
            parts.append(_format_scores(found["scores"]))
            if found["labels"]:
                parts.append(_format_labels(found["labels"]))
    if documents := find_worst(report, worst):
        parts.append(_format_worst(documents))
    speed = report["words_per_second"]
    parts.append(
        f"{report['documents']:,} documents, {report['words']:,} words in "
        f"{report['seconds']:.1f} s: {'-' if speed is None else f'{speed:,.0f}'} words/s"
    )
    return "\n\n".join(parts)


def _check_gold(gold: Sequence[Doc]) -> None:
    if not gold:
        raise DataError("The data has no documents, expected one or more")
    if not any(doc.spans for doc in gold):
        raise DataError(
            f"None of the {len(gold):,} documents of the data has a group in doc.spans, so that "
            "there is nothing to compare with. Convert annotations with `python -m spacy spans "
            "convert`"
        )


def _count_keys(
    gold: Sequence[Doc], predicted: Sequence[Doc], asked: Sequence[str]
) -> dict[str, Report]:
    """Counts of each key on both sides, or an error when there is nothing to compare."""
    wanted, found = count_spans(gold), count_spans(predicted)
    there = sorted({*wanted, *found})
    lists = f"The data has {_list(wanted)}, the pipeline writes {_list(found)}."
    missing = [key for key in asked if key not in there]
    if missing:
        raise DataError(f"There is no doc.spans[{missing[0]!r}]. {lists}")
    keys = list(dict.fromkeys(asked)) or there
    if not any(key in wanted and key in found for key in keys):
        asked_for = "these keys" if asked else "keys"
        raise DataError(
            f"None of {asked_for} is in both, so that nothing can be compared. {lists} Set the "
            "spans_key of a component, or convert with `--spans-key`"
        )
    return {key: {"gold": wanted.get(key), "predicted": found.get(key)} for key in keys}


def _list(counts: dict[str, Report]) -> str:
    each = (
        f"{key!r} ({found['spans']:,} spans in {found['documents']:,} documents)"
        for key, found in counts.items()
    )
    return ", ".join(each) or "no keys"


def _compare(nlp: Language, examples: list[Example], key: str, rows: list[Report]) -> Report:
    """Scores and counts of one key; adds counts to the rows of annotated documents."""
    total: Counter[str] = Counter()
    labels: dict[str, Counter[str]] = {}
    for example, row in zip(examples, rows, strict=True):
        if key not in example.reference.spans:
            continue
        strict = strict_spans(example, key)
        counts = _count(strict.predicted, strict.gold)
        counts |= {"misaligned": strict.misaligned, "left_out": strict.left_out}
        n_spans = len(example.reference.spans[key]) + len(example.predicted.spans.get(key, ()))
        equal = n_spans - len(strict.gold) - len(strict.predicted) - strict.left_out
        total.update({**counts, "equal": equal})
        row["keys"][key] = {**counts, "char_f": character_f(example, key)[0]}
        for label in {label for label, _ in strict.predicted | strict.gold}:
            mine = ({span for span in spans if span[0] == label} for spans in strict[:2])
            labels.setdefault(label, Counter()).update(_count(*mine))
    scores = _score(nlp, examples, key)
    by_label = {
        label: {
            **scores["per_type"][label],
            **counts,
            "partial_f": (scores["partial_per_type"] or {}).get(label, {}).get("f"),
            "char_f": (scores["char_f_per_type"] or {}).get(label),
        }
        for label, counts in sorted(labels.items())
    }
    return {"scores": scores, "spans": dict(total), "labels": by_label}


def _count(predicted: set[Any], gold: set[Any]) -> dict[str, int]:
    right = len(predicted & gold)
    return {
        "gold": len(gold),
        "predicted": len(predicted),
        "right": right,
        "missed": len(gold) - right,
        "spurious": len(predicted) - right,
    }


def _score(nlp: Language, examples: list[Example], key: str) -> Report:
    """All scores of a key without the prefix, and the numbers that its components add."""
    prefix = f"spans_{key}_"
    own = score_spans(examples, spans_key=key)
    if own[f"{prefix}per_type"]:
        # spaCy's order differs from run to run.
        own[f"{prefix}per_type"] = dict(sorted(own[f"{prefix}per_type"].items()))
    added: Report = {}
    for _, pipe in nlp.pipeline:
        if getattr(pipe, "key", None) == key and hasattr(pipe, "score"):
            added |= pipe.score(examples)
    numbers = {
        name: None if value is None else float(value)
        for name, value in added.items()
        if name.startswith(prefix) and not isinstance(value, dict)
    }
    return {name.removeprefix(prefix): value for name, value in {**numbers, **own}.items()}


def _begin(text: str) -> str:
    """The first words of a text, on one line."""
    # A document may be long; white space is folded.
    text = " ".join(text[: 4 * TEXT_LENGTH].split())
    return text if len(text) <= TEXT_LENGTH else f"{text[: TEXT_LENGTH - 3]}..."


def _count_errors(row: Report) -> int:
    return sum(counts["missed"] + counts["spurious"] for counts in row["keys"].values())


def _format_counts(key: str, found: Report) -> str:
    wanted, predicted = (
        found[side] and f"{found[side]['spans']:,} {name} in {found[side]['documents']:,} documents"
        for side, name in (("gold", "gold spans"), ("predicted", "predicted"))
    )
    if predicted is None:
        text = f"{wanted}, but the pipeline does not write this key: not compared"
    elif wanted is None:
        text = f"{predicted}, but the data does not have this key: not compared"
    else:
        text = f"{wanted}, {predicted}"
    lines = [printable(f"doc.spans[{key!r}]: {text}")]
    counts = found.get("spans", {})
    if counts.get("misaligned"):
        lines.append(
            f"{counts['misaligned']:,} gold spans start or end inside of the pipeline's tokens: "
            "they count as missed"
        )
    if counts.get("left_out"):
        lines.append(
            f"{counts['left_out']:,} predicted spans hold no token, or start or end inside of the "
            "data's tokens: the strict scores leave them out, as spaCy does"
        )
    if counts.get("equal"):
        lines.append(
            f"{counts['equal']:,} spans are equal to others, as fragments that mentions share: "
            "they count once"
        )
    return "\n".join(lines)


def _format_scores(scores: Report) -> str:
    rows = [
        ("Strict", *(scores[name] for name in "prf")),
        ("Boundaries, any label", None, None, scores["boundary_f"]),
        ("Overlap", *(scores[f"partial_{name}"] for name in "prf")),
        ("Characters, any label", None, None, scores["char_f"]),
        ("Mentions", *(scores[f"mention_{name}"] for name in "prf")),
        ("Discontinuous mentions", *(scores[f"discontinuous_{name}"] for name in "prf")),
    ]
    if "candidate_recall" in scores:
        rows.append(("Candidates", None, scores["candidate_recall"], None))
    text = _table(["Scores", "P", "R", "F"], [(name, *map(percent, row)) for name, *row in rows])
    if scores["ece"] is None:
        return text
    return f"{text}\n\nCalibration error of the spans' scores: {percent(scores['ece'])} %"


def _format_labels(labels: Report) -> str:
    header = ["Label", "P", "R", "F", "Gold", "Predicted", "Right", "Overlap F", "Char F"]
    rows = [
        (
            printable(label),
            *(percent(found[name]) for name in "prf"),
            *(f"{found[name]:,}" for name in ("gold", "predicted", "right")),
            *(percent(found[name]) for name in ("partial_f", "char_f")),
        )
        for label, found in labels.items()
    ]
    return _table(header, rows)


def _format_worst(documents: list[Report]) -> str:
    rows = []
    for row in documents:
        missed, spurious = (
            sum(counts[name] for counts in row["keys"].values()) for name in ("missed", "spurious")
        )
        rows.append((f"{row['index']} {printable(row['text'])}", f"{missed:,}", f"{spurious:,}"))
    return _table(["Document (from 0) with the most errors", "Missed", "Spurious"], rows)


def _table(header: list[str], rows: Sequence[Sequence[str]]) -> str:
    right: list[Literal["r", "c", "l"]] = ["r"] * (len(header) - 1)
    return table(rows, header=header, divider=True, aligns=["l", *right], max_col=100).strip("\n")
