"""`python -m spacy spans convert`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from wasabi.printer import Printer

from spacy_spans.cli._shared import JsonPath, exit_on_error, split_list
from spacy_spans.errors import SettingsError
from spacy_spans.files import check_writable, write_json
from spacy_spans.keys import printable

if TYPE_CHECKING:
    from spacy_spans.converters import ConversionReport, FileReport

# More files than this, and their rows would push what matters off the screen.
MAX_ROWS = 20


def convert_cli(
    input_path: Annotated[Path, typer.Argument(help="A file, or a folder of files of one format.")],
    output_path: Annotated[Path, typer.Argument(help="The file to write; ends in .spacy.")],
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="jsonl, prodigy, conll, brat or toxic. Else guessed."),
    ] = None,
    spans_key: Annotated[
        str, typer.Option("--spans-key", "-k", help="The key of doc.spans to write to.")
    ] = "sc",
    lang: Annotated[
        str, typer.Option("--lang", "-l", help="Language of the tokenizer, such as en or xx.")
    ] = "en",
    alignment_mode: Annotated[
        str,
        typer.Option(
            "--alignment-mode",
            "-a",
            help="For spans that start or end inside of a token. strict: lost. contract: only "
            "whole tokens. expand: all tokens touched.",
        ),
    ] = "strict",
    labels: Annotated[
        str | None,
        typer.Option(
            help="Labels where the format has none: one a tag column, as in A,B (conll, "
            "default LAYER1,LAYER2,...), or one (toxic, default TOXIC)."
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Tag columns, as in 2,3; the tokens are column 1 (conll). Else all."),
    ] = None,
    n_sents: Annotated[
        int | None,
        typer.Option(
            "--n-sents",
            "-n",
            help="Sentences in a document, 0 for all up to the next -DOCSTART- line (conll). "
            "Default: 1, or 0 when there are such lines.",
        ),
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """Convert span annotations to a .spacy file.

    Reads JSON lines with character offsets, such as {"text": "Melt butter.", "spans": [{"start":
    5, "end": 11, "label": "FOOD"}]} (ends are exclusive), Prodigy's JSON lines, CoNLL columns (a
    layer of spans for each tag column), brat folders and SemEval's toxic spans. Reports every span
    that could not be aligned to tokens.
    """
    with exit_on_error("Cannot convert") as msg:
        from spacy_spans.converters import ConvertSettings, convert

        if json_path is not None:
            check_writable(json_path, inputs=_inputs(input_path), others=[output_path])
        settings = ConvertSettings(
            format=format,
            spans_key=spans_key,
            lang=lang,
            alignment_mode=alignment_mode,
            labels=split_list(labels),
            columns=_read_columns(columns),
            n_sents=n_sents,
        )
        report = convert(input_path, output_path, settings, progress=True)
        if json_path is not None:
            write_json(json_path, report.to_dict())
        show_report(report, msg)


def _inputs(path: Path) -> list[Path]:
    """The file, and the other one of the pair where it is one of brat's."""
    pair = (".txt", ".ann")
    return [path.with_suffix(suffix) for suffix in pair] if path.suffix in pair else [path]


def _read_columns(value: str | None) -> tuple[int, ...]:
    parts = split_list(value)
    if not all(re.fullmatch(r"\d{1,9}", part) for part in parts):
        from spacy_spans.converters.records import shown

        raise SettingsError(f"--columns is {shown(value)}, expected numbers such as 2,3.")
    return tuple(int(part) for part in parts)


def show_report(report: "ConversionReport", msg: Printer) -> None:
    """Print a conversion report as tables."""
    total = report.total()
    guess = f" (guessed: {report.guessed})" if report.guessed else ""
    msg.info(f"Format: {report.format}{guess}")
    _show_files(report, total, msg)
    _show_labels(report, total, msg)
    for title, counter in (("Documents left out", total.skipped), ("Ignored", total.ignored)):
        for reason, count in sorted(counter.items()):
            msg.warn(f"{title}: {_count(count)} x {reason}")
    if report.left_out:
        names = ", ".join(printable(Path(path).name) for path in report.left_out[:3])
        more = ", ..." * (len(report.left_out) > 3)
        msg.warn(f"Files left out: {len(report.left_out)} ({names}{more})")
    if total.repaired.count:
        msg.warn(
            f"Tags repaired: {_count(total.repaired.count)} inside of a span that nothing "
            "had started now start one",
            "\n".join(map(printable, total.repaired.examples)),
        )
    _show_lost(report, total, msg)
    msg.good(
        f"Wrote {_count(total.documents)} documents with {_count(total.spans)} spans in "
        f"doc.spans[{report.spans_key!r}] to {printable(report.output)}"
    )


def _show_files(report: "ConversionReport", total: "FileReport", msg: Printer) -> None:
    names = ["documents", "annotations", "mentions", "spans", "discontinuous", "duplicates"]
    names += [name for name in ("merged", "moved", "joined") if getattr(total, name)]
    rows = [
        [label, *(_count(getattr(file, name)) for name in names), _count(file.n_lost)]
        for label, file in _rows_of_files(report, total)
    ]
    msg.table(rows, header=["file", *names, "lost"], divider=True, aligns=_aligns(len(names) + 2))
    if len(report.files) > MAX_ROWS:
        msg.text(f"The first {MAX_ROWS} of {len(report.files)} files; --json writes all.")


def _rows_of_files(
    report: "ConversionReport", total: "FileReport"
) -> list[tuple[str, "FileReport"]]:
    rows = [(printable(Path(file.path).name), file) for file in report.files[:MAX_ROWS]]
    return [*rows, ("total", total)] if len(report.files) > 1 else rows


def _show_labels(report: "ConversionReport", total: "FileReport", msg: Printer) -> None:
    # One column a file as long as they fit.
    columns = _rows_of_files(report, total) if len(report.files) <= 4 else [("total", total)]
    rows = [
        [printable(label), *(_count(file.labels[label]) for _, file in columns)]
        for label, _ in total.labels.most_common()
    ]
    if rows:
        header = ["label", *(name for name, _ in columns)]
        msg.table(rows, header=header, divider=True, aligns=_aligns(len(header)))


def _show_lost(report: "ConversionReport", total: "FileReport", msg: Printer) -> None:
    if not total.n_lost:
        return
    share = total.n_lost / total.annotations
    hint = {"strict": " Try --alignment-mode expand or contract."}.get(report.alignment_mode, "")
    msg.warn(
        f"{_count(total.n_lost)} of {_count(total.annotations)} annotations ({share:.1%}) "
        f"have no tokens and were lost.{hint}"
    )
    for reason, cases in sorted(total.lost.items(), key=lambda item: -item[1].count):
        msg.text(f"{reason}: {_count(cases.count)}, for instance")
        for example in cases.examples:
            msg.text(_describe(example))


def _describe(example: dict[str, Any]) -> str:
    parts = f", {example['fragments']} fragments" if example["fragments"] > 1 else ""
    return (
        f"  doc {example['doc']}, {example['start']} to {example['end']}{parts}, "
        f"{printable(example['label'])}: {example['text']!r} ({printable(example['where'])})"
    )


def _aligns(n_columns: int) -> list[str]:
    return ["l"] + ["r"] * (n_columns - 1)


def _count(number: int) -> str:
    return f"{number:,}"
