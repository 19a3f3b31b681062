"""Token pruning: strict F1 against words/s, for each place where words can be dropped.

A base pipeline, that prunes nothing, is trained on each corpus, or taken from `enumerator.py`.
Every method goes on from it for as many further epochs at half the rate, "unpruned" as well; the
others under pruning, at ratios that are drawn anew for each batch. All are scored on dev at
several ratios. `speed` lets the saved pipelines take turns, with stock beside them. `all` runs
every cell in a process of its own and writes `results/pruning.{json,md,png}`; cells that are there
are not run again (`--fresh` starts over).
"""

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import typer
from enumerator import ENCODER, HERE, LEARN_RATE, RESULTS, WORK, run_cells, write_cell
from tagger import read_part, score_dev
from thinc.api import Config

EPOCHS = {"genia": 6, "skillspan": 4, "toxic_spans": 2, "cuad": 1}
# Further ones, from the base on, for every method.
MORE_EPOCHS = {"genia": 2, "skillspan": 1, "toxic_spans": 1, "cuad": 1}
# The rate from the base on: half of the base's, or where that unlearns, also without pruning (two
# points of F1), a quarter.
MORE_RATES = {"skillspan": LEARN_RATE / 4}
# Two thirds of the clauses are longer than the 12 words of all others.
MAX_LENGTH = {"cuad": 128}
# Gates start from nothing: so large a part of the further steps prunes nothing.
WARM_UP = 0.2
RATIOS = (0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1)
# Lowest ratio that is drawn in training: dense data is never pruned as far as sparse data.
LOWEST_RATIO = {"genia": 0.3, "skillspan": 0.2, "toxic_spans": 0.1, "cuad": 0.1, "cnc": 0.3}
# From this probability of being in a span on a gate keeps a word.
THRESHOLD = 0.1
THRESHOLDS = (0.03, 0.1, 0.2, 0.4, 0.6)
# Thresholds are drawn in training, around that of `configs/pruned_trf.cfg`.
BY_THRESHOLD = {"keep_ratio": None, "threshold": THRESHOLD}
GATE_METHODS: dict[str, dict[str, Any]] = {
    "gate-0": {"gates": [0], **BY_THRESHOLD},
    "gate-1": {"gates": [1], **BY_THRESHOLD},
    "gate-2": {"gates": [2], **BY_THRESHOLD},
    "gate-0-2": {"gates": [0, 2], **BY_THRESHOLD},
    # These are trained under ratios of each window, and beside them a gate that is.
    "gate-1-ratios": {"gates": [1]},
    "random-1": {"gates": [1], "criterion": {"@misc": "spacy-spans.random_criterion.v1"}},
    "norm-1": {"gates": [1], "criterion": {"@misc": "spacy-spans.norm_criterion.v1"}},
    "attention-1": {"gates": [1], "criterion": {"@misc": "spacy-spans.attention_criterion.v1"}},
    "combined": {"gates": [1], **BY_THRESHOLD},
}
BEFORE_METHODS = ("pruner", "pruner-sample", "stop-words", "combined")
PRUNER_STEPS = 240
# Share of the words that the pruner of `combined` keeps; the gates drop what else is to go.
MILD_RATIO = {"genia": 0.8, "skillspan": 0.8, "toxic_spans": 0.6, "cuad": 0.6}
METHODS = tuple(dict.fromkeys(("unpruned", *GATE_METHODS, *BEFORE_METHODS)))
PRUNER_SHARE = "components.token_pruner.policy.keep_ratio"
GATE_SHARE = "components.transformer.model.keep_ratio"
# What is timed; the other criteria cost what a gate costs, attention more.
TIMED_METHODS = (
    "windows",
    "unpruned",
    "gate-0",
    "gate-1",
    "gate-2",
    "gate-0-2",
    "pruner",
    "combined",
)
TIMED_RATIOS = {
    "genia": (0.5,),
    "skillspan": (0.5,),
    "toxic_spans": (0.3,),
    "cuad": (0.3,),
}
TIMED_WORDS = 8000
WITH_THRESHOLDS = ("gate-0", "gate-1", "gate-2", "gate-0-2", "combined")
# Where the criteria that learn nothing stand beside the gate.
CRITERIA_ON = ("genia",)
# Where the base comes from `enumerator.py`, trained with stock's windows.
WITH_STOCK_BASE = ("genia", "skillspan")
LONG = (10_000, 30_000, 100_000)

