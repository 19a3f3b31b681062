"""`python -m spacy spans render`: a thin shell over spacy_spans.viz."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spacy_spans.cli._shared import CodePath, GpuId, exit_on_error, split_list
from spacy_spans.files import check_writable, replacing, write_json
from spacy_spans.keys import printable
from spacy_spans.runtime import import_code, use_gpu

if TYPE_CHECKING:
    from spacy_spans.viz import Side


def render_cli(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="PIPELINE_OR_DOCBIN",
            help="Folder or name of a trained pipeline; or, without TEXTS, a .spacy file or a "
            "folder with some",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write")],
    texts: Annotated[
        Path | None,
        typer.Argument(
            help="What the pipeline reads: gold, as a .spacy file or a folder with some; or texts "
            'only, one a line: .jsonl with "text", anything else plain'
        ),
    ] = None,
    spans_key: Annotated[
        str | None,
        typer.Option("--spans-key", "-k", help="Keys in doc.spans, as in a,b. Default: all"),
    ] = None,
    limit: Annotated[int, typer.Option(help="Show the first so many documents only", min=0)] = 2000,
    title: Annotated[str | None, typer.Option(help="Heading of the page")] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Also write counts of spans to this file, as JSON")
    ] = None,
    gpu_id: GpuId = -1,
    code: CodePath = None,
) -> None:
    """Show spans over their text, on one HTML page that any browser opens.

    With a pipeline and gold: what it predicts against gold. With a pipeline and texts: what it
    predicts. With a .spacy file alone: all spans it has.
    """
    with exit_on_error("Cannot render") as msg:
        from spacy_spans import viz
        from spacy_spans.groups import count_spans

        inputs = [path for path in (source, texts) if path is not None]
        for path, other in ((output, json_path), (json_path, output)):
            if path is not None:
                check_writable(path, inputs=[*inputs, *([code] if code else [])], others=[other])
        use_gpu(gpu_id)
        import_code(code)
        sides = _read_sides(source, texts, min(limit, sys.maxsize))
        keys = split_list(spans_key)
        for line in viz.check_keys(sides, keys):
            msg.warn(printable(line))
        default = ": ".join(
            ["Gold and predicted spans" if len(sides) > 1 else "Spans", inputs[-1].name]
        )
        page = viz.render_page(sides, spans_keys=keys, title=default if title is None else title)
        with replacing(output) as path:
            path.write_text(page, encoding="utf8", errors="replace", newline="\n")
        n_docs = len(sides[0][1])
        if json_path is not None:
            report: dict[str, Any] = {
                "pipeline": str(source) if texts is not None else None,
                "data": str(inputs[-1]),
                "output": str(output),
                "spans_keys": list(keys),
                "documents": n_docs,
            }
            write_json(
                json_path, report | {side or "spans": count_spans(docs) for side, docs in sides}
            )
        more = f" (the first {limit}: see --limit)" if n_docs == limit else ""
        msg.good(f"Wrote {n_docs} documents to {printable(str(output))}{more}")


def _read_sides(source: Path, texts: Path | None, limit: int) -> "list[Side]":
    """The documents of each source of spans; gold first."""
    from itertools import islice

    import spacy
    from spacy.util import is_package
    from tqdm import tqdm

    from spacy_spans import pipelines
    from spacy_spans.errors import SettingsError
    from spacy_spans.readers import read_docbin
    from spacy_spans.texts import read_texts

    if texts is None:
        if (source / "config.cfg").is_file() or is_package(str(source)):
            raise SettingsError(
                f"{source} is a pipeline, and there is nothing for it to read. Name gold data "
                "(.spacy) or texts (.jsonl, .txt) after it"
            )
        return [("", list(islice(read_docbin(source, spacy.blank("xx").vocab), limit)))]
    nlp = pipelines.load_pipeline(source)
    has_gold = texts.suffix == ".spacy" or texts.is_dir() or not texts.exists()
    inputs = (
        list(islice(read_docbin(texts, nlp.vocab), limit))
        if has_gold
        else [nlp.tokenizer(text) for text in islice(read_texts(texts), limit)]
    )
    predicted = list(
        tqdm(
            pipelines.predict(nlp, inputs),
            total=len(inputs),
            unit=" docs",
            leave=False,
            disable=None,
        )
    )
    return [("gold", inputs), ("predicted", predicted)] if has_gold else [("predicted", predicted)]
