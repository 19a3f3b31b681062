"""`python -m spacy spans debug`: a thin shell over spacy_spans.debugging."""

from pathlib import Path
from typing import Annotated

import typer

from spacy_spans.cli._shared import CodePath, JsonPath, exit_on_error
from spacy_spans.files import check_writable, write_json
from spacy_spans.runtime import import_code


def debug_cli(
    source: Annotated[
        Path,
        typer.Argument(
            help="Config for `spacy train` (.cfg), folder of a trained pipeline, or name of an "
            "installed one"
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Training data, then dev data, as .spacy files or folders; else those of the "
            "config. Settings can be overridden as for `spacy train`: --paths.train FILE"
        ),
    ] = None,
    train: Annotated[Path | None, typer.Option(help="Training data, by name")] = None,
    dev: Annotated[Path | None, typer.Option(help="Dev data, by name")] = None,
    limit: Annotated[
        int | None, typer.Option(help="Read the first so many documents of each only", min=1)
    ] = None,
    json_path: JsonPath = None,
    code: CodePath = None,
) -> None:
    """Find what is wrong with a config, or a pipeline, and its data before training.

    Checks keys, labels, gold that can never be predicted, tokens the encoder would not see,
    duplicates and suspicious annotations, and recommends a component. The exit code is 1 if there
    are errors, which are what would make training fail silently, and 0 with warnings only.
    """
    with exit_on_error("Cannot check") as msg:
        from spacy.cli._util import parse_config_overrides

        from spacy_spans.debugging.findings import count
        from spacy_spans.debugging.plan import make_plan
        from spacy_spans.debugging.run import as_json, debug, print_section, print_summary

        paths, settings = _split(data or [])
        if json_path is not None:
            inputs = [source, *map(Path, paths), *(p for p in (train, dev, code) if p)]
            check_writable(json_path, inputs=inputs)
        import_code(code)
        plan = make_plan(
            source,
            [Path(path) for path in paths],
            train=train,
            dev=dev,
            overrides=parse_config_overrides(settings),
        )
        sections = []
        for section in debug(plan, limit=limit, progress=True):
            print_section(section, msg)
            sections.append(section)
        print_summary(sections, msg)
        if json_path is not None:
            write_json(json_path, {"source": str(source), **as_json(sections)})
        if count(sections, "error"):
            raise typer.Exit(1)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Files, and settings with their values: options that typer does not know."""
    paths: list[str] = []
    settings: list[str] = []
    for argument in arguments:
        has_value = settings and settings[-1].startswith("--") and "=" not in settings[-1]
        (settings if argument.startswith("--") or has_value else paths).append(argument)
    return paths, settings
