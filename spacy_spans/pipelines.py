"""Load a trained pipeline and run it on gold documents, with errors that say what to do next."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import spacy
import srsly
from spacy.language import Language
from spacy.strings import StringStore
from spacy.tokenizer import Tokenizer
from spacy.tokens import Doc
from spacy.util import is_package, load_config
from spacy.vocab import Vocab

from spacy_spans.errors import DataError, SettingsError, SpansError

# Characters of a document that a message shows.
TEXT_LENGTH = 60
# Files of a pipeline whose damage spaCy reports without their name, and what reads them.
_READERS: dict[str, Callable[[Path], Any]] = {
    "config.cfg": lambda path: load_config(path)["nlp"],
    "meta.json": srsly.read_json,
    "tokenizer": lambda path: Tokenizer(Vocab()).from_disk(path),
    "vocab/strings.json": lambda path: StringStore().from_disk(path),
    "vocab/lookups.bin": lambda path: dict(srsly.read_msgpack(path)),
    "vocab/vectors": np.load,
    "vocab/vectors.cfg": srsly.read_json,
    "vocab/key2row": lambda path: dict(srsly.read_msgpack(path)),
}


def load_pipeline(path: Path, *, overrides: Mapping[str, Any] | None = None) -> Language:
    """Load a trained pipeline from its folder, or an installed one by its name.

    path (Path): What `spacy train` leaves in `model-best`, or the name of a package.
    overrides (Mapping | None): Settings that replace those of its config, as for `spacy.load`.
    RETURNS (Language): The pipeline.
    RAISES (SettingsError): There is no pipeline at that path.
    RAISES (DataError): There is one that cannot be loaded, such as half of one.
    """
    if not (path / "config.cfg").is_file() and not is_package(str(path)):
        raise SettingsError(
            f"{path} is not the folder of a pipeline: it has no config.cfg. Expected what "
            "`python -m spacy train` writes, such as training/model-best, or the name of a "
            "pipeline that is installed"
        )
    try:
        return spacy.load(path if path.exists() else str(path), config=dict(overrides or {}))
    # Every file of the folder has a reader of its own, any component may be among them, and what
    # they raise when something is broken or missing has no common type.
    except Exception as error:
        raise DataError(
            f"The pipeline in {path} cannot be loaded ({type(error).__name__}: {error})."
            f"{_name_damaged(path)} Expected a folder as `python -m spacy train` wrote it, and the "
            "packages of its components installed. Copy or train it again, or install what is "
            "missing."
        ) from error


def _name_damaged(path: Path) -> str:
    """A sentence that names the file of a pipeline which cannot be read; "" where there is none."""
    for name, read in _READERS.items():
        try:
            if (path / name).is_file():
                read(path / name)
        # Each reader raises what it likes.
        except Exception:
            return f" Its file {str(path / name)!r} is damaged."
    return ""


def predict(nlp: Language, gold: Sequence[Doc], *, batch_size: int | None = None) -> Iterator[Doc]:
    """Run a pipeline on the texts of gold documents, as `spacy evaluate` does.

    nlp (Language): The pipeline; it tokenizes the texts itself.
    gold (Sequence[Doc]): Documents. The words of one whose spaces are unknown are kept.
    batch_size (int | None): Documents in a batch; None for the pipeline's own.
    YIELDS (Doc): New documents in the same order; none for none.
    RAISES (SpansError): A component fails; names it and the document.
    """
    inputs = (unannotated(nlp, doc) for doc in gold)
    with _naming_failures(nlp):
        yield from nlp.pipe(inputs, batch_size=batch_size)


@contextmanager
def _naming_failures(nlp: Language) -> Iterator[None]:
    """Say which component fails on which document; error handlers are as before afterwards."""
    default = nlp.default_error_handler
    handlers = {
        name: pipe.get_error_handler()
        for name, pipe in nlp.pipeline
        if hasattr(pipe, "get_error_handler")
    }
    nlp.set_error_handler(_raise_named)
    try:
        yield
    except SpansError:
        raise
    # Components with a `pipe` of their own may ask no error handler, nor does the tokenizer. What
    # they raise has no common type.
    except Exception as error:
        raise SpansError(
            f"The tokenizer or one of {list(nlp.pipe_names)} failed while predicting "
            f"({type(error).__name__}: {error}). Run the pipeline on single texts to see on which, "
            "mend or remove the component, or leave the document out."
        ) from error
    finally:
        nlp.default_error_handler = default
        for name, pipe in nlp.pipeline:
            if name in handlers and hasattr(pipe, "set_error_handler"):
                pipe.set_error_handler(handlers[name])


def _raise_named(name: str, pipe: Any, docs: Sequence[Doc], error: Exception) -> NoReturn:
    """spaCy's error handler: raise SpansError with the component and the document."""
    if isinstance(error, SpansError):
        raise error
    failing = _find_failing(pipe, docs)
    which = "" if len(failing) == 1 else f"one of {len(failing)} documents, the first of them "
    text = " ".join(failing[0].text.split())
    shown = text if len(text) <= TEXT_LENGTH else text[: TEXT_LENGTH - 1] + "…"
    raise SpansError(
        f"The component {name!r} failed while predicting, on {which}{shown!r} "
        f"({type(error).__name__}: {error}). Mend or remove the component, or leave the document "
        "out."
    ) from error


def _find_failing(pipe: Any, docs: Sequence[Doc]) -> Sequence[Doc]:
    """The first document of a failed batch that fails alone; all of them if none does."""
    for doc in docs if len(docs) > 1 else ():
        try:
            pipe(doc.copy())
        except Exception:
            return [doc]
    return docs


def unannotated(nlp: Language, gold: Doc) -> Doc:
    """The text of a gold document as the pipeline tokenizes it; words alone where spaces are
    unknown.
    """
    if gold.has_unknown_spaces:
        return Doc(nlp.vocab, words=[token.text for token in gold])
    # Not nlp.make_doc: its limit on the length is there for the parser.
    return nlp.tokenizer(gold.text)


def require_key(docs: Sequence[Doc], spans_key: str, side: str) -> None:
    """Stop when no document has the key.

    docs (Sequence[Doc]): Documents; without any, none has it.
    spans_key (str): Key in doc.spans.
    side (str): What the documents are, to begin the message with.
    RAISES (DataError): Names the side and the keys it has.
    """
    keys = {key for doc in docs for key in doc.spans}
    if spans_key not in keys:
        raise DataError(
            f"{side} has no doc.spans[{spans_key!r}], only {sorted(keys) or 'no keys at all'}: "
            "pass a key that is there as --spans-key"
        )
