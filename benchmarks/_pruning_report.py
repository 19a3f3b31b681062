"""From measured cells of `pruning.py` to the committed tables and plot."""

from pathlib import Path
from typing import Any

from _report import collect_cells, machines_of, table

STOCK = ("stock transformer, spancat", "stock transformer, span_enumerator")


def write_report(cells: Path, results: Path) -> None:
    """Write `pruning.json`, `pruning.md` and `pruning.png`: see `collect_cells`."""
    loaded = collect_cells(cells, results / "pruning.json", ("pruning-",))
    speeds = [cell for cell in loaded.values() if "report" in cell]
    lines = [
        "# Token pruning: strict F1 against words/s",
        "",
        "`python benchmarks/pruning.py all`; encoder: all-MiniLM-L6-v2.",
        "",
        "On dev, threshold tuned on dev for all. Every method goes on from the same trained base "
        "for the same number of epochs at half the rate. gate-0, gate-1, gate-2: a learned gate "
        "after that layer, 0: before the first, dropped runs pooled. pruner: `token_pruner` before "
        "the encoder, dropped runs left out; pruner-sample: with the middle word of each. "
        "combined: the pruner keeps a mild share (genia and skillspan 80 %, toxic_spans and cuad "
        "60 %), and a gate after layer 1 drops what else is to go. random, norm, attention: gates "
        "that learn nothing. windows: the base as it is, with other windows and bfloat16. t: words "
        "are kept from this probability on, and not in a ratio. Narrow: gates that see one piece "
        "to either side, and eight otherwise; earlier: none, trained under ratios. On cuad one "
        "epoch with all spans up to 128 words learns next to nothing, which says nothing of "
        "pruning. On skillspan narrow gates went on in batches of 1,000 words at half the rate, "
        "the others at a quarter. Trained on one thread beside other work. Rows: what the layers "
        "compute, padding included, as a share of unpruned.",
        "",
        *f1_tables(loaded),
    ]
    for cell in speeds:
        lines += [*speed_table(cell["data"], cell["report"], cell["machine"]), ""]
    lines += long_lines(loaded) + dense_lines(loaded)
    if speeds:
        plot({name_of(cell): cell["report"] for cell in speeds}, results / "pruning.png")
        lines += ["![strict F1 against words/s](pruning.png)", ""]
    (results / "pruning.md").write_text("\n".join(lines), encoding="utf8")
    print("\n".join(lines))


def f1_tables(cells: dict[str, Any]) -> list[str]:
    """For each corpus: F1 and rows of each method at each ratio, mean of the seeds."""
    lines = []
    trained = [cell for cell in cells.values() if "scores" in cell]
    for data in dict.fromkeys(cell["data"] for cell in trained):
        own = [cell for cell in trained if cell["data"] == data]
        whole = [c["scores"]["1.0"]["rows"] for c in own if c["method"] == "unpruned"]
        ratios = sorted({ratio for cell in own for ratio in cell["scores"]}, key=float)[::-1]
        rows = []
        for method in dict.fromkeys(cell["method"] for cell in own):
            scores = [cell["scores"] for cell in own if cell["method"] == method]
            rows.append(
                [
                    method,
                    str(len(scores)),
                    *(
                        describe_point([s[ratio] for s in scores if ratio in s], whole)
                        for ratio in ratios
                    ),
                ]
            )
        lines += [f"## {data}", "", *table(["", "seeds", *ratios], rows), ""]
        gates = [cell for cell in own if cell.get("thresholds")]
        if gates:
            thresholds = list(gates[0]["thresholds"])
            rows = [
                [c["method"], *(describe_point([c["thresholds"][t]], whole) for t in thresholds)]
                for c in gates
            ]
            head = ["words from this probability on", *thresholds]
            lines += [*table(head, rows), ""]
    return lines


