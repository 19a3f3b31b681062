"""From measured cells of `tagger.py` to the committed tables."""

from pathlib import Path
from typing import Any

from _report import collect_cells, machines_of, table

STRICT, CHARACTERS, DISCONTINUOUS = "f", "char_f", "discontinuous_r"


def write_report(cells: Path, results: Path) -> None:
    """Write `tagger.json` and `tagger.md`: see `collect_cells`."""
    loaded = collect_cells(cells, results / "tagger.json", ("tagger-",))
    lines = [
        "# `multispan_tagger` beside stock `ner` and `spancat`",
        "",
        "`python benchmarks/tagger.py all`; encoder: all-MiniLM-L6-v2.",
        "",
        "On dev, one seed. All are trained by the same loop on the same batches of about 250 words "
        "for the same epochs; ours takes five times the learning rate above the encoder. All at "
        "the default threshold (0.5 for `spancat`, none for `ner` and ours); in brackets strict F1 "
        "at the one that is best on dev. Characters: F1 as in SemEval-2021 Task 5. Discontinuous: "
        "share of such gold mentions found exactly; stock components have no way to say one.",
        "",
        *scores_table(loaded),
        "",
        "Prediction, two threads, trained pipelines. After the encoder: tagging, decoding and "
        "writing `doc.spans`, as a share of the encoder's time. "
        f"{machines_of(loaded, 'tagger-predict-')}",
        "",
        *prediction_table(loaded),
        "",
        "Training on cnc, two threads, words/s over a few steps. "
        f"{machines_of(loaded, 'tagger-steps-')}",
        "",
        *training_table(loaded),
        "",
        *long_lines(loaded),
        "",
    ]
    (results / "tagger.md").write_text("\n".join(lines), encoding="utf8")
    print("\n".join(lines))


def scores_table(cells: dict[str, Any]) -> list[str]:
    rows = []
    for name, cell in cells.items():
        if name.startswith("tagger-train-"):
            dev, untuned = cell["dev"], cell["untuned"]
            strict = percent(untuned[STRICT])
            if cell["system"] != "ner":
                strict += f" ({percent(dev[STRICT])})"
            others = (untuned["partial_f"], untuned[CHARACTERS], untuned[DISCONTINUOUS])
            row = [cell["data"], cell["system"], str(cell["epochs"]), strict]
            rows.append([*row, *map(percent, others)])
    rows.sort()
    head = ["data", "", "epochs", "strict F1", "partial F1", "characters", "discontinuous"]
    return table(head, rows)


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def prediction_table(cells: dict[str, Any]) -> list[str]:
    rows = [
        [
            cell["data"],
            cell["system"],
            f"{100 * cell['head_share']:.1f} %",
            f"{cell['memory_growth_mb']:.0f} MB",
            f"{cell['words_per_second']:.0f}",
        ]
        for name, cell in cells.items()
        if name.startswith("tagger-predict-")
    ]
    return table(["data", "", "after the encoder", "growth", "words/s"], sorted(rows))


def training_table(cells: dict[str, Any]) -> list[str]:
    found = [cell for name, cell in cells.items() if name.startswith("tagger-steps-")]
    found.sort(key=lambda cell: (cell["batch_words"], cell["system"], cell["own_encoder"]))
    stock = {
        c["batch_words"]: c["train_words_per_second"] for c in found if c["system"] != "tagger"
    }
    rows = []
    for cell in found:
        speed = cell["train_words_per_second"]
        encoder = "PrunedTransformerModel.v1" if cell["own_encoder"] else "TransformerModel.v3"
        against = stock.get(cell["batch_words"])
        ratio = f"{speed / against:.1f}" if against else ""
        rows.append([cell["system"], encoder, str(cell["batch_words"]), f"{speed:.0f}", ratio])
    return table(["", "encoder", "words in a batch", "words/s", "x spancat"], rows)


def long_lines(cells: dict[str, Any]) -> list[str]:
    return [
        f"- One document of {cell['tokens']:,} tokens, `configs/tagger_cpu.cfg`: "
        f"{cell['seconds']:.0f} s, peak {cell['peak_mb']:.0f} MB."
        for name, cell in cells.items()
        if name == "tagger-long-document"
    ]
