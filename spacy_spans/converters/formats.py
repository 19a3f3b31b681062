"""The known formats: their readers, their files, and how to tell them apart."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from spacy_spans.converters.brat import read_brat
from spacy_spans.converters.conll import DOC_START, is_comment, parse_tag, read_conll, split_columns
from spacy_spans.converters.jsonl import PRODIGY_FIELDS, read_jsonl, read_prodigy
from spacy_spans.converters.records import ReaderOptions, Record, read_lines
from spacy_spans.converters.report import FileReport
from spacy_spans.converters.toxic import COLUMNS, read_toxic
from spacy_spans.errors import DataError, SettingsError
from spacy_spans.files import list_visible

Reader = Callable[[Path, FileReport, ReaderOptions], Iterator[Record]]


class Format(NamedTuple):
    """A reader, the endings of its files in a folder, and the options it knows."""

    read: Reader
    suffixes: tuple[str, ...]
    options: tuple[str, ...] = ()


_JSON_LINES = (".jsonl", ".ndjson")

FORMATS: dict[str, Format] = {
    "jsonl": Format(read_jsonl, _JSON_LINES),
    "prodigy": Format(read_prodigy, _JSON_LINES),
    "conll": Format(
        read_conll,
        (".conll", ".conll2003", ".iob", ".iob2", ".bio", ".ner", ".tsv"),
        ("labels", "columns", "n_sents"),
    ),
    "brat": Format(read_brat, (".ann", ".txt")),
    "toxic": Format(read_toxic, (".csv",), ("labels",)),
}


def get_format(name: str) -> Format:
    """A format by name. Raises SettingsError, with the names there are, for another."""
    if name not in FORMATS:
        raise SettingsError(f"Unknown format {name!r}, expected one of: {_names()}.")
    return FORMATS[name]


def list_files(path: Path, name: str) -> tuple[list[Path], list[Path]]:
    """List the files to read, sorted, of a file or a folder and the folders in it.

    path (Path): A file, whatever its ending, or a folder.
    name (str): The format. For brat, a pair of files is listed once.
    RETURNS (tuple): The files of the format, and those left out. Hidden files are in neither.

    Raises DataError when there is nothing to read.
    """
    _check_exists(path)
    if path.is_file():
        return [path], []
    wanted = get_format(name).suffixes
    files = list_visible(path)
    found = [file for file in files if file.suffix.lower() in wanted]
    if name == "conll" and not found:
        # Only here, since .txt is what a licence or a readme is called as well.
        found = [file for file in files if file.suffix.lower() == ".txt"]
        wanted = (*wanted, ".txt")
    if not found:
        raise DataError(
            f"{path}: no file in this folder looks like {name}, expected names that end in "
            f"{', '.join(wanted)}. Give a single file to read it whatever its name."
        )
    left_out = [file for file in files if file not in set(found)]
    if name == "brat":
        found = sorted({file.with_suffix(".txt") for file in found})
    return found, left_out


def guess_format(path: Path) -> tuple[str, str]:
    """Tell the format of a file or folder from names and content.

    path (Path): A file, or a folder whose files must all be of one format.
    RETURNS (tuple): The format's name, and the reason in words.

    Raises DataError when it cannot be told, with the names of the formats there are, and when
    files of a folder differ.
    """
    _check_exists(path)
    if path.is_file():
        return _guess_file(path)
    files = list_visible(path)
    suffixes = {suffix for known in FORMATS.values() for suffix in known.suffixes}
    if any(file.suffix.lower() == ".ann" for file in files):
        return "brat", "the folder has .ann files"
    likely = [file for file in files if file.suffix.lower() in suffixes - {".txt"}]
    likely = likely or [file for file in files if file.suffix.lower() == ".txt"]
    if not likely:
        _fail_unknown(path, f"none of its {len(files)} files has a known ending")
    guesses = {file: _guess_file(file) for file in likely}
    first, *others = guesses
    for other in others:
        if guesses[other][0] != guesses[first][0]:
            raise DataError(
                f"{path}: {first.name} looks like {guesses[first][0]}, {other.name} like "
                f"{guesses[other][0]}. Expected files of one format: convert them one by one, or "
                "say which format to read."
            )
    return guesses[first]


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder.")
    if not path.is_file() and not path.is_dir():
        raise DataError(
            f"{path}: found a pipe or a device, expected a file or a folder. Save what comes from "
            "it to a file first."
        )


def _guess_file(path: Path) -> tuple[str, str]:
    if path.suffix == ".ann" or (path.suffix == ".txt" and path.with_suffix(".ann").is_file()):
        return "brat", "an .ann file beside a .txt file"
    line = next((line for _, line in read_lines(path) if line.strip()), "")
    if not line:
        return _fail_unknown(path, "it holds nothing but white space")
    if line.lstrip().startswith("{"):
        return _guess_json(line)
    if set(COLUMNS) <= {cell.strip('" ') for cell in line.split(",")}:
        return "toxic", f"its first line names the columns {' and '.join(COLUMNS)}"
    lines = (text for _, text in read_lines(path) if text.strip() and not is_comment(text))
    if line.lstrip().startswith("["):
        return _fail_unknown(path, "it looks like a JSON array: write one object a line")
    cells = split_columns(next(lines, ""))
    if cells[0] == DOC_START or (len(cells) > 1 and parse_tag(cells[-1])):
        return "conll", "it starts with a token and a tag"
    return _fail_unknown(path, f"its first line is {line[:60]!r}")


def _guess_json(line: str) -> tuple[str, str]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        # The reader says what is wrong, and where.
        entry = {}
    for name in PRODIGY_FIELDS:
        if name in entry:
            return "prodigy", f"its first line is a JSON object with {name!r}"
    return "jsonl", "its first line is a JSON object"


def _fail_unknown(path: Path, found: str) -> tuple[str, str]:
    raise DataError(
        f"{path}: the format cannot be told, since {found}. Say which one it is: {_names()}."
    )


def _names() -> str:
    return ", ".join(FORMATS)
