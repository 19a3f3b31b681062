"""Keys, labels, and gold that the configured components can never give."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import srsly
from spacy.tokens import Doc
from spacy.training import Example

from spacy_spans.alignment import gold_spans
from spacy_spans.debugging.findings import Section
from spacy_spans.debugging.plan import Component
from spacy_spans.errors import SpansError
from spacy_spans.pipeline.gold_report import GoldReport, amount, shorten
from spacy_spans.pipeline.listing import Listing
from spacy_spans.pipeline.reach import NO_CANDIDATE, Reach
from spacy_spans.pipeline.tag_report import TagReport
from spacy_spans.types import IntArray

# What `spacy debug data` calls few, for stock components.
FEW_EXAMPLES = 10
Sides = Mapping[str, Sequence[Example]]


def check_keys(sides: Sides, components: Sequence[Component]) -> Section:
    """Keys that components learn from, on each side."""
    section = Section("Keys of doc.spans")
    used = {key for component in components for key in component.keys}
    for side, examples in sides.items():
        found = Counter(key for example in examples for key in example.reference.spans)
        for component in components:
            for key in component.keys:
                _check_key(section, side, examples, component, key, sorted(found))
        unused = sorted(set(found) - used)
        if unused:
            section.add("info", f"{side}: no component learns from {', '.join(map(repr, unused))}")
    return section


def _check_key(
    section: Section,
    side: str,
    examples: Sequence[Example],
    component: Component,
    key: str,
    found: list[str],
) -> None:
    groups = [e.reference.spans[key] for e in examples if key in e.reference.spans]
    n_spans = sum(len(group) for group in groups)
    where = f"{side}: doc.spans[{key!r}], of {component.name}"
    if not examples:
        section.add("error", f"{side}: there are no documents")
    elif not groups:
        section.add(
            "error",
            f"{where}, is in none of {amount(len(examples), 'document')}; keys that are there: "
            f"{', '.join(map(repr, found)) or 'none'}. Set spans_key to one of these, or convert "
            "with --spans-key.",
        )
    elif not n_spans:
        section.add("error", f"{where}, has no span in {amount(len(groups), 'document')}")
    elif len(groups) < len(examples):
        section.add(
            "warning",
            f"{where}, is missing from {len(examples) - len(groups):,} of "
            f"{amount(len(examples), 'document')}, so that these teach and measure nothing. Those "
            "that are annotated and have no span need an empty group.",
        )
    else:
        n_without = sum(not len(group) for group in groups)
        section.add(
            "good",
            f"{where}: {amount(n_spans, 'span')} in {amount(len(groups), 'document')}, "
            f"{n_without:,} without any",
        )


def check_weights(config: Mapping[str, Any], components: Sequence[Component]) -> Section:
    """Whether the best model is chosen by scores that stock components give; ours see to theirs."""
    section = Section("Scores that choose the best model")
    weights = (config.get("training") or {}).get("score_weights") or {}
    for component in components:
        if not component.factory.startswith("spancat") or component.keys == ["sc"]:
            continue
        wanted = f"spans_{component.keys[0]}_f"
        if not weights.get(wanted):
            section.add(
                "error",
                f"{component.name} is scored as {wanted}, which [training.score_weights] does not "
                f"have: the best model would be chosen without it. Add {wanted} = 1.0 there.",
            )
    return section


def check_labels(
    sides: Sides, component: Component, config: Mapping[str, Any], is_trained: bool
) -> Section:
    """Examples of each label on each side, and labels that are stored."""
    section = Section(f"Labels of {component.name}")
    key = component.keys[0]
    counts = {
        side: Counter(
            span.label_ for example in examples for span in example.reference.spans.get(key, ())
        )
        for side, examples in sides.items()
    }
    train, dev = counts.get("train", Counter()), counts.get("dev")
    known = _known_labels(section, component, config, is_trained)
    names = sorted({label for own in counts.values() for label in own} | set(known or ()))
    section.table = [("label", *counts)]
    section.table += [(name, *(f"{own[name]:,}" for own in counts.values())) for name in names]
    if known is not None:
        unknown = {
            label: n for label in names if label not in known and (n := _total(counts, label))
        }
        if unknown:
            section.add(
                "error",
                f"{_list(unknown)} in the data, but not among the labels of the component "
                f"({', '.join(map(repr, known))}): never predicted. Store the labels again with "
                "`python -m spacy init labels`, or correct the data.",
            )
    if "train" in counts and dev is not None:
        untrained = {label: n for label, n in dev.items() if label not in train}
        if untrained:
            section.add(
                "error",
                f"{_list(untrained)} in dev, but in no training document: scored, never learned. "
                "Rename the label, or move documents to the training data.",
            )
        unscored = {label: n for label, n in train.items() if label not in dev}
        if unscored and dev:
            section.add("warning", f"{_list(unscored)} in train, but not in dev: never scored")
    few = {label: n for label, n in train.items() if n < FEW_EXAMPLES}
    if few:
        section.add(
            "warning",
            f"fewer than {FEW_EXAMPLES} training examples for {_list(few)}: hardly to be learned. "
            "Annotate more, or leave the label out.",
        )
    if "train" in counts and known is not None:
        unseen = [label for label in known if label not in train]
        if unseen:
            section.add("warning", f"no training example for {', '.join(map(repr, unseen))}")
    if not section.findings:
        section.add("good", f"{amount(len(names), 'label')}, the same on each side")
    return section


def _known_labels(
    section: Section, component: Component, config: Mapping[str, Any], is_trained: bool
) -> list[str] | None:
    """Of a trained component, or of the file that training takes them from."""
    if is_trained:
        return list(component.pipe.labels)
    settings = (config.get("initialize") or {}).get("components") or {}
    source = (settings.get(component.name) or {}).get("labels")
    if isinstance(source, (list, tuple)):
        return list(source)
    if not isinstance(source, Mapping) or not source.get("path"):
        return None
    path = Path(source["path"])
    if path.is_file():
        return list(srsly.read_json(path))
    section.add(
        "error",
        f"[initialize.components.{component.name}.labels] names {str(path)!r}, which is not there. "
        "Make it with `python -m spacy init labels`, or leave the block out: labels then come from "
        "the training data.",
    )
    return None


def _total(counts: Mapping[str, Counter[str]], label: str) -> int:
    return sum(own[label] for own in counts.values())


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{label!r} ({n:,})" for label, n in sorted(counts.items()))


def check_reach(sides: Sides, component: Component) -> Section:
    """Gold that is no candidate, that tags cannot express, or that no token boundary meets.

    Says what the component says at `initialize`, for the dev data as well, and in a table the
    first of each label and reason.
    """
    section = Section(f"Gold that {component.name} can give")
    key = component.keys[0]
    every = [example for examples in sides.values() for example in examples]
    labels = sorted({s.label_ for e in every for s in e.reference.spans.get(key, ())})
    if not labels:
        section.add("info", f"nothing to check: no span under {key!r}")
        return section
    count = _count_tags if component.factory == "multispan_tagger" else _count_candidates
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
    named = ", ".join(f"{name} = {value}" for name, value in settings.items() if name[0] != "@")
    reasons = listing.explain(offsets, doc)
    return [
        f"not suggested with {named}" if named and reason == NO_CANDIDATE else reason
        for reason in reasons
    ]


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
