"""What several subcommands need. Light to import: spaCy imports it with every command."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeAlias

import typer
from wasabi.printer import Printer
from wasabi.util import ICONS

from spacy_spans.errors import SpansError
from spacy_spans.keys import printable

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

# Arguments and options that several commands have.
TrainedPath: TypeAlias = Annotated[Path, typer.Argument(help="Folder of a trained pipeline")]
HeldOutPath: TypeAlias = Annotated[
    Path,
    typer.Argument(
        help="Documents with gold spans that it was not trained on: a .spacy file, or a folder "
        "with some"
    ),
]
GoldPath: TypeAlias = Annotated[
    Path, typer.Argument(help="Documents with gold spans: a .spacy file, or a folder with some")
]
NewPath: TypeAlias = Annotated[
    Path, typer.Option("--output", "-o", help="Folder to write the new pipeline to")
]
ComponentName: TypeAlias = Annotated[
    str | None, typer.Option("--name", "-n", help="Name of the component, if there are several")
]
JsonPath: TypeAlias = Annotated[
    Path | None, typer.Option("--json", help="Also write the report to this file, as JSON")
]
GpuId: TypeAlias = Annotated[int, typer.Option("--gpu-id", "-g", help="GPU to use, -1 for the CPU")]
CodePath: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--code", "-c", help="Python file to import first, for the functions that it registers"
    ),
]


@contextmanager
def exit_on_error(title: str) -> Iterator[Printer]:
    """Turn errors that a user can mend into a message and exit code 1, without a traceback.

    Meant for all of a command: characters that the terminal cannot show are escaped instead of
    failing, and the signals that end a process (TERM, HUP) unwind it, so that no half of a file
    stays behind.

    title (str): What could not be done, such as "Cannot convert".
    YIELDS (Printer): What to print with.
    """
    _escape_what_cannot_be_shown()
    msg = _make_printer()
    try:
        try:
            with _unwinding_on_signals():
                yield msg
        except (SpansError, OSError) as error:
            # Line breaks are folded into the paragraph.
            msg.fail(title, printable(str(error), keep="\n"))
            raise typer.Exit(1) from None
        finally:
            # Not left to the end of the process, where a failure can no longer be caught.
            if sys.stdout is not None:
                sys.stdout.flush()
    # Only printing is left to fail: the disk is full, or nobody reads any more.
    except OSError as error:
        _drop_output()
        if not isinstance(error, BrokenPipeError):
            typer.echo(f"Cannot print: {error.strerror}", err=True)
        raise typer.Exit(1) from None


def load_with_gold(
    pipeline: Path,
    data: Path,
    *,
    output: Path,
    json_path: Path | None,
    gpu_id: int,
    code: Path | None,
) -> tuple["Language", "list[Doc]"]:
    """What a command needs that makes another pipeline of a trained one.

    output, json_path (Path): Checked before anything is loaded.
    gpu_id, code: As for `runtime.use_gpu` and `runtime.import_code`.
    RETURNS (tuple): The pipeline, and all documents of the data.
    RAISES (SpansError): Something cannot be read, or will not be written.
    """
    from spacy_spans.files import check_folder_writable, check_writable
    from spacy_spans.pipelines import load_pipeline
    from spacy_spans.readers import read_docbin
    from spacy_spans.runtime import import_code, use_gpu

    inputs = [pipeline, data, *([code] if code else [])]
    check_folder_writable(output, inputs=inputs)
    if json_path is not None:
        check_writable(json_path, inputs=inputs, others=[output])
    use_gpu(gpu_id)
    import_code(code)
    nlp = load_pipeline(pipeline)
    return nlp, list(read_docbin(data, nlp.vocab))


def split_list(value: str | None) -> tuple[str, ...]:
    """Parts of a comma-separated option, without white space around them. None gives ()."""
    return tuple(part.strip() for part in value.split(",")) if value is not None else ()


def _make_printer() -> Printer:
    # Wasabi passes messages with an icon through the terminal's encoding, and reads the outcome
    # as UTF-8.
    is_utf8 = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    return Printer(icons={} if is_utf8 else dict.fromkeys(ICONS, ""))


def _escape_what_cannot_be_shown() -> None:
    for stream in (sys.stdout, sys.stderr):
        # None where there is none; something else than a text file where it is caught.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Send what is still to be printed nowhere, or it would be tried again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextmanager
def _unwinding_on_signals() -> Iterator[None]:
    def end(number: int, frame: object) -> NoReturn:
        # What a shell reports for a process that a signal ended.
        raise SystemExit(128 + number)

    # Python lets only the main thread set handlers. One that is set already stays: nohup has HUP
    # ignored. Windows has no HUP.
    numbers = []
    if threading.current_thread() is threading.main_thread():
        known = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))
        numbers = [n for n in known if n and signal.getsignal(n) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
