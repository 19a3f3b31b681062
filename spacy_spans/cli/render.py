"""`python -m spacy spans render`: a thin shell over spacy_spans.viz."""

from pathlib import Path
from typing import Annotated

import typer

from spacy_spans.cli._shared import failures_exit, show_progress
from spacy_spans.files import check_writable, replacing


def render_cli(
    pipeline: Annotated[Path, typer.Argument(help="Folder of a trained pipeline")],
    data: Annotated[Path, typer.Argument(help="Gold: a .spacy file, or a folder with some")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write")],
    spans_key: Annotated[str, typer.Option(help="Key in doc.spans")] = "sc",
    limit: Annotated[int, typer.Option(help="Most documents, from the start", min=0)] = 20,
    title: Annotated[str, typer.Option(help="Heading of the page")] = "Gold and predicted spans",
) -> None:
    """Draw predicted spans beside gold ones, on one HTML page."""
    with failures_exit():
        check_writable(output)
        from itertools import islice

        from spacy_spans import viz
        from spacy_spans.coverage import read_docs

        nlp = viz.load_pipeline(pipeline)
        gold = list(islice(read_docs(data, nlp.vocab), limit))
        predicted = list(show_progress(viz.predict(nlp, gold), total=len(gold), unit="docs"))
        viz.check_keys(gold, predicted, spans_key)
        pairs = list(zip(gold, predicted, strict=True))
        with replacing(output) as path:
            page = viz.render_page(pairs, spans_key=spans_key, title=title)
            path.write_text(page, encoding="utf8")
        typer.echo(f"Wrote {len(pairs)} documents to {output}")
