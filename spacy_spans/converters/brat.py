"""brat standoff: a `.txt` file and, beside it, an `.ann` file with one annotation a line.

Only text-bound annotations (T lines) are spans. Relations, events, attributes, normalisations,
notes and equivalences are counted in `report.ignored`. A text without an `.ann` file was never
opened for annotation, since brat creates the file then: it is left out, and counted in
`report.skipped`, because as a document without spans it would teach that there are none.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from spacy_spans.converters.records import (
    Annotation,
    Offsets,
    ReaderOptions,
    Record,
    check_fragments,
    check_offsets,
    check_text,
    fail,
    read_text,
    shown,
)
from spacy_spans.converters.report import FileReport

OTHER_LINES = {
    "R": "relations",
    "E": "events",
    "A": "attributes",
    "M": "attributes",
    "N": "normalisations",
    "#": "notes",
    "*": "equivalences",
}
OFFSETS = re.compile(r"(\d{1,18}) (\d{1,18})")
EXPECTED = "expected an id, a label with offsets, and the text, parted by tabs: T1<tab>LOC 0 5<tab>"


def read_brat(path: Path, report: FileReport, options: ReaderOptions) -> Iterator[Record]:
    """Read one document: a `.txt` or `.ann` file of a pair.

    Raises DataError for an `.ann` file without text, for malformed lines, and where the annotated
    text is not what stands at its offsets. An empty `.ann` file gives a document without spans.
    """
    text_path, ann_path = path.with_suffix(".txt"), path.with_suffix(".ann")
    if not text_path.is_file():
        fail(str(ann_path), f"there is no {text_path.name} beside it, expected its text there.")
    if not ann_path.is_file():
        report.skipped["no .ann file"] += 1
        return
    text = check_text(read_text(text_path), str(text_path))
    annotations: list[Annotation] = []
    ids: set[str] = set()
    for number, line in enumerate(read_text(ann_path).split("\n"), start=1):
        where = f"{ann_path}, line {number}"
        line = line.removesuffix("\r")
        if not line.strip():
            continue
        if not line.startswith("T"):
            report.ignored[_kind_of_line(line, where)] += 1
            continue
        name, annotation = _read_line(line, text, where)
        if name in ids:
            fail(where, f"id {name} is taken by a line before it, expected one line for each.")
        ids.add(name)
        annotations.append(annotation)
    yield Record(text, annotations, str(text_path))


def _kind_of_line(line: str, where: str) -> str:
    kind = OTHER_LINES.get(line[0])
    if kind is None or "\t" not in line:
        known = "T" + "".join(OTHER_LINES)
        fail(where, f"found {line[:40]!r}, expected an id that starts with one of {known}, a tab.")
    return kind


def _read_line(line: str, text: str, where: str) -> tuple[str, Annotation]:
    fields = line.split("\t", 2)
    if len(fields) != 3:
        fail(where, f"{len(fields)} fields, {EXPECTED}")
    name, middle, mention = fields
    label, _, listed = middle.partition(" ")
    matches = [OFFSETS.fullmatch(part) for part in listed.split(";")]
    if not label or not all(matches):
        fail(where, f"found {shown(middle)}, {EXPECTED} (0 5;10 15 for two fragments).")
    pairs = [
        check_offsets(int(match[1]), int(match[2]), len(text), where) for match in matches if match
    ]
    fragments = check_fragments(pairs, where)
    _check_mention(mention, pairs, text, where)
    return name, Annotation(label, fragments)


def _check_mention(mention: str, pairs: list[Offsets], text: str, where: str) -> None:
    # Line breaks inside of a mention are spaces in the .ann file.
    found = " ".join(" ".join(text[start:end] for start, end in pairs).split())
    if found == " ".join(mention.split()):
        return
    hint = " The text has CRLF line ends: were they LF when it was annotated?" * ("\r\n" in text)
    fail(
        where,
        f"the text holds {found!r} at these offsets, but the line says {mention!r}. Expected the "
        f"same: has the text been changed since?{hint}",
    )
