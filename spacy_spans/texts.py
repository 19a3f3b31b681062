"""Read texts without annotations, one a line."""

import json
from collections.abc import Iterator
from pathlib import Path

from spacy_spans.errors import DataError


def read_texts(path: Path) -> Iterator[str]:
    """Read one text from each line of a file; empty lines are passed over.

    path (Path): UTF-8. With the ending .jsonl or .ndjson, each line is a JSON object with "text".
    YIELDS (str): Texts, in order.
    RAISES (DataError): The file cannot be read, is no UTF-8, or a line is no such object.
    """
    is_json = path.suffix in (".jsonl", ".ndjson")
    number = 0
    try:
        # Only "\n": other separators of lines, such as U+2028, are part of a text.
        with path.open(encoding="utf-8-sig", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _read_json(path, number, line) if is_json else line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, after line {number}: not UTF-8 ({error.reason}). Expected plain text, or "
            "annotated documents with the ending .spacy"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from error


def _read_json(path: Path, number: int, line: str) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise DataError(
            f'{path}, line {number}: expected a JSON object with a string as "text", such as '
            '{"text": "Melt the butter."}'
        )
    return text