app = typer.Typer(pretty_exceptions_enable=False)


def build_config(method: str, data: str) -> Config:
    config = Config().from_disk(HERE / "configs" / "pruned.cfg", interpolate=False)
    components = config["components"]
    model = components["transformer"]["model"]
    model["name"] = str(ENCODER)
    if data in MAX_LENGTH:
        components["span_enumerator"]["candidates"]["max_length"] = MAX_LENGTH[data]
    if method in GATE_METHODS:
        model.update(GATE_METHODS[method], train_keep_ratio=LOWEST_RATIO[data])
    if method in BEFORE_METHODS:
        dropped = "sample" if method == "pruner-sample" else "drop"
        model["get_spans"] = {"@span_getters": "spacy-spans.kept_spans.v1", "dropped": dropped}
        components["span_enumerator"]["within_kept"] = True
        components["token_pruner"] = {
            "factory": "token_pruner",
            "policy": {"@misc": "spacy-spans.top_k_policy.v1", "keep_ratio": 1.0},
        }
        if method == "stop-words":
            components["token_pruner"]["model"] = {
                "@architectures": "spacy-spans.LexicalTokenPruner.v1"
            }
        config["nlp"]["pipeline"] = ["token_pruner", "transformer", "span_enumerator"]
    return config.interpolate()


def load(config: Config) -> Any:
    import spacy

    return spacy.util.load_model_from_config(config, auto_fill=True)


@app.command("base")
def base_cell(data: str, seed: int = 0, threads: int = 2) -> None:
    """Train a pipeline that prunes nothing."""
    import torch
    from _training import fit
    from spacy.util import fix_random_seed

    torch.set_num_threads(threads)
    fix_random_seed(seed)
    nlp = load(build_config("unpruned", data))
    docs = read_part(nlp, data, "train")
    result = fit(nlp, docs, epochs=EPOCHS[data], learn_rate=LEARN_RATE)
    finish(nlp, "base", data, seed, result, (1.0,))


@app.command("continue")
def continue_cell(method: str, data: str, seed: int = 0, threads: int = 2) -> None:
    """Go on from the base under pruning, and score at every ratio."""
    import spacy
    import torch
    from _training import fit
    from spacy.util import fix_random_seed

    torch.set_num_threads(threads)
    fix_random_seed(seed)
    nlp = load(build_config(method, data))
    docs = read_part(nlp, data, "train")
    base = spacy.load(find_base(data, seed))
    learns = method in BEFORE_METHODS and nlp.get_pipe("token_pruner").learns
    pruner = train_pruner(nlp, docs, seed) if learns else None
    result = fit(
        nlp,
        docs,
        epochs=MORE_EPOCHS[data],
        learn_rate=MORE_RATES.get(data, LEARN_RATE / 2),
        begin=lambda total: take_weights(nlp, base, pruner, warm_up=int(WARM_UP * total)),
        each_step=lambda: draw_ratio(nlp, method, data) if method in BEFORE_METHODS else None,
        annotates=["token_pruner"] if method in BEFORE_METHODS else [],
    )
    ratios = (1.0,) if method == "unpruned" else (1.0, *RATIOS)
    if method == "unpruned":
        finish(nlp, method, data, seed, result, ratios)
        return
    lowest = LOWEST_RATIO[data]
    finish(nlp, method, data, seed, result, [ratio for ratio in ratios if ratio >= lowest])


@app.command("windows")
def windows_cell(data: str, seed: int = 0, threads: int = 2) -> None:
    """Run the base, trained with stock's encoder, with ours: other windows and bfloat16 alone."""
    import spacy
    import torch
    from spacy.training import Example

    torch.set_num_threads(threads)
    nlp = load(build_config("unpruned", data))
    docs = read_part(nlp, data, "train")
    nlp.initialize(lambda: [Example(nlp.make_doc(doc.text), doc) for doc in docs])
    base = spacy.load(find_base(data, seed))
    take_weights(nlp, base, None, warm_up=0)
    gold = read_part(nlp, data, "dev")
    own = score_dev(base, "span_enumerator", gold)
    finish(nlp, "windows", data, seed, {"stock": own["dev"]["f"]}, (1.0,))


