"""`python -m spacy spans calibrate`: a thin shell over spacy_spans.calibration."""

from importlib.util import find_spec
from typing import Annotated

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

# In the folder of the pipeline.
FOLDER, REPORT = "calibration", "report.json"


def calibrate_cli(
    pipeline: TrainedPath,
    data: HeldOutPath,
    output: NewPath,
    name: ComponentName = None,
    method: Annotated[
        str,
        typer.Option(help="How scores are mapped: isotonic, or temperature where data is little"),
    ] = "isotonic",
    metric: Annotated[
        str,
        typer.Option(
            help="What thresholds maximise: f, precision_at_recall or recall_at_precision"
        ),
    ] = "f",
    beta: Annotated[
        float, typer.Option(help="With f: above 1 recall counts more, below 1 precision")
    ] = 1.0,
    at: Annotated[
        float | None,
        typer.Option(help="With the other two: the recall or precision to reach, 0 to 1"),
    ] = None,
    min_gold: Annotated[
        int, typer.Option(help="Gold spans from which on a label gets its own threshold", min=1)
    ] = 20,
    samples: Annotated[int, typer.Option(help="Bootstrap samples, for intervals", min=1)] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of what is drawn at random", min=0)] = 0,
    json_path: JsonPath = None,
    gpu_id: GpuId = -1,
    code: CodePath = None,
) -> None:
    """Fit scores and thresholds of a span_enumerator or multispan_tagger to held-out data.

    Scores become probabilities, and each label gets the threshold that is best for a metric; of a
    stock spancat only one threshold for all labels is fitted. The report, and with matplotlib its
    plots, are written to the folder calibration of the new pipeline.
    """
    with exit_on_error("Cannot calibrate") as msg:
        from spacy_spans import calibration, calibration_report

        goal = calibration.Goal(metric, beta, at, samples, seed)
        calibration.check_goal(goal, method, min_gold)
        nlp, gold = load_with_gold(
            pipeline, data, output=output, json_path=json_path, gpu_id=gpu_id, code=code
        )
        report = calibration.calibrate(
            nlp, gold, name=name, method=method, goal=goal, min_gold=min_gold, progress=True
        )
        report = {"pipeline": str(pipeline), "data": str(data), **report}
        draws = find_spec("matplotlib") is not None
        with replacing_folder(output) as folder:
            nlp.to_disk(folder)
            (folder / FOLDER).mkdir()
            write_json(folder / FOLDER / REPORT, report)
            if draws:
                calibration_report.plot_reliability(report, folder / FOLDER / "reliability.png")
                calibration_report.plot_precision_recall(
                    report, folder / FOLDER / "precision_recall.png"
                )
        # Printer.text would wrap the tables.
        typer.echo(calibration_report.format_report(report))
        if not draws:
            msg.warn("No plots: they need matplotlib, `pip install 'spacy-spans[viz]'`")
        if json_path is not None:
            write_json(json_path, report)
