"""JSON lines: one object a document, with character offsets; and Prodigy's flavour of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spacy_spans.converters.records import (
    Annotation,
    ReaderOptions,
    Record,
    check_fragments,
    check_label,
    check_offsets,
    check_text,
    fail,
    read_lines,
    shown,
)
from spacy_spans.converters.report import FileReport

PRODIGY_FIELDS = ("answer", "tokens", "_input_hash", "_task_hash", "_view_id")
SKIPPED_ANSWERS = ("reject", "ignore")


def read_jsonl(path: Path, report: FileReport, options: ReaderOptions) -> Iterator[Record]:
    """Read `{"text": ..., "spans": [{"start", "end", "label"}]}` lines.

    A span may have `"fragments": [[start, end], ...]`. Other fields are ignored, blank lines too.
    Raises DataError for a line that is broken or lacks something. A file of blank lines yields
    nothing.
    """
    for where, entry in _read_objects(path):
        if entry.get("answer") in SKIPPED_ANSWERS:
            fail(
                where,
                f"the record is answered {entry['answer']!r}, as Prodigy's are, but the format is "
                "jsonl, which has no answers. Use --format prodigy to leave such records out.",
            )
        text = check_text(entry.get("text"), where)
        spans = _get_list(entry, "spans", where)
        yield Record(text, _read_spans(spans, text, where), where)


def read_prodigy(path: Path, report: FileReport, options: ReaderOptions) -> Iterator[Record]:
    """Read Prodigy's JSON lines.

    Records answered with reject or ignore are skipped and counted in `report.skipped`; those
    without an answer count as accepted, those without spans as documents without spans. Where
    `tokens` are given they become the document's tokens.
    Raises DataError as `read_jsonl` does, and for tokens that do not match their text.
    """
    for where, entry in _read_objects(path):
        answer = entry.get("answer", "accept")
        if answer in SKIPPED_ANSWERS:
            report.skipped[f"answer: {answer}"] += 1
            continue
        if answer != "accept":
            fail(where, f"'answer' is {shown(answer)}, expected accept, reject or ignore.")
        text = check_text(entry.get("text"), where)
        spans = _get_list(entry, "spans", where, optional=True)
        if entry.get("tokens") is None:
            yield Record(text, _read_spans(spans, text, where), where)
            continue
        tokens = _read_tokens(_get_list(entry, "tokens", where), text, where)
        words, spaces = _fill_gaps(tokens, text, where)
        spans = [_with_offsets(span, tokens, where) for span in spans]
        yield Record(text, _read_spans(spans, text, where), where, words, spaces)


def _read_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            fail(where, f"broken JSON at column {error.colno}: {error.msg}. Expected one object.")
        except (ValueError, RecursionError) as error:
            # Numbers of thousands of digits, and nesting deeper than the interpreter's stack.
            fail(where, f"JSON that cannot be read: {error}.")
        if not isinstance(entry, dict):
            fail(where, f"found {shown(entry)}, expected one JSON object a line.")
        yield where, entry


def _get_list(entry: dict[str, Any], name: str, where: str, optional: bool = False) -> list[Any]:
    value = entry.get(name)
    if value is None and optional:
        return []
    if not isinstance(value, list):
        found = f"{name!r} is {shown(value)}, expected a list; [] for none."
        fail(where, f"{found} Keys that are there: {', '.join(map(repr, entry)) or 'none'}.")
    return value


def _read_spans(spans: list[Any], text: str, where: str) -> list[Annotation]:
    return [
        _read_span(span, len(text), f"{where}, span {number}")
        for number, span in enumerate(spans, start=1)
    ]


def _read_span(span: Any, length: int, where: str) -> Annotation:
    if not isinstance(span, dict):
        fail(where, f"found {shown(span)}, expected an object with start, end and label.")
    label = check_label(span.get("label"), where)
    start, end = check_offsets(span.get("start"), span.get("end"), length, where)
    if span.get("fragments") is None:
        return Annotation(label, ((start, end),))
    pairs = _get_list(span, "fragments", where)
    if not pairs or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        fail(where, f"'fragments' is {shown(pairs)}, expected [[start, end], ...].")
    checked = [check_offsets(pair[0], pair[1], length, where) for pair in pairs]
    fragments = check_fragments(checked, where)
    if (fragments[0][0], fragments[-1][1]) != (start, end):
        fail(
            where,
            f"fragments reach from {fragments[0][0]} to {fragments[-1][1]}, but start and end are "
            f"{start} and {end}. Expected the same.",
        )
    return Annotation(label, fragments)


def _read_tokens(tokens: list[Any], text: str, where: str) -> list[tuple[int, int]]:
    offsets: list[tuple[int, int]] = []
    for number, token in enumerate(tokens, start=1):
        here = f"{where}, token {number}"
        if not isinstance(token, dict):
            fail(here, f"found {shown(token)}, expected an object with text, start and end.")
        start, end = check_offsets(token.get("start"), token.get("end"), len(text), here)
        if text[start:end] != token.get("text"):
            fail(
                here,
                f"the text holds {text[start:end]!r} at {start} to {end}, but the token says "
                f"{shown(token.get('text'))}. Expected the same.",
            )
        if offsets and start < offsets[-1][1]:
            fail(here, f"it starts at {start}, before the end of the token before it.")
        offsets.append((start, end))
    return offsets


def _fill_gaps(
    tokens: list[tuple[int, int]], text: str, where: str
) -> tuple[list[str], list[bool]]:
    """Words and spaces that spell the text: more than one space becomes a token of its own."""
    words: list[str] = []
    spaces: list[bool] = []
    position = 0
    for start, end in [*tokens, (len(text), len(text))]:
        gap = text[position:start]
        if gap.strip():
            fail(
                where,
                f"no token covers {shown(gap.strip())} at character {position}. Expected tokens "
                "for everything but white space.",
            )
        if words and gap.startswith(" "):
            spaces[-1] = True
            gap = gap[1:]
        for word in (gap, text[start:end]):
            if word:
                words.append(word)
                spaces.append(False)
        position = end
    return words, spaces


def _with_offsets(span: Any, tokens: list[tuple[int, int]], where: str) -> Any:
    """A span with character offsets from its token indices; both must agree where both are given.

    Prodigy's token_end is the last token of the span, not the one after.
    """
    if not isinstance(span, dict) or not {"token_start", "token_end"} <= span.keys():
        return span
    first, last = span["token_start"], span["token_end"]
    if not (type(first) is type(last) is int and 0 <= first <= last < len(tokens)):
        fail(
            where,
            f"a span has token_start {shown(first)} and token_end {shown(last)}, expected indices "
            f"of the {len(tokens)} tokens, token_end being the last one of the span.",
        )
    start, end = tokens[first][0], tokens[last][1]
    found = (span.get("start", start), span.get("end", end))
    if found != (start, end):
        fail(
            where,
            f"a span says characters {found[0]} to {found[1]}, but its tokens {first} to {last} "
            f"are at {start} to {end}. Expected the same; leave out what is wrong.",
        )
    return {**span, "start": start, "end": end}
