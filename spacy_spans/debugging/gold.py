"""Keys, labels, and gold that the configured components can never give."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import srsly
from spacy.training import Example

from spacy_spans.alignment import gold_ranges, is_annotated
from spacy_spans.debugging.findings import Section
from spacy_spans.debugging.plan import PRUNERS, Component
from spacy_spans.groups import spans_of
from spacy_spans.kernels.pruning import runs_to_mask
from spacy_spans.keys import ENTITIES
from spacy_spans.pipeline.gold_report import FEW_EXAMPLES, amount

Sides = Mapping[str, Sequence[Example]]


def named(key: str) -> str:
    """What users call the place of a key."""
    return key if key == ENTITIES else f"doc.spans[{key!r}]"


def check_keys(sides: Sides, components: Sequence[Component]) -> Section:
    """Keys that components learn from, on each side, and whether two write the same one."""
    section = Section("Annotations")
    used = {key for component in components for key in component.keys}
    for side, examples in sides.items():
        if not examples:
            section.add("error", f"{side}: there are no documents")
            continue
        found = sorted({key for example in examples for key in example.reference.spans})
        for component in components:
            _check_keys_of(section, side, examples, component, found)
        if unused := [repr(key) for key in found if key not in used]:
            section.add("info", f"{side}: no component learns from {', '.join(unused)}")
    for key, n in Counter(own.keys[0] for own in components if own.labels_spans).items():
        if n > 1:
            names = [own.name for own in components if own.labels_spans and key in own.keys]
            section.add(
                "warning",
                f"{', '.join(names)} all write {named(key)}: the last of them overwrites the "
                "others. Give each a key of its own.",
            )
    return section


def _check_keys_of(
    section: Section,
    side: str,
    examples: Sequence[Example],
    component: Component,
    found: list[str],
) -> None:
    """found (list): All keys of this side."""
    keys = component.keys
    if not component.learns:
        section.add("info", f"{side}: {component.name} learns from no annotations")
        return
    annotated = [example.reference for example in examples if is_annotated(example, keys)]
    n_of_key = {key: sum(len(spans_of(doc, key)) for doc in annotated) for key in keys}
    n_spans = sum(n_of_key.values())
    where = f"{side}: {' or '.join(map(named, keys))}, of {component.name}"
    if not annotated:
        section.add(
            "error",
            f"{where}, is in none of {amount(len(examples), 'document')}; keys that are there: "
            f"{', '.join(map(repr, found)) or 'none'}. {_key_advice(component)}",
        )
        return
    if not n_spans:
        section.add("error", f"{where}, has no span in {amount(len(annotated), 'document')}")
        return
    missing = [named(key) for key, n in n_of_key.items() if not n]
    if missing:
        section.add(
            "warning",
            f"{side}: {component.name} would learn from {' and '.join(missing)} "
            "as well, where there is no span. Correct spans_keys, or leave it out there.",
        )
    if len(annotated) < len(examples):
        section.add(
            "warning",
            f"{where}, is missing from {len(examples) - len(annotated):,} of "
            f"{amount(len(examples), 'document')}, so that these teach and measure nothing. Those "
            "that are annotated and have no span need an empty group.",
        )
    elif not missing:
        n_without = sum(not any(len(spans_of(doc, key)) for key in keys) for doc in annotated)
        section.add(
            "good",
            f"{where}: {amount(n_spans, 'span')} in {amount(len(annotated), 'document')}, "
            f"{n_without:,} without any",
        )


def _key_advice(component: Component) -> str:
    if component.keys == [ENTITIES]:
        return "Annotate entities, or use a component that learns from doc.spans."
    setting = "spans_keys" if component.factory in PRUNERS else "spans_key"
    return f"Set {setting} to one of these, or convert with --spans-key."


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
            span.label_ for example in examples for span in spans_of(example.reference, key)
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
        stored = srsly.read_json(path)
        # Those of `ner`: counts of labels for each of its actions, with an empty one.
        of_actions = stored.values() if isinstance(stored, Mapping) else [stored]
        return sorted({label for labels in of_actions for label in labels if label})
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


def check_kept(sides: Sides, component: Component) -> Section:
    """How many tokens are in the spans that a pruner, or gates, are to keep."""
    section = Section(f"Tokens that {component.name} is to keep")
    most = component.settings.get("max_span_share")
    for side, examples in sides.items():
        annotated = [example for example in examples if is_annotated(example, component.keys)]
        n_tokens = sum(len(example.predicted) for example in annotated)
        n_inside = sum(
            int(runs_to_mask(gold_ranges(eg, component.keys), len(eg.predicted)).sum())
            for eg in annotated
        )
        if not n_tokens:
            section.add("info", f"{side}: no tokens to go by")
            continue
        share = n_inside / n_tokens
        section.add("info", f"{side}: {100 * share:.0f} % of tokens are in gold spans")
        if side == "train" and most is not None and share > most:
            section.add(
                "warning",
                f"that is above max_span_share = {most}: {component.name} would drop nothing, in "
                "training neither. To prune such data set max_span_share = null.",
            )
    return section
