"""Gold that the configured components can never give: why, and where the first of each stands."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from spacy.tokens import Doc
from spacy.training import Example

from spacy_spans.alignment import annotation_of, gold_spans
from spacy_spans.debugging.findings import Section
from spacy_spans.debugging.gold import Sides, named
from spacy_spans.debugging.plan import Component
from spacy_spans.errors import SpansError
from spacy_spans.groups import is_annotated_for, spans_of
from spacy_spans.pipeline.gold_report import GoldReport, amount, shorten
from spacy_spans.pipeline.listing import Listing
from spacy_spans.pipeline.reach import NO_CANDIDATE, Reach
from spacy_spans.pipeline.tag_report import TagReport
from spacy_spans.types import IntArray

AT_SPACE = "with white space at an end"


def check_reach(sides: Sides, component: Component) -> Section:
    """Gold that is no candidate, that tags cannot express, or that no token boundary meets.

    Says what the component says at `initialize`, for the dev data as well, and in a table the
    first of each label and reason.
    """
    section = Section(f"Gold that {component.name} can give")
    key = component.keys[0]
    every = [example for examples in sides.values() for example in examples]
    labels = sorted({span.label_ for e in every for span in spans_of(e.reference, key)})
    if not labels:
        section.add("info", f"nothing to check: no span in {named(key)}")
        return section
    count = COUNTS.get(component.factory, _count_candidates)
    rows = []
    for side, examples in sides.items():
        report = count(component, examples, labels)
        if report.n_docs == report.n_docs_without_key:
            continue
        messages = report.lost_messages(side, key)
        for message in messages:
            section.add("warning", message)
        if report.n_gold and report.n_lost >= report.n_gold:
            section.add(
                "error",
                f"{side}: none of {amount(report.n_gold, 'gold span')} can be given: see above",
            )
        elif not messages:
            section.add("good", f"{side}: all of {amount(report.n_gold, 'gold span')}")
        if isinstance(report, Reach) and report.n_candidates and report.n_tokens:
            per_1000 = 1000 * report.n_candidates / report.n_tokens
            section.add("info", f"{side}: {per_1000:,.0f} candidates per 1,000 tokens")
        rows += [(side, *row) for row in _loss_rows(report)]
    if rows:
        section.table = [("side", "label", "lost", "because", "first", "document: characters")]
        section.table += rows
    return section


def _loss_rows(report: GoldReport) -> list[tuple[str, ...]]:
    """Label, number and reason of what is lost, text and place of the first."""
    rows = []
    for reason, losses in report.losses.items():
        for label, n in losses.of_label.items():
            number, first = losses.first_of_label[label]
            place = f"{number}: {first.start} to {first.end}"
            rows.append((label, f"{n:,}", reason, shorten(first.text, 30), place))
    return sorted(rows)


class StockReach(Reach):
    """Of `spancat` and `spancat_singlelabel`."""

    excluded_advice = (
        "max_positive = 1 gives a span one label, and so does spancat_singlelabel; allow_overlap = "
        "false keeps no two that share a token."
    )


def _count_candidates(
    component: Component, examples: Sequence[Example], labels: list[str]
) -> Reach:
    pipe: Any = component.pipe
    if component.factory == "span_enumerator":
        listing: Listing = pipe.listing
        softmax, overlap = pipe.loss == "softmax", pipe.cfg["overlap"]
        report = Reach(labels, softmax=softmax, overlap=overlap, explain=listing.explain)
    else:
        listing = Listing(pipe.suggester, None)
        report = StockReach(
            labels,
            softmax=pipe.cfg["max_positive"] == 1,
            overlap="any" if pipe.cfg["allow_overlap"] else "flat",
            explain=partial(_explain_suggester, component.settings["suggester"], listing),
        )
    ids = {label: i for i, label in enumerate(labels)}
    known = True
    for example in examples:
        if component.keys[0] not in example.reference.spans:
            report.add_without_key()
            continue
        listed = None
        if known:
            try:
                listed = listing.before_training(example.predicted)
            except (SpansError, ValueError, KeyError) as error:
                known = False
                report.forget_candidates()
                report.add_note(f"candidates are not known before training ({error})")
        gold = gold_spans(example, component.keys[0], ids)
        report.add(example, gold, listed, band=listing.band)
    return report


def _explain_suggester(
    settings: Mapping[str, Any], listing: Listing, offsets: IntArray, doc: Doc
) -> list[str]:
    """As `Listing.explain`; of a function that cannot be looked into, its settings are named."""
    own = ", ".join(f"{name} = {value}" for name, value in settings.items() if name[0] != "@")
    reasons = listing.explain(offsets, doc)
    return [
        f"not suggested with {own}" if own and reason == NO_CANDIDATE else reason
        for reason in reasons
    ]


class EntityReport(GoldReport):
    """Of `ner`."""

    def lost_messages(self, name: str, key: str) -> list[str]:
        """See `GoldReport.lost_messages`."""
        messages = super().lost_messages(name, key)
        if AT_SPACE in self.losses:
            lost = self.losses[AT_SPACE]
            messages.append(
                f"{name}: {lost.total()} of {self.n_gold} gold spans in {key!r} {AT_SPACE}, which "
                f"`ner` can never give ({lost}). Leave the white space out of them."
            )
        return messages


def _count_entities(
    component: Component, examples: Sequence[Example], labels: list[str]
) -> EntityReport:
    key = component.keys[0]
    report = EntityReport(labels)
    ids = {label: i for i, label in enumerate(labels)}
    for example in examples:
        if not is_annotated_for(example.reference, key):
            report.add_without_key()
            continue
        doc = example.predicted
        gold = gold_spans(example, key, ids)
        report.add_gold(len(doc), gold.labels.tolist(), gold.misaligned)
        for (start, end), label in zip(gold.offsets.tolist(), gold.labels.tolist(), strict=True):
            if doc[start].is_space or doc[end - 1].is_space:
                report.lose(AT_SPACE, annotation_of(doc, [(start, end)], labels[label]))
    return report


def _count_tags(component: Component, examples: Sequence[Example], labels: list[str]) -> TagReport:
    pipe, key = component.pipe, component.keys[0]
    if not pipe.labels:
        # As at `initialize`: the layers of tags depend on labels and their overlaps.
        pipe.set_labels(examples, labels)
        pipe.set_layout(examples)
    report: TagReport = pipe.new_report()
    known = [_without_unknown(example, key, {*pipe.labels}) for example in examples]
    for _ in pipe.count_gold(report, known):
        pass
    return report


def _without_unknown(example: Example, key: str, labels: Collection[str]) -> Example:
    """Without spans of labels that a trained component lacks, which are an error of their own."""
    group = example.reference.spans.get(key, ())
    if all(span.label_ in labels for span in group):
        return example
    reference = example.reference.copy()
    reference.spans[key] = [span for span in reference.spans[key] if span.label_ in labels]
    return Example(example.predicted, reference)


COUNTS = {
    "multispan_tagger": _count_tags,
    "ner": _count_entities,
    "beam_ner": _count_entities,
}
