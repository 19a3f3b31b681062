"""`python -m spacy spans coverage`: a thin shell over spacy_spans.coverage."""

from pathlib import Path
from typing import Annotated, Optional

import typer

from spacy_spans.cli._shared import (
    blank_pipeline,
    failures_exit,
    show_progress,
    write_atomically,
    write_json,
)


def coverage_cli(
    data: Annotated[Path, typer.Argument(help="A .spacy file, or a folder with some")],
    spans_key: Annotated[str, typer.Option(help="Key in doc.spans")] = "sc",
    lang: Annotated[str, typer.Option(help="Language code of the data")] = "en",
    max_cost: Annotated[
        int,
        typer.Option(
            help="Most candidates per 1,000 tokens that a recommendation may cost. 64000 are about "
            "all spans of up to 64 tokens"
        ),
    ] = 64_000,
    json: Annotated[Optional[Path], typer.Option(help="Write the report to this file")] = None,
    plot: Annotated[
        Optional[Path],
        typer.Option(help="Draw reach and cost to this image (.png, .svg, ...); needs matplotlib"),
    ] = None,
) -> None:
    """Measure gold spans, and what candidates of each length would reach and cost.

    Shares are of spans, over all labels of a document. Nested: within another span, or around one.
    Overlap: shares a token with another. Cross: overlaps and is not nested with that one. Two
    spans at the same place are nested and overlap. Candidates do not leave their document, or
    their sentence where the data has sentence boundaries.
    """
    from spacy_spans import coverage

    with failures_exit():
        if plot is not None:
            coverage.require_matplotlib()
        docs = coverage.read_docs(data, blank_pipeline(lang).vocab)
        report = coverage.measure_coverage(
            show_progress(docs, unit="docs"), spans_key=spans_key, max_cost=max_cost
        )
        typer.echo(coverage.format_report(report, unicode=_can_show("▁█")))
        if json is not None:
            write_json(json, {"data": str(data), **report})
        if plot is not None:
            with write_atomically(plot) as path:
                coverage.plot_report(report, path)


def _can_show(text: str) -> bool:
    import sys

    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
