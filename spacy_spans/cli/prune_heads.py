"""`python -m spacy spans prune-heads`: a thin shell over spacy_spans.heads."""

from pathlib import Path
from typing import Annotated

import typer

from spacy_spans.cli._shared import CodePath, GpuId, JsonPath, exit_on_error
from spacy_spans.files import (
    check_folder_writable,
    check_writable,
    replacing,
    replacing_folder,
    write_json,
)
from spacy_spans.runtime import import_code, use_gpu


def prune_heads_cli(
    pipeline: Annotated[Path, typer.Argument(help="Folder of a trained pipeline")],
    data: Annotated[
        Path,
        typer.Argument(
            help="Its training data or a part of it, gold: a .spacy file, or a folder with some"
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the pipeline with fewer heads")
    ],
    ratio: Annotated[
        float, typer.Option("--ratio", "-r", help="Share of the heads to remove, between 0 and 1")
    ] = 0.3,
    steps: Annotated[
        int, typer.Option(help="Remove them in this many rounds, and measure again before each")
    ] = 1,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", "-n", help="Name of the component with the encoder, if there are several"
        ),
    ] = None,
    finetune_config: Annotated[
        Path | None,
        typer.Option(
            "--finetune-config",
            help="Write a config for `spacy train` that trains the result further",
        ),
    ] = None,
    json_path: JsonPath = None,
    gpu_id: GpuId = -1,
    code: CodePath = None,
) -> None:
    """Remove the attention heads of a transformer that matter least to the pipeline's own loss.

    Shows the importance of each head, and the speed of the pipeline before and after. Few heads are
    a small part of an encoder's work: expect some percent of speed, or none.
    """
    with exit_on_error("Cannot prune heads"):
        from spacy_spans import heads, pipelines
        from spacy_spans.finetune import make_finetune_config
        from spacy_spans.readers import read_docbin

        inputs = [pipeline, data, *([code] if code else [])]
        check_folder_writable(output, inputs=inputs)
        files = [path for path in (finetune_config, json_path) if path is not None]
        for path in files:
            # The folder is replaced, with all that is in it.
            others = [output, *(other for other in files if other is not path)]
            check_writable(path, inputs=[*inputs, output], others=others)
        use_gpu(gpu_id)
        import_code(code)
        nlp = pipelines.load_pipeline(pipeline)
        gold = list(read_docbin(data, nlp.vocab))
        report = heads.prune_heads(nlp, gold, ratio=ratio, steps=steps, name=name, progress=True)
        whole = pipelines.load_pipeline(pipeline)
        report["speed"] = heads.compare_speed(whole, nlp, gold, progress=True)
        with replacing_folder(output) as temporary:
            nlp.to_disk(temporary)
        typer.echo(heads.format_report(report))
        typer.echo(
            "What it costs in F1, and the speed in processes of their own: "
            f"python -m spacy spans bench {pipeline} {output} --data {data}"
        )
        if finetune_config is not None:
            with replacing(finetune_config) as temporary:
                make_finetune_config(nlp, output).to_disk(temporary)
        if json_path is not None:
            write_json(json_path, {"pipeline": str(pipeline), "data": str(data), **report})