def describe_point(points: list[dict[str, float]], whole: list[int]) -> str:
    if not points:
        return ""
    f1 = 100 * sum(point["f"] for point in points) / len(points)
    if not whole:
        return f"{f1:.1f}"
    rows = sum(point["rows"] for point in points) / len(points) / (sum(whole) / len(whole))
    return f"{f1:.1f} ({rows:.2f})"


def name_of(cell: dict[str, Any]) -> str:
    """Corpus, and whether in bfloat16: both were timed."""
    return f"{cell['data']}{', bfloat16' * ('with bfloat16' in cell['machine'])}"


def speed_table(data: str, found: dict[str, Any], machine: str) -> list[str]:
    rows = {row["name"]: row for row in found["pipelines"]}
    unpruned = rows.get("unpruned 1.0") or rows.get("earlier unpruned 1.0")
    stock = rows.get(STOCK[0])
    body = []
    for name, row in rows.items():
        speed = row["words_per_second"]
        body.append(
            [
                name,
                f"{speed['median']:,.0f}",
                f"{speed['lowest']:,.0f} to {speed['highest']:,.0f}",
                ratio(speed, unpruned),
                ratio(speed, stock),
                f"{row['components']['transformer']:.2f}",
                f"{row['peak_mb'] - row['loaded_mb']:,.0f}",
                "" if row["f"] is None else f"{100 * row['f']:.1f}",
            ]
        )
    head = ["", "words/s", "range", "x unpruned", "x stock", "encoder s", "growth MB", "strict F1"]
    where = f"{found['documents']} documents, {found['words']:,} words, {found['threads']} threads"
    return [
        f"Speed on {data}: {where}, {found['runs']} runs in turns. F1 of all of dev. {machine}.",
        "",
        *table(head, body),
    ]


def long_lines(cells: dict[str, Any]) -> list[str]:
    found = [cell for name, cell in cells.items() if name.startswith("pruning-long-")]
    found.sort(key=lambda cell: (cell["method"], cell["words"]))
    rows = [
        [
            cell["method"],
            f"{cell['words']:,}",
            f"{cell['seconds']:.1f}",
            f"{cell['words'] / cell['seconds']:,.0f}",
            f"{cell['peak_mb'] - cell['loaded_mb']:,.0f}",
        ]
        for cell in found
    ]
    head = ["one document", "words", "seconds", "words/s", "growth MB"]
    return [machines_of(cells, "pruning-long-"), "", *table(head, rows), ""] if rows else []


def dense_lines(cells: dict[str, Any]) -> list[str]:
    found = [cell for name, cell in cells.items() if name.startswith("pruning-dense-")]
    return [f"At `initialize` on {cell['data']}: {' '.join(cell['said'])}\n" for cell in found]


def ratio(speed: dict[str, float], other: dict[str, Any] | None) -> str:
    return "" if other is None else f"{speed['median'] / other['words_per_second']['median']:.2f}"


def plot(speeds: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(speeds), 4), layout="constrained")
    panels = figure.subplots(1, len(speeds), squeeze=False)[0]
    for axes, (data, found) in zip(panels, speeds.items(), strict=True):
        points: dict[str, list[tuple[float, float, str]]] = {}
        for row in found["pipelines"]:
            method, _, kept = row["name"].rpartition(" ")
            if row["name"] in STOCK:
                method, kept = row["name"], ""
            point = (row["words_per_second"]["median"], 100 * (row["f"] or 0), kept)
            points.setdefault(method, []).append(point)
        for method, own in points.items():
            own.sort()
            axes.plot([x for x, _, _ in own], [y for _, y, _ in own], "o-", label=method)
            for x, y, kept in own:
                axes.annotate(kept, (x, y), textcoords="offset points", xytext=(4, 4), fontsize=7)
        axes.set_title(data)
        axes.set_xlabel("words/s (numbers: share of words kept)")
        axes.set_ylabel("strict F1 in %")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    figure.savefig(path, dpi=110)
