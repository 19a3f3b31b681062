"""SemEval-2021 toxic spans: CSV with the columns `spans`, a list of character indices, and `text`.

Each run of neighbouring indices becomes one span, all with the same label.
"""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

from spacy_spans.converters.records import (
    Annotation,
    Offsets,
    ReaderOptions,
    Record,
    check_offsets,
    check_text,
    fail,
    fail_empty,
    read_text,
    shown,
)
from spacy_spans.converters.report import FileReport
from spacy_spans.errors import SettingsError

DEFAULT_LABEL = "TOXIC"
COLUMNS = ("spans", "text")


def read_toxic(path: Path, report: FileReport, options: ReaderOptions) -> Iterator[Record]:
    """Read the CSV file. The label is TOXIC, or the one in `options.labels`.

    Raises DataError for a missing column, ragged rows, and anything but a list of indices inside
    of the text; SettingsError for more than one label. Only a header yields nothing.
    """
    if len(options.labels) > 1:
        raise SettingsError(
            f"{len(options.labels)} labels were given ({', '.join(options.labels)}), expected one: "
            "this format knows no labels."
        )
    label = options.labels[0] if options.labels else DEFAULT_LABEL
    content = read_text(path)
    if not content:
        fail_empty(path)
    rows = _read_rows(content, path)
    _, header = next(rows, (1, []))
    if not set(COLUMNS) <= set(header):
        fail(f"{path}, line 1", f"columns {header}, expected {' and '.join(COLUMNS)} among them.")
    spans_index, text_index = (header.index(name) for name in COLUMNS)
    for line, row in rows:
        where = f"{path}, line {line}"
        if len(row) != len(header):
            fail(where, f"{len(row)} columns, expected {len(header)} as in the first line.")
        text = check_text(row[text_index], where)
        runs = find_runs(_read_indices(row[spans_index], len(text), where))
        yield Record(text, [Annotation(label, (run,)) for run in runs], where)


def find_runs(indices: list[int]) -> list[Offsets]:
    """Half-open runs of neighbouring integers, in order. Repeated ones count once; [] gives []."""
    runs: list[Offsets] = []
    for index in sorted(set(indices)):
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs


def _read_rows(content: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """The line on which each row starts, and its cells. Blank lines are passed over."""
    # The default of 131,072 characters is less than a long document. A C long bounds it.
    limit = csv.field_size_limit(2**31 - 1)
    reader = csv.reader(io.StringIO(content, newline=""), strict=True)
    try:
        line = 1
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        fail(f"{path}, line {reader.line_num}", f"broken CSV: {error}.")
    finally:
        csv.field_size_limit(limit)


def _read_indices(cell: str, length: int, where: str) -> list[int]:
    try:
        indices = json.loads(cell)
    except (ValueError, RecursionError):
        indices = None
    if not isinstance(indices, list):
        fail(where, f"'spans' is {shown(cell)}, expected a list of character indices: [3, 4, 5].")
    for index in indices:
        if type(index) is not int:
            fail(where, f"'spans' holds {shown(index)}, expected integers: character indices.")
        check_offsets(index, index + 1, length, where)
    return indices
