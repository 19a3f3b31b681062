"""`python -m spacy spans bench`: a thin shell over spacy_spans.benchmark."""

from pathlib import Path
from typing import Annotated

import typer

from spacy_spans.cli._shared import CodePath, GpuId, JsonPath, exit_on_error
from spacy_spans.files import check_writable, replacing, write_json
from spacy_spans.runtime import require_matplotlib


def bench_cli(
    pipelines: Annotated[
        list[Path],
        typer.Argument(help="Folders of trained pipelines, or names of installed ones"),
    ],
    data: Annotated[
        Path, typer.Option(help="Documents with gold spans: a .spacy file, or a folder with some")
    ],
    spans_key: Annotated[
        str, typer.Option("--spans-key", "-k", help="Key in doc.spans to score")
    ] = "sc",
    vary: Annotated[
        str | None,
        typer.Option(
            help="Measure each at several values of a setting of its config: SETTING=VALUE,VALUE"
        ),
    ] = None,
    runs: Annotated[int, typer.Option(help="Timed runs over all documents", min=1)] = 5,
    threads: Annotated[
        int | None, typer.Option(help="Threads of each pipeline. Default: torch's choice", min=1)
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Documents in a batch. Default: each pipeline's own", min=1),
    ] = None,
    json_path: JsonPath = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw F1 against words/s to this .png, and an .svg beside")
    ] = None,
    gpu_id: GpuId = -1,
    code: CodePath = None,
) -> None:
    """Measure pipelines side by side: words/s, memory and F1, of stock components as well.

    Each is loaded in a process of its own, and they take turns. Two runs over the data are not
    timed, one before the others and one for F1 after them; memory is that of the runs before F1.
    With --vary components.transformer.model.keep_ratio=1.0,0.5 each is measured at both ratios.
    """
    with exit_on_error("Cannot measure"):
        from spacy_spans import benchmark

        images = [] if plot is None else [plot.with_suffix(".png"), plot.with_suffix(".svg")]
        inputs = [*pipelines, data, *([code] if code else [])]
        outputs = [path for path in (json_path, *images) if path is not None]
        for path in outputs:
            check_writable(path, inputs=inputs, others=[o for o in outputs if o is not path])
        if images:
            require_matplotlib()
        contenders = benchmark.name_contenders(pipelines)
        if vary is not None:
            contenders = benchmark.vary_setting(contenders, vary)
        report = benchmark.run_benchmark(
            contenders,
            benchmark.Conditions(data, spans_key, runs, threads, batch_size, gpu_id, code),
            progress=True,
        )
        # Printer.text would wrap the tables.
        typer.echo(benchmark.format_benchmark(report))
        for image in images:
            with replacing(image) as temporary:
                benchmark.plot_benchmark(report, temporary, image.suffix[1:])
        if json_path is not None:
            write_json(json_path, {"data": str(data), **report})
