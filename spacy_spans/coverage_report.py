"""Show what `coverage` measured: as tables for people, or as a plot."""

from pathlib import Path

from wasabi.tables import table

from spacy_spans.coverage import CLASS_NAMES, MAX_LENGTHS, Report, percent
from spacy_spans.errors import SettingsError
from spacy_spans.keys import printable
from spacy_spans.runtime import require_matplotlib


def format_report(report: Report, *, unicode: bool = True) -> str:
    """Write a report as tables for people.

    report (Report): From `measure_coverage`.
    unicode (bool): Draw histograms with block characters; else with ASCII.
    RETURNS (str): Several lines, without a line break at the end.
    """
    parts = [_format_corpus(report), _format_labels(report, unicode), _format_cost(report)]
    recommendation = report["recommendation"]
    name = recommendation["candidates"] or "nothing"
    parts.append(f"Recommended: {name}\n{recommendation['reason']}")
    if recommendation["config"]:
        parts.append(recommendation["config"])
    return "\n\n".join(parts)


def plot_report(report: Report, path: Path, image_format: str = "png") -> None:
    """Draw reach per label, and the cost of candidates, against max_length.

    report (Report): From `measure_coverage`.
    path (Path): Image file.
    image_format (str): One that matplotlib can write: "png", "svg", "pdf", ...
    RAISES (SettingsError): matplotlib is not installed, or does not know the format.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    names = ["all" if n is None else str(n) for n in MAX_LENGTHS]
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for label, stats in report["labels"].items():
        # Matplotlib leaves lines whose label starts with "_" out of the legend, and reads "$".
        shown = label.replace("$", r"\$").lstrip("_") or "(no label)"
        axes.plot(names, [100 * share for share in stats["reach"]], marker=".", label=shown)
    axes.set(xlabel="max_length (tokens)", ylabel="gold spans reached (%)", ylim=(0, 102))
    costs = axes.twinx()
    costs.bar(names, [row["candidates_per_1000"] or 1 for row in report["cost"]], color="0.85")
    costs.set(ylabel="candidates per 1,000 tokens", yscale="log", ylim=(100, None))
    # Lines in front of the bars.
    axes.set_zorder(costs.get_zorder() + 1)
    axes.patch.set_visible(False)
    if report["labels"]:
        columns = 1 + len(report["labels"]) // 16
        axes.legend(loc="lower right", fontsize="small", ncols=columns)
    try:
        figure.savefig(path, format=image_format)
    except ValueError as error:
        raise SettingsError(f"Cannot write an image of format {image_format!r}: {error}") from error


def _format_corpus(report: Report) -> str:
    corpus = report["corpus"]
    lines = (
        ("Documents", "docs"),
        ("- without tokens", "empty_docs"),
        ("- without the key", "docs_without_key"),
        ("- without spans", "docs_without_spans"),
        ("Sentences", "sentences"),
        ("Tokens", "tokens"),
        ("Spans", "spans"),
        ("- given twice", "duplicate_spans"),
        ("- without tokens, left out", "spans_without_tokens"),
    )
    always = ("docs", "tokens", "spans")
    rows = [("Spans key", printable(report["spans_key"]))]
    rows += [(name, f"{corpus[key]:,}") for name, key in lines if key in always or corpus[key]]
    others = [
        f"{key} ({n['spans']:,})"
        for key, n in sorted(corpus["keys"].items())
        if key != report["spans_key"]
    ]
    if others:
        rows.append(("Other keys (spans)", printable(", ".join(others))))
    return table(rows, max_col=100).strip("\n")


def _format_labels(report: Report, unicode: bool) -> str:
    header = ["Label", "Spans", "Mean", "Median", "P95", "Max", "Lengths"]
    header += ["Nested", "Overlap", "Cross", "Tokens in spans"]
    rows = [
        (
            printable(label),
            f"{stats['spans']:,}",
            f"{stats['length']['mean']:.1f}",
            *(f"{stats['length'][key]:,}" for key in ("median", "p95", "max")),
            _draw(list(stats["length"]["histogram"].values()), unicode),
            *(percent(stats[key]) for key in ("nested", "overlapping", "crossing")),
            f"{stats['covered_tokens']:,} ({percent(stats['covered'])})",
        )
        for label, stats in (*report["labels"].items(), ("All", report["all"]))
    ]
    text = table(rows, header=header, divider=True, aligns=["l", *"rrrrr", "l", *"rrrr"])
    return text.strip("\n") + "\nLengths, in tokens: " + " | ".join(CLASS_NAMES)


def _format_cost(report: Report) -> str:
    with_sentences = any("within_sentences" in row for row in report["cost"])
    header = ["Max length", "Gold reached", "Candidates per 1,000 tokens"]
    if with_sentences:
        header += ["Gold reached in sentences", "Candidates in sentences"]
    rows = []
    for row in report["cost"]:
        cells = ["unbounded" if row["max_length"] is None else str(row["max_length"])]
        for part in (row, row.get("within_sentences")):
            if part is not None:
                cost = part["candidates_per_1000"]
                cells += [percent(part["share"], 2), "-" if cost is None else f"{cost:,.0f}"]
        rows.append(cells)
    return table(rows, header=header, divider=True, aligns="r").strip("\n")


def _draw(counts: list[int], unicode: bool) -> str:
    """One character per count: blank for none, then eight heights up to the largest."""
    heights = "▁▂▃▄▅▆▇█" if unicode else "_.-:=+*#"
    top = max(*counts, 1)
    return "".join(heights[-(-8 * n // top) - 1] if n else " " for n in counts)
