"""`python -m spacy spans coverage`: a thin shell over spacy_spans.coverage."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from spacy_spans.cli._shared import JsonPath, exit_on_error
from spacy_spans.files import check_writable, replacing, write_json
from spacy_spans.runtime import require_matplotlib


def coverage_cli(
    data: Annotated[Path, typer.Argument(help="A .spacy file, or a folder with some")],
    spans_key: Annotated[str, typer.Option("--spans-key", "-k", help="Key in doc.spans")] = "sc",
    lang: Annotated[str, typer.Option("--lang", "-l", help="Language code of the data")] = "en",
    max_cost: Annotated[
        int,
        typer.Option(
            help="Most candidates per 1,000 tokens that a recommendation may cost. 64000 are about "
            "all spans of up to 64 tokens",
            min=0,
        ),
    ] = 64_000,
    json_path: JsonPath = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw reach and cost to this image (.png, .svg, ...); needs matplotlib"),
    ] = None,
) -> None:
    """Measure gold spans, and what each max_length would reach and cost.

    Shares are of spans, over all labels of a document. Nested: within another span, or around one.
    Overlap: shares a token with another. Cross: overlaps and is not nested with that one. Two
    spans at the same place are nested and overlap. Candidates do not leave their document, or
    their sentence where the data has sentence boundaries.
    """
    with exit_on_error("Cannot measure"):
        from tqdm import tqdm

        from spacy_spans import coverage, coverage_report
        from spacy_spans.converters.convert import make_tokenizer
        from spacy_spans.readers import read_docbin

        # What cannot be written is found before the work is done.
        for path, other in ((json_path, plot), (plot, json_path)):
            if path is not None:
                check_writable(path, inputs=[data], others=[other])
        if plot is not None:
            require_matplotlib()
        docs = read_docbin(data, make_tokenizer(lang).vocab)
        report = coverage.measure_coverage(
            tqdm(docs, unit=" docs", leave=False, disable=None),
            spans_key=spans_key,
            max_cost=max_cost,
        )
        # Printer.text would wrap the tables.
        typer.echo(coverage_report.format_report(report, unicode=_can_show("▁█")))
        if json_path is not None:
            write_json(json_path, {"data": str(data), **report})
        if plot is not None:
            with replacing(plot) as path:
                coverage_report.plot_report(report, path, plot.suffix.lstrip(".") or "png")


def _can_show(text: str) -> bool:
    try:
        # There is no output at all after `>&-`.
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