def find_base(data: str, seed: int) -> Path:
    """What every method goes on from: of `enumerator.py` where that trained one, else of `base`."""
    own = WORK / "pipelines" / f"base-{data}-{seed}"
    return own if own.exists() else WORK / "pipelines" / f"span_enumerator-{data}-12-{seed}"


def take_weights(nlp: Any, base: Any, pruner: bytes | None, *, warm_up: int) -> None:
    """Start from the base: encoder and enumerator; gates stay new."""
    transformer = nlp.get_pipe("transformer").model
    weights = base.get_pipe("transformer").model.transformer.state_dict()
    transformer.transformer.load_state_dict(weights)
    if "warmup_steps" in transformer.attrs:
        transformer.attrs["warmup_steps"] = warm_up
    head = nlp.get_pipe("span_enumerator")
    head.model.from_bytes(base.get_pipe("span_enumerator").model.to_bytes())
    if pruner is not None:
        nlp.get_pipe("token_pruner").from_bytes(pruner, exclude=["vocab"])


def train_pruner(nlp: Any, docs: list[Any], seed: int) -> bytes:
    """Train the component that runs before the encoder, alone."""
    import random

    from _training import cut, unannotated
    from spacy.training import Example
    from spacy.training.batchers import minibatch_by_words
    from thinc.api import Adam, warmup_linear

    pieces = [piece for doc in docs for piece in cut(doc)]
    examples = [Example(unannotated(piece), piece) for piece in pieces]
    pruner = nlp.get_pipe("token_pruner")
    pruner.initialize(lambda: examples, nlp=nlp)
    optimizer = Adam(warmup_linear(0.002, PRUNER_STEPS // 10, PRUNER_STEPS), L2=0.01)
    shuffle = random.Random(seed)
    n_steps = 0
    while n_steps < PRUNER_STEPS:
        shuffle.shuffle(examples)
        for batch in minibatch_by_words(iter(examples), size=1000):
            pruner.update(batch, sgd=optimizer, drop=0.1)
            optimizer.step_schedules()
            n_steps += 1
    stored: bytes = pruner.to_bytes(exclude=["vocab"])
    return stored


def draw_ratio(nlp: Any, method: str, data: str) -> None:
    """As gates do in training: another ratio of the pruner for each batch."""
    import random

    lowest = (MILD_RATIO if method == "combined" else LOWEST_RATIO)[data]
    set_pruner(nlp, random.uniform(lowest, 1.0))


def set_ratio(nlp: Any, method: str, data: str, ratio: float | None) -> None:
    """What share of the words is kept from here on."""
    for setting, share in shares(method, data, ratio).items():
        if setting == PRUNER_SHARE:
            set_pruner(nlp, share)
        else:
            nlp.get_pipe("transformer").model.attrs["keep_ratio"] = share


def set_pruner(nlp: Any, ratio: Any) -> None:
    from spacy_spans.policies import build_top_k_policy_v1

    nlp.get_pipe("token_pruner").policy = build_top_k_policy_v1(ratio)


def shares(method: str, data: str, ratio: float | None) -> dict[str, float | None]:
    """Settings with which a method keeps a share of the words; None: what the gates' threshold
    says, of what the pruner kept if there is one.
    """
    if method == "combined":
        mild = max(MILD_RATIO[data], ratio or 0.0)
        return {PRUNER_SHARE: mild, GATE_SHARE: None if ratio is None else ratio / mild}
    return {PRUNER_SHARE if method in BEFORE_METHODS else GATE_SHARE: ratio}


def finish(
    nlp: Any, method: str, data: str, seed: int, result: dict[str, Any], ratios: Any
) -> None:
    """Score on dev at each ratio, save the pipeline, write the cell."""
    gold = read_part(nlp, data, "dev")
    scores = {}
    for ratio in ratios:
        set_ratio(nlp, method, data, ratio)
        with counting_rows() as rows:
            own = score_dev(nlp, "span_enumerator", gold)
        scores[ratio] = {"threshold": own["threshold"], "f": own["dev"]["f"], "rows": sum(rows)}
        print(method, data, ratio, scores[ratio], flush=True)
    # As configured: a setting that is stored otherwise would outlast an override with that value.
    configured = build_config(method, data)["components"]["transformer"]["model"]["keep_ratio"]
    nlp.get_pipe("transformer").model.attrs["keep_ratio"] = configured
    pipelines = WORK / "pipelines"
    pipelines.mkdir(parents=True, exist_ok=True)
    nlp.to_disk(pipelines / f"{method}-{data}-{seed}")
    cell = {"method": method, "data": data, "seed": seed, "scores": scores}
    write_cell(f"pruning-{method}-{data}-{seed}", cell | result)


@app.command("thresholds")
def thresholds_cell(method: str, data: str, seed: int = 0, threads: int = 2) -> None:
    """Score a gate where it keeps words by their probability, many of a window or few."""
    import spacy
    import torch

    torch.set_num_threads(threads)
    path = WORK / "cells" / f"pruning-{method}-{data}-{seed}.json"
    cell = json.loads(path.read_text())
    nlp = spacy.load(WORK / "pipelines" / f"{method}-{data}-{seed}")
    gold = read_part(nlp, data, "dev")
    set_ratio(nlp, method, data, None)
    attrs = nlp.get_pipe("transformer").model.attrs
    cell["thresholds"] = {}
    for threshold in THRESHOLDS:
        attrs["threshold"] = threshold
        with counting_rows() as rows:
            own = score_dev(nlp, "span_enumerator", gold)
        found = {"threshold": own["threshold"], "f": own["dev"]["f"], "rows": sum(rows)}
        cell["thresholds"][threshold] = found
    write_cell(path.stem, cell)


@contextmanager
def counting_rows() -> Iterator[list[int]]:
    """Rows that the encoder's layers compute, padding included, summed over layers."""
    from spacy_spans.encoder import forward

    rows: list[int] = []
    encode = forward.encode

    def count(*args: Any, **kwargs: Any) -> Any:
        encoded = encode(*args, **kwargs)
        rows.append(encoded.n_rows)
        return encoded

    forward.encode = count
    try:
        yield rows
    finally:
        forward.encode = encode


@app.command("speed")
def speed_cell(data: str, seed: int = 0, threads: int = 2, runs: int = 3) -> None:
    """Let stock, the unpruned pipeline and the methods at some ratios take turns on dev.

    Timed on the first `TIMED_WORDS`; F1 is that of the other cells, on all of dev.
    """
    from spacy_spans.benchmark import Conditions, Contender, format_benchmark, run_benchmark

    contenders, f1 = [], {}
    for system in ("spancat", "span_enumerator"):
        for path in sorted((WORK / "pipelines").glob(f"{system}-{data}-12-*"))[:1]:
            name = f"stock transformer, {system}"
            contenders.append(Contender(path, name))
            f1[name] = stock_f1(path.name)
    for method in TIMED_METHODS:
        path = WORK / "cells" / f"pruning-{method}-{data}-{seed}.json"
        pipeline = WORK / "pipelines" / f"{method}-{data}-{seed}"
        if not path.exists() or not pipeline.exists():
            continue
        cell = json.loads(path.read_text())
        for ratio, own in cell["scores"].items():
            if method in ("windows", "unpruned") or float(ratio) in TIMED_RATIOS[data]:
                name = f"{method} {ratio}"
                settings = overrides(method, data, float(ratio), own["threshold"])
                contenders.append(Contender(pipeline, name, settings))
                f1[name] = own["f"]
        for threshold, own in cell.get("thresholds", {}).items():
            name = f"{method} t={threshold}"
            settings = overrides(method, data, None, own["threshold"])
            settings["components.transformer.model.threshold"] = float(threshold)
            contenders.append(Contender(pipeline, name, settings))
            f1[name] = own["f"]
    conditions = Conditions(some_words(data), runs=runs, threads=threads, batch_size=64)
    report = run_benchmark(contenders, conditions, progress=True)
    print(format_benchmark(report), flush=True)
    for row in report["pipelines"]:
        row["f"] = f1[row["name"]]
        row["path"] = Path(row["path"]).name
    write_cell(f"pruning-speed-{data}", {"data": data, "seed": seed, "report": report})


def stock_f1(pipeline: str) -> float | None:
    """Of the cell in which `enumerator.py` trained it; of several trainings the best was kept."""
    cells = (WORK / "cells").glob(f"train-{pipeline}*.json")
    return max((json.loads(path.read_text())["dev"]["f"] for path in cells), default=None)


def some_words(data: str) -> Path:
    """The first documents of dev, with about `TIMED_WORDS`."""
    import spacy
    from spacy.tokens import DocBin

    chosen, n_words = DocBin(), 0
    for doc in read_part(spacy.blank("en"), data, "dev"):
        if n_words < TIMED_WORDS:
            chosen.add(doc)
            n_words += len(doc)
    path = WORK / "corpora" / f"{data}-dev-timed.spacy"
    chosen.to_disk(path)
    return path


def overrides(method: str, data: str, ratio: float | None, threshold: float) -> dict[str, Any]:
    return {"components.span_enumerator.threshold": threshold} | shares(method, data, ratio)


@app.command("long-document")
def long_document_cell(
    n_words: int, method: str = "gate-2", data: str = "cuad", ratio: float = 0.3, threads: int = 2
) -> None:
    """Time and peak memory of one document of so many words: contracts, one behind the other."""
    from timeit import default_timer

    import spacy
    import torch

    from spacy_spans.benchmark_worker import peak_mb

    torch.set_num_threads(threads)
    nlp = spacy.load(WORK / "pipelines" / f"{method}-{data}-0")
    set_ratio(nlp, method, data, ratio)
    contracts = read_part(nlp, "cuad", "dev")
    words = [token.text for doc in contracts for token in doc]
    words = (words * (n_words // len(words) + 1))[:n_words]
    doc = spacy.tokens.Doc(nlp.vocab, words=words)
    loaded = peak_mb()
    start = default_timer()
    for _, component in nlp.pipeline:
        doc = component(doc)
    cell = {"words": len(doc), "method": method, "ratio": ratio, "n_threads": threads}
    cell |= {"seconds": default_timer() - start, "loaded_mb": loaded, "peak_mb": peak_mb()}
    write_cell(f"pruning-long-{method}-{n_words}", cell)


@app.command("dense")
def dense_cell(data: str = "cnc") -> None:
    """Initialize `pruned_transformer` on data with too much in spans, and note what it says."""
    import warnings

    from spacy.training import Example

    from spacy_spans.errors import SpansWarning

    nlp = load(build_config("gate-1", data))
    docs = read_part(nlp, data, "train")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SpansWarning)
        nlp.initialize(lambda: [Example(nlp.make_doc(doc.text), doc) for doc in docs])
    said = [str(own.message) for own in caught if "max_span_share" in str(own.message)]
    attrs = nlp.get_pipe("transformer").model.attrs
    write_cell(
        f"pruning-dense-{data}", {"data": data, "said": said, "keep_ratio": attrs["keep_ratio"]}
    )


@app.command("report")
def report() -> None:
    """Write the tables, the plot and the JSON, of the cells that are there and of those stored."""
    from _pruning_report import write_report

    write_report(WORK / "cells", RESULTS)


@app.command("all")
def run_all(fresh: bool = False, threads: int = 2) -> None:
    """Run every cell, one process each, then report."""
    options = ("--threads", threads)
    jobs: dict[str, tuple[Any, ...]] = {}
    for data in EPOCHS:
        if not find_base(data, 0).exists():
            jobs[f"pruning-base-{data}-0"] = ("base", data, *options)
        # After a base of its own there is nothing to compare: it ran with these windows already.
        elif data in WITH_STOCK_BASE:
            jobs[f"pruning-windows-{data}-0"] = ("windows", data, *options)
        for method in METHODS if data in CRITERIA_ON else TIMED_METHODS[1:]:
            jobs[f"pruning-{method}-{data}-0"] = ("continue", method, data, *options)
    for method, data in itertools.product(WITH_THRESHOLDS, EPOCHS):
        # They add to a cell: never skipped.
        jobs[f"thresholds-{method}-{data}"] = ("thresholds", method, data, *options)
    jobs |= {f"pruning-speed-{data}": ("speed", data, *options) for data in EPOCHS}
    jobs["pruning-dense-cnc"] = ("dense",)
    for method in ("unpruned", "gate-2"):
        for n_words in LONG:
            name = f"pruning-long-{method}-{n_words}"
            jobs[name] = ("long-document", n_words, "--method", method, *options)
    run_cells(Path(__file__), jobs, fresh=fresh)
    report()


if __name__ == "__main__":
    app()
