"""Documents that occur twice, and annotations that look like mistakes."""

from collections.abc import Sequence

from spacy.tokens import Doc

from spacy_spans.debugging.findings import Section
from spacy_spans.debugging.gold import Sides
from spacy_spans.groups import is_annotated_for
from spacy_spans.pipeline.gold_report import amount, format_counts, shorten
from spacy_spans.suspicious import (
    MIN_DOCS,
    find_odd_edges,
    find_relabelled,
    find_uneven,
    group_by_text,
    is_contradictory,
)

N_SHOWN = 5


def check_duplicates(sides: Sides, key: str) -> Section:
    """Texts that occur more than once, on one side or on both."""
    section = Section("Duplicated documents")
    seen: dict[str, dict[str, list[Doc]]] = {}
    for side, examples in sides.items():
        docs_of = seen[side] = group_by_text(example.reference for example in examples)
        repeated = {text: docs for text, docs in docs_of.items() if len(docs) > 1}
        if repeated:
            n_more = sum(len(docs) - 1 for docs in repeated.values())
            n_differing = sum(is_contradictory(docs, key) for docs in repeated.values())
            section.add(
                "warning",
                f"{side}: {n_more:,} of {amount(len(examples), 'document')} with the text of "
                f"another, {n_differing:,} of these texts with other spans (e.g. "
                f"{shorten(next(iter(repeated)))!r})",
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


def check_annotations(sides: Sides, key: str) -> Section:
    """Boundaries at white space or punctuation, and strings that are annotated unevenly."""
    section = Section("Suspicious annotations")
    docs = [example.reference for examples in sides.values() for example in examples]
    for kind, odd in sorted(find_odd_edges(docs, key).items()):
        first, *_ = odd.first_of_label.values()
        section.add(
            "warning",
            f"{amount(odd.of_label.total(), 'span')} {kind} ({format_counts(odd.of_label)}; e.g. "
            f"{shorten(first.text)!r})",
        )
    annotated = [doc for doc in docs if is_annotated_for(doc, key)]
    _report_uneven(section, annotated, key)
    _report_relabelled(section, annotated, key)
    if not section.findings:
        section.add("good", "none")
    return section


def _report_uneven(section: Section, docs: Sequence[Doc], key: str) -> None:
    """Strings that are a span in some documents and, outside of any span, none in others."""
    uneven, _ = find_uneven(docs, key)
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
