"""What gold spans look like, which candidates reach them, and what those candidates cost.

`measure_coverage` turns documents into a report of plain numbers, `recommend` reads a setting off
it; `coverage_report` shows it.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from spacy.tokens import Doc

from spacy_spans.errors import DataError
from spacy_spans.kernels import coverage as kernel
from spacy_spans.keys import printable

Report: TypeAlias = dict[str, Any]

# None: as long as the document (or sentence).
MAX_LENGTHS: tuple[int | None, ...] = (4, 8, 12, 16, 24, 32, 64, 128, None)
# Lower ends of the length classes of histograms: 1, 2, 3, 4, 5-8, 9-16, ...
HISTOGRAM_EDGES = (1, 2, 3, 4, 5, 9, 17, 33, 65, 129)
REACH_WANTED = 0.99
# All spans of up to 64 tokens. There the classifier costs about a tenth of a six-layer encoder's
# time and grows in proportion; boundary-pruned candidates cost the same at any length.
MAX_COST = 64_000
# A tagger has no length limit, but cannot give two overlapping spans of one label: it is worth
# naming where spans are long and at most this share overlaps.
LONG_MEAN_LENGTH = 16.0
FEW_OVERLAPS = 0.05


def measure_coverage(
    docs: Iterable[Doc], spans_key: str = "sc", max_cost: int = MAX_COST
) -> Report:
    """Measure the spans under one key: sizes, relations, what candidates reach and cost.

    Relations are counted over all labels of a document. *Overlapping*: shares a token with another
    span. *Nested*: lies within another span or contains one. *Crossing*: shares tokens with another
    span while neither contains the other. Two spans with the same offsets overlap and are nested.

    docs (Iterable[Doc]): Documents; each is looked at once and not kept.
    spans_key (str): Key in doc.spans.
    max_cost (int): What `recommend` may spend, in candidates per 1,000 tokens.
    RETURNS (Report): Plain numbers, ready for JSON: "spans_key", "corpus", "all" (every label
        together), "labels", "cost" (one row per max_length) and "recommendation". Shares of nothing
        are None. No documents, empty ones and ones without spans all give a report.
    RAISES (DataError): There are documents, and none of them has the key.
    """
    counts = _Counts(spans_key)
    for doc in docs:
        counts.add(doc)
    counts.check_key()
    report = counts.report()
    report["recommendation"] = recommend(report, max_cost)
    return report


def recommend(report: Report, max_cost: int = MAX_COST) -> Report:
    """Choose the candidates that reach at least 99 % of the gold spans.

    The shortest max_length of the table that does, if its candidates are affordable; the longest
    gold span, if no length of the table does and listing everything is affordable (short texts);
    else boundary-pruned candidates, which have no length limit. Where those are recommended, spans
    are long and hardly overlap, a tagger is named as the alternative.

    report (Report): From `measure_coverage`.
    max_cost (int): Most candidates per 1,000 tokens.
    RETURNS (Report): "candidates" (registered name or None), "max_length", "reason" and "config".
        Without spans the name is None and the reason says so.
    """
    if report["all"]["spans"] == 0:
        reason = "There are no spans to reach: check the data and the spans key."
        return {"candidates": None, "max_length": None, "reason": reason, "config": ""}
    index, row = next(
        (i, row) for i, row in enumerate(report["cost"]) if row["share"] >= REACH_WANTED
    )
    cost = row["candidates_per_1000"]
    if row["max_length"] is None:
        found = f"Only spans of any length reach {100 * REACH_WANTED:.0f} %"
    else:
        found = f"Up to {row['max_length']} tokens reach {percent(row['share'])} of the spans"
    found += f", with {cost:,.0f} candidates per 1,000 tokens"
    if cost <= max_cost:
        max_length = row["max_length"] or report["all"]["length"]["max"]
        reason = f"{found}, within the {max_cost:,} allowed." + _name_exceptions(report, index)
        return _recommendation("spacy-spans.length_candidates.v1", reason, max_length)
    reason = (
        f"{found}, more than the {max_cost:,} allowed: pair likely starts with likely ends "
        "instead, at any length."
    )
    if _suits_tagger(report["all"]):
        reason += (
            " Spans are long and hardly overlap: `multispan_tagger`, whose cost does not depend on "
            "their length, is worth a try."
        )
    return _recommendation("spacy-spans.boundary_candidates.v1", reason, None)


class _Totals:
    """Running totals of one label, or of all of them."""

    def __init__(self) -> None:
        self.lengths: list[kernel.Ints] = []
        self.overlapping = self.nested = self.crossing = self.covered = 0

    def add(
        self, starts: kernel.Ints, ends: kernel.Ints, relations: tuple[kernel.Bools, ...]
    ) -> None:
        self.lengths.append(ends - starts)
        overlapping, nested, crossing = (int(flags.sum()) for flags in relations)
        self.overlapping += overlapping
        self.nested += nested
        self.crossing += crossing
        self.covered += kernel.count_covered(starts, ends)

    def report(self, n_tokens: int) -> Report:
        lengths = _join(self.lengths)
        n_spans = len(lengths)
        classes = np.searchsorted(HISTOGRAM_EDGES, lengths, side="right") - 1
        histogram = np.bincount(classes, minlength=len(HISTOGRAM_EDGES))
        return {
            "spans": n_spans,
            "length": kernel.summarize_lengths(lengths)
            | {
                "histogram": dict(zip(CLASS_NAMES, histogram.tolist(), strict=True)),
            },
            "overlapping": _share(self.overlapping, n_spans),
            "nested": _share(self.nested, n_spans),
            "crossing": _share(self.crossing, n_spans),
            "covered_tokens": self.covered,
            "covered": _share(self.covered, n_tokens),
            "reach": [_share(_count_within(lengths, n), n_spans) for n in MAX_LENGTHS],
        }


class _Counts:
    """Everything that is counted while documents stream by."""

    def __init__(self, spans_key: str) -> None:
        self.spans_key = spans_key
        self.doc_lengths: list[int] = []
        self.keys: dict[str, dict[str, int]] = {}
        self.docs_without_spans = self.duplicates = self.empty_spans = 0
        self.all = _Totals()
        self.labels: dict[str, _Totals] = {}
        # Whether every document so far has sentence boundaries; their lengths; spans within one.
        self.has_sentences = True
        self.sentence_lengths: list[kernel.Ints] = []
        self.within_sentence: list[kernel.Ints] = []

    def add(self, doc: Doc) -> None:
        self.doc_lengths.append(len(doc))
        for key, group in doc.spans.items():
            found = self.keys.setdefault(key, {"docs": 0, "spans": 0})
            found["docs"] += 1
            found["spans"] += len(group)
        group = doc.spans.get(self.spans_key, ())
        rows = [(span.start, span.end, span.label) for span in group if span.end > span.start]
        self.empty_spans += len(group) - len(rows)
        self.docs_without_spans += not rows
        # Label hashes fill 64 bits without a sign.
        table = np.asarray(rows, dtype=np.uint64).reshape(-1, 3)
        starts, ends = table[:, :2].T.astype(np.int64)
        self._add_sentences(doc, starts, ends)
        if rows:
            self._add_spans(doc, starts, ends, table[:, 2])

    def _add_spans(
        self, doc: Doc, starts: kernel.Ints, ends: kernel.Ints, labels: np.ndarray
    ) -> None:
        relations = (
            kernel.find_overlapping(starts, ends),
            kernel.find_nested(starts, ends),
            kernel.find_crossing(starts, ends),
        )
        values, which = np.unique(labels, return_inverse=True)
        self.duplicates += kernel.count_duplicates(starts, ends, which)
        self.all.add(starts, ends, relations)
        for i, value in enumerate(values.tolist()):
            mine = which == i
            totals = self.labels.setdefault(doc.vocab.strings[value], _Totals())
            totals.add(starts[mine], ends[mine], tuple(flags[mine] for flags in relations))

    def _add_sentences(self, doc: Doc, starts: kernel.Ints, ends: kernel.Ints) -> None:
        self.has_sentences = self.has_sentences and doc.has_annotation("SENT_START")
        if not self.has_sentences or len(doc) == 0:
            return
        flags = doc.to_array("SENT_START") == 1
        flags[0] = True
        (first_tokens,) = np.nonzero(flags)
        self.sentence_lengths.append(np.diff(first_tokens, append=len(doc)))
        across = kernel.find_across(starts, ends, first_tokens)
        self.within_sentence.append((ends - starts)[~across])

    def check_key(self) -> None:
        if not self.doc_lengths or self.spans_key in self.keys:
            return
        found = ", ".join(
            f"{key!r} ({n['spans']:,} spans in {n['docs']:,} documents)"
            for key, n in sorted(self.keys.items())
        )
        raise DataError(
            f"None of the {len(self.doc_lengths):,} documents has doc.spans[{self.spans_key!r}]. "
            + (
                f"Found: {found}. Pass one of these as --spans-key"
                if found
                else "They have no span groups at all: convert the annotations with "
                "`python -m spacy spans convert`"
            )
        )

    def report(self) -> Report:
        n_tokens = sum(self.doc_lengths)
        key_docs = self.keys.get(self.spans_key, {"docs": 0})["docs"]
        everything = self.all.report(n_tokens)
        return {
            "spans_key": self.spans_key,
            "corpus": {
                "docs": len(self.doc_lengths),
                "empty_docs": self.doc_lengths.count(0),
                "docs_without_key": len(self.doc_lengths) - key_docs,
                "docs_without_spans": self.docs_without_spans,
                "tokens": n_tokens,
                "spans": everything["spans"],
                "duplicate_spans": self.duplicates,
                "spans_without_tokens": self.empty_spans,
                "sentences": len(_join(self.sentence_lengths)) if self._knows_sentences() else None,
                "keys": self.keys,
            },
            "all": everything,
            "labels": {
                label: totals.report(n_tokens) for label, totals in sorted(self.labels.items())
            },
            "cost": [self._report_cost(max_length, n_tokens) for max_length in MAX_LENGTHS],
        }

    def _knows_sentences(self) -> bool:
        # Documents of one sentence each would only repeat what is known of documents.
        return self.has_sentences and any(len(lengths) > 1 for lengths in self.sentence_lengths)

    def _report_cost(self, max_length: int | None, n_tokens: int) -> Report:
        lengths = _join(self.all.lengths)
        reached = _count_within(lengths, max_length)
        candidates = kernel.count_candidates(np.asarray(self.doc_lengths, np.int64), max_length)
        row: Report = {
            "max_length": max_length,
            "reached": reached,
            "share": _share(reached, len(lengths)),
            "candidates": candidates,
            "candidates_per_1000": _per_1000(candidates, n_tokens),
        }
        if self._knows_sentences():
            reached = _count_within(_join(self.within_sentence), max_length)
            candidates = kernel.count_candidates(_join(self.sentence_lengths), max_length)
            row["within_sentences"] = {
                "reached": reached,
                "share": _share(reached, len(lengths)),
                "candidates": candidates,
                "candidates_per_1000": _per_1000(candidates, n_tokens),
            }
        return row


def _join(parts: list[kernel.Ints]) -> kernel.Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _count_within(lengths: kernel.Ints, max_length: int | None) -> int:
    return len(lengths) if max_length is None else int((lengths <= max_length).sum())


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _per_1000(candidates: int, n_tokens: int) -> float | None:
    return 1000 * candidates / n_tokens if n_tokens else None


def _suits_tagger(stats: Report) -> bool:
    is_long: bool = stats["length"]["mean"] >= LONG_MEAN_LENGTH
    return is_long and stats["overlapping"] <= FEW_OVERLAPS


def _recommendation(name: str, reason: str, max_length: int | None) -> Report:
    lines = ["[components.span_enumerator.candidates]", f'@misc = "{name}"']
    if max_length is not None:
        lines.append(f"max_length = {max_length}")
    config = "\n".join(lines)
    return {"candidates": name, "max_length": max_length, "reason": reason, "config": config}


def _name_exceptions(report: Report, index: int) -> str:
    """What else to know about row `index` of the cost table before choosing it."""
    text = ""
    short = [
        f"{printable(label)} ({percent(stats['reach'][index])})"
        for label, stats in report["labels"].items()
        if stats["reach"][index] < REACH_WANTED
    ]
    if short:
        text += f" Reached less: {', '.join(short)}."
    row = report["cost"][index]
    inside = row.get("within_sentences", row)
    cheaper = inside["candidates"] < row["candidates"]
    if cheaper and inside["share"] >= REACH_WANTED:
        text += (
            f" With within_sentences = true {percent(inside['share'])} at "
            f"{inside['candidates_per_1000']:,.0f}, if the pipeline sets sentences."
        )
    return text


def percent(share: float | None, digits: int = 1) -> str:
    """Write a share for people; "-" for one of nothing."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def _name_class(i: int) -> str:
    first = HISTOGRAM_EDGES[i]
    if i + 1 == len(HISTOGRAM_EDGES):
        return f"{first}+"
    last = HISTOGRAM_EDGES[i + 1] - 1
    return str(first) if last == first else f"{first}-{last}"


CLASS_NAMES = tuple(_name_class(i) for i in range(len(HISTOGRAM_EDGES)))
