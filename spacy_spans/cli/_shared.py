"""What several subcommands need. Light to import: spaCy imports it with every command."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from wasabi.printer import Printer

from spacy_spans.errors import SpansError


@contextmanager
def exit_on_error(title: str) -> Iterator[Printer]:
    """Turn errors that a user can mend into a message and exit code 1, without a traceback.

    title (str): What could not be done, such as "Cannot convert".
    YIELDS (Printer): What to print with.
    """
    msg = Printer()
    try:
        yield msg
    except (SpansError, OSError) as error:
        msg.fail(title, str(error))
        raise typer.Exit(1) from None


def split_list(value: str | None) -> tuple[str, ...]:
    """Parts of a comma-separated option, without white space around them. None gives ()."""
    return tuple(part.strip() for part in value.split(",")) if value is not None else ()
