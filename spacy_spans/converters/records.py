"""What every reader yields, and what readers share: lines, texts, checked offsets."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from spacy_spans.errors import DataError

Offsets = tuple[int, int]


class Annotation(NamedTuple):
    """One annotated mention, in characters of its text.

    label (str): Never empty.
    fragments (tuple): Half-open (start, end) pairs, in order, not overlapping; one for an
        ordinary mention, several for a discontinuous one.
    """

    label: str
    fragments: tuple[Offsets, ...]


@dataclass
class Record:
    """One document as read.

    text (str): Its text.
    annotations (list): In the order of the file, repetitions included.
    where (str): File and line, for messages.
    words, spaces, sent_starts (list): Given tokens, whether each is followed by a space, whether
        each starts a sentence. Without words the text is still to be tokenized.
    """

    text: str
    annotations: list[Annotation]
    where: str
    words: list[str] | None = None
    spaces: list[bool] | None = None
    sent_starts: list[bool | int | None] | None = None


@dataclass(frozen=True)
class ReaderOptions:
    """What the user may tell a reader.

    labels (tuple): Names for labels the format lacks: of each tag column (conll), of the one
        label (toxic).
    columns (tuple): Tag columns, counted from 1, the token column (conll). Empty for all but
        the first.
    n_sents (int | None): Sentences in a document, 0 for all up to the next -DOCSTART- (conll).
        None: 0 when the file has -DOCSTART- lines, else 1.
    """

    labels: tuple[str, ...] = field(default=())
    columns: tuple[int, ...] = field(default=())
    n_sents: int | None = None


def read_bytes(path: Path) -> bytes:
    """The content of a file. Raises DataError when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from error


def decode(raw: bytes, path: Path, *, first_line: int = 1) -> str:
    """UTF-8 to text; a byte order mark at the start of a file is dropped.

    Raises DataError with the line of the first byte that is not UTF-8.
    """
    if first_line == 1 and raw.startswith(b"\x1f\x8b"):
        raise DataError(
            f"{path}: the file is compressed with gzip, expected a text file. Run gunzip first."
        )
    try:
        return raw.decode("utf-8-sig" if first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = first_line + raw[: error.start].count(b"\n")
        raise DataError(
            f"{path}, line {line}: byte {raw[error.start]:#04x} is not UTF-8. Expected a text "
            "file in UTF-8: convert it first, for instance with iconv."
        ) from error


def read_text(path: Path) -> str:
    """The whole text of a file, line ends as they are, since offsets count them.

    Raises DataError when it cannot be read or is not UTF-8.
    """
    return decode(read_bytes(path), path)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number, from 1, and text of each line, without its line end (LF or CRLF).

    Only these two end a line: str.splitlines would also break at characters that occur in text.
    Raises DataError when the file is empty, cannot be read or is not UTF-8.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from error
    number = 0
    with file:
        for number, raw in enumerate(file, start=1):
            yield number, decode(raw, path, first_line=number).rstrip("\n").removesuffix("\r")
    if not number:
        fail_empty(path)


def fail_empty(path: Path) -> NoReturn:
    """Raise DataError for an empty file."""
    raise DataError(f"{path}: the file is empty. Expected at least one document.")


def fail(where: str, message: str) -> NoReturn:
    """Raise DataError for a place in a file."""
    raise DataError(f"{where}: {message}")


def check_text(value: Any, where: str, name: str = "text") -> str:
    """A text spaCy can hold, or DataError: a string, without halves of surrogate pairs."""
    if not isinstance(value, str):
        fail(where, f"{name!r} is {shown(value)}, expected a string.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        fail(
            where,
            f"{name!r} has half of a surrogate pair at character {error.start}, which is no "
            "Unicode text. Write the whole pair, or the character itself.",
        )
    return value


def check_label(value: Any, where: str) -> str:
    """A label, or DataError: a string that is not empty."""
    if not isinstance(value, str) or not value.strip():
        fail(where, f"'label' is {shown(value)}, expected a string that is not empty.")
    return check_text(value, where, "label")


def check_offsets(start: Any, end: Any, length: int, where: str) -> Offsets:
    """Offsets inside of a text of `length` characters, or DataError."""
    for name, value in (("start", start), ("end", end)):
        # bool is an int to Python, but not to anyone who writes offsets.
        if not isinstance(value, int) or isinstance(value, bool):
            fail(where, f"'{name}' is {shown(value)}, expected an integer: a character offset.")
    if start >= end:
        fail(where, f"start {start} is not before end {end}. The end is exclusive.")
    if start < 0 or end > length:
        fail(
            where,
            f"offsets {start} to {end} lie outside of the text, which has {length} characters. "
            "Offsets count Unicode characters, neither bytes nor UTF-16 units.",
        )
    return start, end


def check_fragments(fragments: list[Offsets], where: str) -> tuple[Offsets, ...]:
    """Checked offsets in order, or DataError when two of them overlap."""
    ordered = sorted(fragments)
    for (start, end), (next_start, next_end) in pairwise(ordered):
        if next_start < end:
            fail(
                where,
                f"fragments {start} to {end} and {next_start} to {next_end} overlap. Expected "
                "parts of one mention that are disjoint.",
            )
    return tuple(ordered)


def shown(value: Any) -> str:
    """A value for a message, shortened."""
    if value is None:
        return "missing or null"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
