"""Keys, labels, and gold that the configured components can never give."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import srsly
from spacy.training import Example

from spacy_spans.alignment import gold_spans
from spacy_spans.debugging.findings import Section
from spacy_spans.debugging.plan import Component
from spacy_spans.errors import SpansError
from spacy_spans.pipeline.listing import Listing
from spacy_spans.pipeline.reach import Reach
from spacy_spans.pipeline.tag_report import TagReport

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
            f"{where}, is in none of {len(examples):,} documents; they have "
            f"{', '.join(map(repr, found)) or 'no key at all'}. Set spans_key to one of these, or "
            "convert with --spans-key.",
        )
    elif not n_spans:
        section.add("error", f"{where}, has no span in {len(groups):,} documents")
    elif len(groups) < len(examples):
        section.add(
            "warning",
            f"{where}, is missing from {len(examples) - len(groups):,} of {len(examples):,} "
            "documents, which teach and measure nothing. Those that are annotated and have no "
            "span need an empty group.",
        )
    else:
        n_without = sum(not len(group) for group in groups)
        section.add(
            "good",
            f"{where}: {n_spans:,} spans in {len(groups):,} documents, {n_without:,} without any",
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
        section.add("good", f"{len(names)} labels, the same on each side")
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

    Says what the component says at `initialize`, for the dev data as well.
    """
    section = Section(f"Gold that {component.name} can give")
    key = component.keys[0]
    every = [example for examples in sides.values() for example in examples]
    labels = sorted({s.label_ for e in every for s in e.reference.spans.get(key, ())})
    if not labels:
        section.add("info", f"nothing to check: no span under {key!r}")
        return section
    for side, examples in sides.items():
        annotated = [e for e in examples if key in e.reference.spans]
        if not annotated:
            continue
        report: Reach | TagReport
        if component.factory == "multispan_tagger":
            report, n_lost = _tag_report(component, annotated, labels)
        else:
            report, n_lost = _reach(component, annotated, labels)
        lost = [m for m in report.messages(side, key) if "no training example for" not in m]
        for message in lost:
            section.add("warning", message)
        if report.n_gold and n_lost >= report.n_gold:
            section.add(
                "error", f"{side}: none of {report.n_gold:,} gold spans can be given: see above"
            )
        elif not lost:
            section.add("good", f"{side}: all of {report.n_gold:,} gold spans")
        if isinstance(report, Reach) and report.n_candidates and report.n_tokens:
            per_1000 = 1000 * report.n_candidates / report.n_tokens
            section.add("info", f"{side}: {per_1000:,.0f} candidates per 1,000 tokens")
    return section


def _reach(
    component: Component, examples: Sequence[Example], labels: list[str]
) -> tuple[Reach, int]:
    pipe = component.pipe
    # Stock components have no kept runs.
    listing = getattr(pipe, "listing", None) or Listing(pipe.suggester, None)
    ids = {label: i for i, label in enumerate(labels)}
    report = Reach(labels)
    known = True
    for example in examples:
        gold = gold_spans(example, component.keys[0], ids)
        listed = None
        if known:
            try:
                listed = listing.before_training(example.predicted)
            except (SpansError, ValueError, KeyError) as error:
                known = False
                report.forget_candidates()
                report.add_note(f"candidates are not known before training ({error})")
        report.add(example, gold, listed, band=listing.band)
    return report, report.n_unreached + report.n_misaligned


def _tag_report(
    component: Component, examples: Sequence[Example], labels: list[str]
) -> tuple[TagReport, int]:
    pipe = component.pipe
    if not pipe.labels:
        # As at `initialize`: the layers of tags depend on labels and their overlaps.
        pipe.set_labels(examples, labels)
        pipe.set_layout(examples)
    # Other labels than those of a trained component are an error of their own.
    key, known = component.keys[0], {*pipe.labels}
    examples = [e for e in examples if {s.label_ for s in e.reference.spans[key]} <= known]
    report = pipe.new_report()
    for _ in pipe.count_gold(report, examples):
        pass
    n_lost = report.lost_of_label.total() + report.n_misaligned
    return report, n_lost + report.outside_limits_of_label.total()
