"""`python -m spacy spans render`: a thin shell over spacy_spans.viz."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from spacy_spans.cli._shared import exit_on_error
from spacy_spans.files import check_writable, replacing
from spacy_spans.keys import printable


def render_cli(
    pipeline: Annotated[Path, typer.Argument(help="Folder of a trained pipeline")],
    data: Annotated[Path, typer.Argument(help="Gold: a .spacy file, or a folder with some")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write")],
    spans_key: Annotated[str, typer.Option("--spans-key", "-k", help="Key in doc.spans")] = "sc",
    limit: Annotated[int, typer.Option(help="Most documents, from the start", min=0)] = 20,
    title: Annotated[str, typer.Option(help="Heading of the page")] = "Gold and predicted spans",
) -> None:
    """Draw predicted spans beside gold ones, on one HTML page."""
    with exit_on_error("Cannot render") as msg:
        from itertools import islice

        from tqdm import tqdm

        from spacy_spans import viz
        from spacy_spans.coverage import read_docs

        check_writable(output, inputs=[pipeline, data])
        nlp = viz.load_pipeline(pipeline)
        gold = list(islice(read_docs(data, nlp.vocab), min(limit, sys.maxsize)))
        predicted = list(
            tqdm(viz.predict(nlp, gold), total=len(gold), unit=" docs", leave=False, disable=None)
        )
        viz.check_keys(gold, predicted, spans_key)
        page = viz.render_page(
            list(zip(gold, predicted, strict=True)), spans_key=spans_key, title=title
        )
        with replacing(output) as path:
            path.write_text(page, encoding="utf8", errors="replace")
        name = printable(str(output))
        msg.good(f"Wrote {len(gold)} documents to {name} (at most {limit}: see --limit)")
