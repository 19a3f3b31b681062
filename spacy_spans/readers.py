"""Read annotated documents from `.spacy` files."""

from collections.abc import Iterator
from pathlib import Path

from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab

from spacy_spans.errors import DataError
from spacy_spans.files import list_visible


def read_docbin(path: Path, vocab: Vocab) -> Iterator[Doc]:
    """Read documents one by one from a .spacy file, or from all of them in a folder.

    path (Path): A file written by DocBin.to_disk, or a folder with such files at any depth.
    vocab (Vocab): Vocabulary of the documents.
    YIELDS (Doc): Documents in order, files by name; none from a file without documents. Hidden
        files of a folder are passed over, as `spacy train` does.
    RAISES (DataError): The path is missing, cannot be read, is a folder without .spacy files, or
        is no DocBin or a damaged one.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist: expected a .spacy file, or a folder with some")
    files = [path]
    if path.is_dir():
        files = [file for file in list_visible(path) if file.suffix == ".spacy"]
    if not files:
        raise DataError(
            f"{path} has no .spacy file: make some with `python -m spacy spans convert`"
        )
    for file in files:
        try:
            for doc in DocBin().from_disk(file).get_docs(vocab):
                _check_groups(doc)
                yield doc
        except OSError as error:
            raise DataError(f"{file}: cannot be read: {error.strerror}.") from error
        # zlib, msgpack, numpy and spaCy each have errors of their own for content that is
        # something else or damaged. What the caller does with a document raises elsewhere.
        except Exception as error:
            raise DataError(
                f"{file} is not a .spacy file, or is damaged ({type(error).__name__}: {error}). "
                "Make one with `python -m spacy spans convert`."
            ) from error


def _check_groups(doc: Doc) -> None:
    """Look at every span, since a damaged one fails only then."""
    for group in doc.spans.values():
        for span in group:
            span.label_  # noqa: B018
