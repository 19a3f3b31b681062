"""From measured cells to the committed tables."""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

PACKAGES = ["spacy", "spacy-transformers", "torch"]
# Cells of `enumerator.py`, by how their names begin.
KINDS = ("train-", "predict-", "steps-", "long-", "startup")


def write_report(cells: Path, results: Path) -> None:
    """Write `enumerator.json` and `enumerator.md`: see `collect_cells`."""
    kept = collect_cells(cells, results / "enumerator.json", KINDS)
    lines = [
        "# `span_enumerator` beside stock `spancat`",
        "",
        "`python benchmarks/enumerator.py all`; encoder: all-MiniLM-L6-v2.",
        "",
        "Strict F1 on dev, threshold tuned on dev for both, mean of the seeds in brackets. Both "
        "are trained by the same loop on the same batches; ours takes five times the learning "
        "rate above the encoder, and starts its classifier at the rarity of positives. Stock has "
        "neither, and needs more and smaller steps on genia's sentences. On skillspan, with "
        "batches of 250 words, its learning rate is 5e-5: at the common 2e-4 its encoder "
        "collapses (all vectors alike, no span found).",
        "",
        *f1_table(kept),
        "",
        "Prediction, two threads, trained pipelines. After the encoder: candidates, scoring, "
        "decoding and writing `doc.spans`, as a share of the encoder's time. Growth: how far the "
        f"peak memory rises over that of the encoder alone. {machines_of(kept, 'predict-')}",
        "",
        *prediction_table(kept),
        "",
        f"Training, two threads, words/s over a few steps. {machines_of(kept, 'steps-')}",
        "",
        *training_table(kept),
        "",
        *other_lines(kept),
        "",
    ]
    (results / "enumerator.md").write_text("\n".join(lines), encoding="utf8")
    print("\n".join(lines))


def collect_cells(cells: Path, stored: Path, kinds: tuple[str, ...]) -> dict[str, Any]:
    """The cells that are there, and the stored ones that were not measured again; store all.

    kinds (Tuple[str, ...]): How the names of the cells begin.
    RETURNS (dict): By name, sorted.
    """
    found = json.loads(stored.read_text(encoding="utf8"))["cells"] if stored.exists() else {}
    for path in cells.glob("*.json"):
        if path.name.startswith(kinds):
            found[path.stem] = json.loads(path.read_text(encoding="utf8"))
            found[path.stem].pop("curve", None)
    found = dict(sorted(found.items()))
    stored.parent.mkdir(exist_ok=True)
    stored.write_text(json.dumps({"cells": found}, indent=1) + "\n", encoding="utf8")
    return found


def machines_of(cells: dict[str, Any], kind: str) -> str:
    """Where cells of a kind were timed: speeds compare only within one machine."""
    found = {cell["machine"] for name, cell in cells.items() if name.startswith(kind)}
    return "; and: ".join(sorted(found)) + "." if found else ""


def describe_machine() -> str:
    import torch

    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    # torch has no public question for this.
    bfloat16 = "with" if torch.cpu._is_avx512_bf16_supported() else "without"
    return (
        f"{platform.machine()}, {os.cpu_count()} cores {bfloat16} bfloat16; {packages}, Python "
        f"{platform.python_version()}"
    )


def f1_table(cells: dict[str, Any]) -> list[str]:
    groups: dict[tuple[str, int, int, str], list[dict[str, Any]]] = {}
    for name, cell in cells.items():
        if name.startswith("train-"):
            key = (cell["data"], cell["max_length"], cell["batch_words"], cell["system"])
            groups.setdefault(key, []).append(cell)
    rows = []
    for data, length, batch in sorted({key[:3] for key in groups}):
        row = [data, str(length), str(batch)]
        for system in ("spancat", "span_enumerator"):
            runs = groups.get((data, length, batch, system), [])
            seeds = ", ".join(str(run["seed"]) for run in runs)
            row.append(f"{100 * mean(r['dev']['f'] for r in runs):.1f} ({seeds})" if runs else "")
        rows.append(row)
    return table(["data", "max length", "words a batch", "spancat", "span_enumerator"], rows)


def prediction_table(cells: dict[str, Any]) -> list[str]:
    rows = []
    for name, cell in cells.items():
        if name.startswith("predict-"):
            shown = ["out of memory", "", ""]
            if "head_share" in cell:
                shown = [
                    f"{100 * cell['head_share']:.1f} %",
                    f"{cell['memory_growth_mb']:.0f} MB",
                    f"{cell['words_per_second']:.0f}",
                ]
            elif "out_of_memory_gb" in cell:
                shown[0] = f"over {cell['out_of_memory_gb']} GB"
            rows.append([cell["data"], str(cell["max_length"]), cell["system"], *shown])
    rows.sort(key=lambda row: (row[0], int(row[1]), row[2] != "spancat"))
    return table(["data", "max length", "", "after the encoder", "growth", "words/s"], rows)


def training_table(cells: dict[str, Any]) -> list[str]:
    """Words/s of each way, beside stock on the same batches."""
    found = [cell for name, cell in cells.items() if name.startswith("steps-")]
    stock = {
        setting_of(cell): cell["train_words_per_second"]
        for cell in found
        if cell["system"] == "spancat" and "train_words_per_second" in cell
    }
    found.sort(key=lambda cell: (*setting_of(cell), cell["system"] != "spancat", is_own(cell)))
    rows = []
    for cell in found:
        data, length, words = setting_of(cell)
        speed, against = cell.get("train_words_per_second"), stock.get((data, length, words))
        encoder = "PrunedTransformerModel.v1" if is_own(cell) else "TransformerModel.v3"
        row = [data, str(length), str(words), cell["system"], encoder]
        row.append(f"{speed:.0f}" if speed else f"over {cell['out_of_memory_gb']} GB")
        rows.append([*row, f"{speed / against:.1f}" if speed and against else ""])
    head = ["data", "max length", "words in a batch", "", "encoder", "words/s", "x spancat"]
    return table(head, rows)


def setting_of(cell: dict[str, Any]) -> tuple[str, int, int]:
    return cell["data"], cell["max_length"], cell["batch_words"]


def is_own(cell: dict[str, Any]) -> bool:
    return bool(cell["own_encoder"])


def other_lines(cells: dict[str, Any]) -> list[str]:
    lines = []
    for name, cell in cells.items():
        if name.startswith("long-"):
            lines.append(
                f"- One document of {cell['tokens']:,} tokens, `configs/enumerator_cpu.cfg` at "
                f"max length {cell['max_length']}: {cell['seconds']:.0f} s, peak "
                f"{cell['peak_mb']:.0f} MB."
            )
        if name == "startup":
            lines.append(
                f'- `spacy.blank("en")`: {cell["with_ms"]:.0f} ms with the package, '
                f"{cell['without_ms']:.0f} ms without its factories, median of {cell['runs']} "
                "processes each."
            )
    return lines


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
