"""What removing attention heads costs in F1 and gains in speed, on a trained pipeline.

    python benchmarks/heads.py PIPELINE TRAIN.spacy DEV.spacy --output benchmarks/results/heads.md

Importance is measured on the first documents of the training data, F1 and speed on dev, all
pipelines in turns, as `spacy spans bench` does. Nothing is trained after heads are gone.
"""

import argparse
import itertools
import platform
import tempfile
from pathlib import Path
from typing import Any

from spacy_spans import heads
from spacy_spans.benchmark import run_benchmark
from spacy_spans.benchmark_worker import Conditions, Contender
from spacy_spans.pipelines import load_pipeline
from spacy_spans.readers import read_docbin

# Share of heads to remove, and in how many parts.
SETTINGS = ((0.1, 1), (0.2, 1), (0.3, 1), (0.4, 1), (0.5, 1), (0.3, 4), (0.5, 4))
N_DOCS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        contenders = [Contender(args.pipeline, "as trained")]
        left = [None]
        for ratio, steps in SETTINGS:
            nlp = load_pipeline(args.pipeline)
            gold = list(itertools.islice(read_docbin(args.train, nlp.vocab), N_DOCS))
            report = heads.prune_heads(nlp, gold, ratio=ratio, steps=steps, progress=True)
            folder = Path(work, f"{ratio}-{steps}")
            nlp.to_disk(folder)
            contenders.append(Contender(folder, f"{ratio:.0%} in {steps}"))
            left.append(report)
        conditions = Conditions(args.dev, runs=args.runs, threads=1)
        measured = run_benchmark(contenders, conditions, progress=True)
    command = f"python benchmarks/heads.py PIPELINE TRAIN DEV --runs {args.runs} --output FILE"
    args.output.write_text(format_table(args.pipeline.name, command, left, measured), "utf8")


def format_table(pipeline: str, command: str, left: list[Any], measured: Any) -> str:
    lines = [
        "# Head pruning",
        "",
        f"`{command}`, pipeline `{pipeline}`, importance from {N_DOCS} training documents, "
        f"{measured['documents']} dev documents ({measured['words']:,} words), "
        f"{measured['threads']} thread, {platform.machine()}. Nothing was trained afterwards.",
        "",
        "| heads removed | heads left | by layer | strict F1 | words/s (lowest to highest) |",
        "|---|---|---|---|---|",
    ]
    for found, report in zip(measured["pipelines"], left, strict=True):
        count, by_layer = "all", ""
        if report is not None:
            count = f"{report['heads_after']} of {report['heads_before']}"
            layers = report["layers"]
            by_layer = " ".join(
                str(sum(head["removed_in"] is None for head in layer)) for layer in layers
            )
        speed = found["words_per_second"]
        lines.append(
            f"| {found['name']} | {count} | {by_layer} | {100 * found['f']:.1f} | "
            f"{speed['median']:,.0f} ({speed['lowest']:,.0f} to {speed['highest']:,.0f}) |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
