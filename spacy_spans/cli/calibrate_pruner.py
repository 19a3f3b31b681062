"""`python -m spacy spans calibrate-pruner`: a thin shell over spacy_spans.pruner_calibration."""

import typer

from spacy_spans.cli._shared import (
    CodePath,
    ComponentName,
    GpuId,
    HeldOutPath,
    JsonPath,
    NewPath,
    TrainedPath,
    exit_on_error,
    load_with_gold,
)
from spacy_spans.files import replacing_folder, write_json


def calibrate_pruner_cli(
    pipeline: TrainedPath,
    data: HeldOutPath,
    output: NewPath,
    name: ComponentName = None,
    json_path: JsonPath = None,
    gpu_id: GpuId = -1,
    code: CodePath = None,
) -> None:
    """Fit the threshold of a token_pruner that is to keep a share of whole spans.

    The pruner needs the policy spacy-spans.recall_target_policy.v1. Also shows what other shares
    would cost in tokens kept.
    """
    with exit_on_error("Cannot calibrate"):
        from spacy_spans import pruner_calibration

        nlp, gold = load_with_gold(
            pipeline, data, output=output, json_path=json_path, gpu_id=gpu_id, code=code
        )
        report = pruner_calibration.calibrate_pruner(nlp, gold, name=name, progress=True)
        with replacing_folder(output) as folder:
            nlp.to_disk(folder)
        typer.echo(pruner_calibration.format_report(report))
        if json_path is not None:
            write_json(json_path, {"pipeline": str(pipeline), "data": str(data), **report})
