"""`python -m spacy spans render`: a thin shell over spacy_spans.viz."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from spacy_spans.cli._shared import exit_on_error
from spacy_spans.files import check_writable, replacing, write_json
from spacy_spans.keys import printable


def render_cli(
    pipeline: Annotated[Path, typer.Argument(help="Folder of a trained pipeline")],
    data: Annotated[Path, typer.Argument(help="Gold: a .spacy file, or a folder with some")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write")],
    spans_key: Annotated[str, typer.Option("--spans-key", "-k", help="Key in doc.spans")] = "sc",
    limit: Annotated[int, typer.Option(help="Most documents, from the start", min=0)] = 20,
    title: Annotated[str, typer.Option(help="Heading of the page")] = "Gold and predicted spans",
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Also write counts of spans to this file, as JSON")
    ] = None,
) -> None:
    """Draw predicted spans beside gold ones, on one HTML page."""
    with exit_on_error("Cannot render") as msg:
        from itertools import islice

        from tqdm import tqdm

        from spacy_spans import pipelines, viz
        from spacy_spans.groups import count_spans
        from spacy_spans.readers import read_docbin

        for path, other in ((output, json_path), (json_path, output)):
            if path is not None:
                check_writable(path, inputs=[pipeline, data], others=[other])
        nlp = pipelines.load_pipeline(pipeline)
        gold = list(islice(read_docbin(data, nlp.vocab), min(limit, sys.maxsize)))
        predicted = list(
            tqdm(
                pipelines.predict(nlp, gold),
                total=len(gold),
                unit=" docs",
                leave=False,
                disable=None,
            )
        )
        pipelines.check_keys(gold, predicted, spans_key)
        page = viz.render_page(
            list(zip(gold, predicted, strict=True)), spans_key=spans_key, title=title
        )
        with replacing(output) as path:
            path.write_text(page, encoding="utf8", errors="replace")
        if json_path is not None:
            counts = {"gold": count_spans(gold), "predicted": count_spans(predicted)}
            paths = {"pipeline": str(pipeline), "data": str(data), "output": str(output)}
            settings = {"spans_key": spans_key, "documents": len(gold)}
            write_json(json_path, {**paths, **settings, **counts})
        name = printable(str(output))
        msg.good(f"Wrote {len(gold)} documents to {name} (at most {limit}: see --limit)")
