"""`python -m spacy spans calibrate-pruner`: a thin shell over spacy_spans.pruner_calibration."""

from pathlib import Path
from typing import Annotated

import typer

from spacy_spans.cli._shared import CodePath, GpuId, JsonPath, exit_on_error
from spacy_spans.files import check_folder_writable, check_writable, replacing_folder, write_json
from spacy_spans.runtime import import_code, use_gpu


def calibrate_pruner_cli(
    pipeline: Annotated[Path, typer.Argument(help="Folder of a trained pipeline")],
    data: Annotated[
        Path, typer.Argument(help="Gold it was not trained on: a .spacy file, or a folder")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the pipeline with its threshold")
    ],
    name: Annotated[
        str | None, typer.Option("--name", "-n", help="The pruner, where there are several")
    ] = None,
    json_path: JsonPath = None,
    gpu_id: GpuId = -1,
    code: CodePath = None,
) -> None:
    """Fit the threshold of a token_pruner that is to keep a share of whole spans.

    The pruner needs the policy spacy-spans.recall_target_policy.v1. Also shows what other shares
    would cost in tokens kept.
    """
    with exit_on_error("Cannot calibrate"):
        from spacy_spans import pipelines, pruner_calibration
        from spacy_spans.readers import read_docbin

        inputs = [pipeline, data, *([code] if code else [])]
        check_folder_writable(output, inputs=inputs)
        if json_path is not None:
            check_writable(json_path, inputs=inputs)
        use_gpu(gpu_id)
        import_code(code)
        nlp = pipelines.load_pipeline(pipeline)
        gold = list(read_docbin(data, nlp.vocab))
        report = pruner_calibration.calibrate_pruner(nlp, gold, name=name, progress=True)
        with replacing_folder(output) as folder:
            nlp.to_disk(folder)
        typer.echo(pruner_calibration.format_report(report))
        if json_path is not None:
            write_json(json_path, {"pipeline": str(pipeline), "data": str(data), **report})
