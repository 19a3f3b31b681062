"""Show and draw what `spacy_spans.calibration.calibrate` reports."""

from pathlib import Path
from typing import Any, Literal, TypeAlias

from wasabi.tables import table

from spacy_spans.keys import percent, printable

Report: TypeAlias = dict[str, Any]

# Labels that a plot tells apart: those with the most gold.
N_DRAWN = 8
# Okabe and Ito's colours, which colour-blind people tell apart, without their yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F")


def format_report(report: Report) -> str:
    """Write a report as text for people, without a line break at the end."""
    rows = [("all labels", *_format_choice(report["threshold"]))]
    rows += [(printable(label), *_format_choice(row)) for label, row in report["labels"].items()]
    header = ("label", "gold", "threshold", "95 %", report["metric"], "95 %", "P", "R", "")
    aligns: list[Literal["r", "c", "l"]] = ["l", "r", "r", "r", "r", "r", "r", "r", "l"]
    parts = [str(table(rows, header=header, divider=True, aligns=aligns)).strip("\n")]
    compared = [
        (side, *(percent(report[side].get(key)) for key in ("p", "r", "f", "ece")))
        for side in ("before", "after")
    ]
    own: Any = str(
        table(compared, header=("", "P", "R", "F1", "ECE"), divider=True, aligns=aligns[:5])
    )
    parts.append(own.strip("\n"))
    score_map = report["score_map"]
    if score_map is None:
        parts.append("Its scores stay as they are: only a component of this package can map them.")
    elif score_map["method"] == "temperature":
        parts.append(f"Temperature: {score_map['temperature']:.3f}")
    parts += _list_left_out(report)
    return "\n\n".join(parts)


def _list_left_out(report: Report) -> list[str]:
    """A paragraph for each kind of data that did not count."""
    documents, labels = report["left_out"]["documents"], report["left_out"]["labels"]
    parts = []
    if documents:
        parts.append(f"Documents without doc.spans[{report['spans_key']!r}], left out: {documents}")
    if labels:
        counts = ", ".join(f"{printable(label)} {n}" for label, n in labels.items())
        parts.append(f"Gold spans of labels that the component does not know, left out: {counts}")
    return parts


def plot_reliability(report: Report, path: Path, image_format: str = "png") -> None:
    """Draw the share of right spans against the score, and how many spans have which score.

    report (Report): From `calibrate`.
    path (Path): Image file.
    image_format (str): One that matplotlib can write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 6.5), layout="constrained")
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1.2))
    axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="as it should be")
    for side, colour, shift in (("before", "#D55E00", -1), ("after", "#0072B2", 1)):
        bins = report["reliability"][side]
        rows = list(zip(*(bins[key] for key in ("means", "rates", "counts")), strict=True))
        filled = [row for row in rows if row[2]]
        error = percent(report[side]["ece"])
        axes.plot(
            [mean for mean, _, _ in filled],
            [rate for _, rate, _ in filled],
            color=colour,
            marker="o",
            label=f"{side}: calibration error {error} %",
        )
        width = 1 / len(rows)
        places = [width * (i + 0.5) + shift * width * 0.2 for i in range(len(rows))]
        below.bar(places, [n for _, _, n in rows], width * 0.4, color=colour)
    axes.set(
        ylabel="share of spans that are right", xlim=(0, 1), ylim=(0, 1.02), title="Reliability"
    )
    axes.grid(color="0.92")
    axes.legend(loc="upper left", frameon=False)
    below.set(xlabel="score", ylabel="spans", yscale="log", ylim=(0.8, None))
    figure.savefig(path, format=image_format, dpi=150)


def plot_precision_recall(report: Report, path: Path, image_format: str = "png") -> None:
    """Draw precision against recall, for all labels and those with the most gold, with the chosen
    thresholds as dots.

    report, path, image_format: As for `plot_reliability`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 6), layout="constrained")
    axes = figure.subplots()
    _draw_equal_f(axes)
    labels = sorted(report["labels"].items(), key=lambda item: -item[1]["gold"])
    drawn = [(label, row) for label, row in labels if row["gold"]][:N_DRAWN]
    for (label, row), colour in zip(drawn, COLOURS, strict=False):
        # Matplotlib reads "$", and leaves lines out whose label starts with "_".
        shown = printable(label).replace("$", r"\$").lstrip("_") or "(no label)"
        _draw_curve(axes, row, f"{shown} ({row['gold']})", colour, width=1.2)
    overall = report["threshold"]
    if len(drawn) != 1:
        _draw_curve(axes, overall, f"all labels ({overall['gold']})", "#333333", width=2.5)
    left_out = len(labels) - len(drawn)
    title = "Precision and recall by threshold" + (
        f" (without {left_out} labels with little gold)" if left_out else ""
    )
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02), title=title)
    axes.legend(
        title="label (gold spans)", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False
    )
    figure.savefig(path, format=image_format, dpi=150)


def _draw_curve(axes: Any, row: Report, name: str, colour: str, *, width: float) -> None:
    curve = row["curve"]
    axes.plot(curve["recall"], curve["precision"], color=colour, linewidth=width, label=name)
    nearest = min(
        range(len(curve["threshold"])), key=lambda i: abs(curve["threshold"][i] - row["threshold"])
    )
    place = [curve["recall"][nearest]], [curve["precision"][nearest]]
    axes.plot(
        *place, marker="o", color=colour, markeredgecolor="white", markersize=8, clip_on=False
    )


def _draw_equal_f(axes: Any) -> None:
    """Thin lines of equal F1, named at the right edge."""
    for tenth in range(1, 10):
        f = tenth / 10
        recalls = [f / 2 + (1 - f / 2) * (i + 1) / 100 for i in range(100)]
        points = [(r, f * r / (2 * r - f)) for r in recalls if f * r / (2 * r - f) <= 1]
        axes.plot(*zip(*points, strict=True), color="0.88", linewidth=0.8, zorder=0)
        r, p = points[-1]
        axes.text(r - 0.005, p + 0.005, f"F1 {f:.1f}", color="0.6", fontsize=7, ha="right")


def _format_choice(row: Report) -> tuple[str, ...]:
    if row["value"] is None:
        return (str(row["gold"]), f"{row['threshold']:.3f}", "", "", "", "", "", row["note"])
    low, high = row["threshold_interval"]
    worst, best = row["interval"]
    return (
        str(row["gold"]),
        f"{row['threshold']:.3f}",
        f"{low:.3f}-{high:.3f}",
        percent(row["value"]),
        f"{percent(worst)}-{percent(best)}",
        percent(row["precision"]),
        percent(row["recall"]),
        row["note"],
    )
