"""`python -m spacy spans evaluate`: a thin shell over spacy_spans.evaluation."""

from pathlib import Path
from typing import Annotated

import typer

from spacy_spans.cli._shared import CodePath, GoldPath, GpuId, JsonPath, exit_on_error, split_list
from spacy_spans.files import check_writable, write_json
from spacy_spans.runtime import import_code, use_gpu


def evaluate_cli(
    pipeline: Annotated[
        Path, typer.Argument(help="Folder of a trained pipeline, or the name of an installed one")
    ],
    data: GoldPath,
    spans_key: Annotated[
        str | None,
        typer.Option("--spans-key", "-k", help="Keys in doc.spans, as in a,b. Default: all"),
    ] = None,
    json_path: JsonPath = None,
    worst: Annotated[
        int, typer.Option(help="How many of the documents with the most errors to list", min=0)
    ] = 5,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Documents in a batch. Default: the pipeline's own", min=1),
    ] = None,
    gpu_id: GpuId = -1,
    code: CodePath = None,
) -> None:
    """Score the spans of any pipeline, stock components included, against gold.

    Strict: boundaries and label are right. Overlap: credits the shared tokens of spans of the same
    label. Characters: F1 of the text inside of spans, the mean over documents. Mentions: label and
    all fragments are right. Candidates: the share of gold that could have been found.
    """
    with exit_on_error("Cannot evaluate"):
        from spacy_spans import evaluation, pipelines
        from spacy_spans.readers import read_docbin

        if json_path is not None:
            inputs = [pipeline, data, *([code] if code else [])]
            check_writable(json_path, inputs=inputs)
        use_gpu(gpu_id)
        import_code(code)
        nlp = pipelines.load_pipeline(pipeline)
        report = evaluation.evaluate(
            nlp,
            list(read_docbin(data, nlp.vocab)),
            spans_keys=split_list(spans_key),
            batch_size=batch_size,
            progress=True,
        )
        # Printer.text would wrap the tables.
        typer.echo(evaluation.format_report(report, worst=worst))
        if json_path is not None:
            write_json(json_path, {"pipeline": str(pipeline), "data": str(data), **report})
