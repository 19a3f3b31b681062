"""All checks of a config or pipeline and its data."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wasabi.printer import Printer

from spacy_spans.debugging import gold, texts
from spacy_spans.debugging.advice import recommend_component
from spacy_spans.debugging.findings import Section, count
from spacy_spans.debugging.plan import PRUNERS, Plan, read_examples
from spacy_spans.debugging.reach import check_reach
from spacy_spans.debugging.reader import check_reader
from spacy_spans.debugging.truncation import check_truncation
from spacy_spans.errors import SettingsError
from spacy_spans.keys import ENTITIES, printable
from spacy_spans.pipeline.gold_report import amount


def debug(plan: Plan, *, limit: int | None = None, progress: bool = False) -> Iterator[Section]:
    """Run all checks.

    limit (int | None): Most documents to read of each side.
    progress (bool): Show a bar while data is read, when standard error is a terminal.
    YIELDS (Section): Those of the report, in order, each when it is ready.
    RAISES (SpansError): Data is missing or cannot be read.
    """
    paths: dict[str, Path | None] = {"train": plan.train, "dev": plan.dev}
    if not any(paths.values()):
        raise SettingsError(
            "There is no data to check: the config names none. Add it behind the config, or as "
            "--train and --dev."
        )
    sides = {
        side: read_examples(plan.nlp, path, limit, progress=progress)
        for side, path in paths.items()
        if path is not None
    }
    yield _overview(plan, sides)
    yield gold.check_keys(sides, plan.components)
    weights = gold.check_weights(plan.config, plan.components)
    if weights.findings:
        yield weights
    for component in plan.components:
        if component.labels_spans:
            yield gold.check_labels(sides, component, plan.config, plan.is_trained)
            yield check_reach(sides, component)
        elif component.factory in PRUNERS:
            yield gold.check_kept(sides, component)
    keys = list(dict.fromkeys(key for component in plan.components for key in component.keys))
    yield check_reader(sides, plan.config, keys)
    yield check_truncation(plan.nlp, plan.config, sides, keys)
    yield from _check_texts(sides, keys)


def _check_texts(sides: gold.Sides, keys: Sequence[str]) -> Iterator[Section]:
    """What is said of each key; where there are several, titles name it."""
    for key in keys:
        found = [texts.check_annotations(sides, key)]
        # The same documents for all keys.
        if key == keys[0]:
            found.insert(0, texts.check_duplicates(sides, key))
        for section in found:
            section.title += f" ({key})" if len(keys) > 1 else ""
            yield section
        if key != ENTITIES:
            train = [example.reference for example in sides.get("train", ())]
            yield recommend_component(train, key)


def _overview(plan: Plan, sides: gold.Sides) -> Section:
    section = Section("What is checked")
    for component in plan.components:
        section.add(
            "info",
            f"{component.name} ({component.factory}), learns from {', '.join(component.keys)}",
        )
    for side in ("train", "dev"):
        path = getattr(plan, side)
        if path is None:
            section.add("warning", f"{side}: no data given, so nothing of it is checked")
            continue
        n_tokens = sum(len(example.predicted) for example in sides[side])
        section.add(
            "info" if sides[side] else "error",
            f"{side}: {path}, {amount(len(sides[side]), 'document')}, {amount(n_tokens, 'token')}",
        )
    return section


def print_section(section: Section, msg: Printer) -> None:
    """Print a section as `spacy debug data` does."""
    shown: dict[str, Any] = {
        "error": msg.fail,
        "warning": msg.warn,
        "info": msg.info,
        "good": msg.good,
    }
    msg.divider(printable(section.title))
    if len(section.table) > 1:
        rows = [[printable(cell) for cell in row] for row in section.table]
        numbers = [all(c[:1].isdigit() for c in column[1:]) for column in zip(*rows, strict=True)]
        aligns = ["r" if is_number else "l" for is_number in numbers]
        msg.table(rows[1:], header=rows[0], aligns=aligns)
    for level, message in section.findings:
        shown[level](printable(message))


def print_summary(sections: list[Section], msg: Printer) -> None:
    """Print how many errors and warnings there are."""
    msg.divider("Summary")
    n_errors, n_warnings = count(sections, "error"), count(sections, "warning")
    say: Any = msg.fail if n_errors else msg.warn if n_warnings else msg.good
    say(f"{amount(n_errors, 'error')}, {amount(n_warnings, 'warning')}")


def as_json(sections: list[Section]) -> dict[str, Any]:
    """Plain values: "errors" and "warnings" counted, and "sections"."""
    return {
        "errors": count(sections, "error"),
        "warnings": count(sections, "warning"),
        "sections": [section.as_json() for section in sections],
    }
