from collections.abc import Callable
from pathlib import Path

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc

from spacy_spans.converters import ConversionReport, ConvertSettings, read_docs

Read = Callable[..., tuple[list[Doc], ConversionReport]]
Write = Callable[[str, str | bytes], Path]


@pytest.fixture(scope="session")
def nlp() -> Language:
    return spacy.blank("en")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file below the test's folder; text goes in as it is, line ends too."""

    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf8") if isinstance(content, str) else content)
        return path

    return write_file


@pytest.fixture
def read(nlp: Language) -> Read:
    """Read a file or folder to the end; keyword arguments are settings."""

    def read_all(path: Path, **settings: object) -> tuple[list[Doc], ConversionReport]:
        report, docs = read_docs(path, nlp, ConvertSettings(**settings))  # type: ignore[arg-type]
        return list(docs), report

    return read_all
