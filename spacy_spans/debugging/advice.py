"""Which component suits the training data, with what settings and cost."""

from collections.abc import Sequence

from spacy.tokens import Doc

from spacy_spans.coverage import measure_coverage
from spacy_spans.debugging.findings import Section

# From these on a tagger is worth its while; see the README, "Which component".
LONG_MEAN = 6.0
FEW_OVERLAPS = 0.05
# An enumerator finds nearly all spans, whatever their overlaps, at little cost up to this length.
SHORT_LENGTH = 12


def recommend_component(docs: Sequence[Doc], key: str) -> Section:
    """Name a component, its candidates or limits, and what that costs."""
    section = Section(f"Recommendation for {key!r}")
    if not any(len(doc.spans.get(key, ())) for doc in docs):
        section.add("info", "nothing to go by: no training span")
        return section
    report = measure_coverage(docs, key)
    stats, advice = report["all"], report["recommendation"]
    within = max((_overlap_within(docs, key)), 0.0)
    lengths = stats["length"]
    section.add(
        "info",
        f"spans have {lengths['mean']:.1f} tokens on average and {lengths['max']} at most; "
        f"{100 * stats['overlapping']:.1f} % overlap another, {100 * within:.1f} % one of their "
        f"label; {100 * (stats['covered'] or 0):.0f} % of tokens are in spans",
    )
    if within <= FEW_OVERLAPS and lengths["mean"] >= LONG_MEAN:
        section.add(
            "info",
            "multispan_tagger: spans are long and hardly overlap within a label; its cost does not "
            "depend on their length",
        )
    else:
        why = "spans of a label overlap" if within > FEW_OVERLAPS else "spans are short"
        section.add("info", f"span_enumerator: {why}")
    section.add(
        "info",
        f"as candidates of span_enumerator, {advice['candidates']}"
        + (f" with max_length = {advice['max_length']}" if advice["max_length"] else "")
        + f". {advice['reason']}",
    )
    return section


def _overlap_within(docs: Sequence[Doc], key: str) -> float:
    """Share of spans that share a token with one before them that has the same label."""
    n_spans = n_overlapping = 0
    for doc in docs:
        ends: dict[int, int] = {}
        # One pass in order: only the furthest end so far of each label matters.
        for span in sorted(doc.spans.get(key, ()), key=lambda span: (span.start, span.end)):
            n_spans += 1
            n_overlapping += span.start < ends.get(span.label, 0)
            ends[span.label] = max(span.end, ends.get(span.label, 0))
    return n_overlapping / n_spans if n_spans else 0.0
