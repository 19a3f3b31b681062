"""Several pipelines side by side: speed, memory and scores on the same documents.

Each pipeline is loaded in a process of its own, so that its peak of memory is its own, and they
take turns, so that a machine that slows down does so for all. `run_benchmark` returns plain
numbers; `format_benchmark` and `plot_benchmark` show them.
"""

import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Literal

from tqdm import tqdm
from wasabi.tables import table

from spacy_spans.benchmark_worker import Conditions, Contender, Failure, Report, serve
from spacy_spans.errors import DataError, SettingsError
from spacy_spans.keys import percent, printable

# What is no time.
MEASURED_ONCE = ("loaded_mb", "peak_mb", "device_peak_mb", "f", "partial_f", "keep_ratio")


def name_contenders(paths: Sequence[Path]) -> list[Contender]:
    """Name pipelines by the ends of their paths, as long as it takes to tell them apart.

    Files of `spacy train` are all called model-best: training/a/model-best and
    training/b/model-best are told apart by their folders.
    """
    parts = [path.parts for path in paths]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(own[-length:]) for own in parts]
        if len(set(names)) == len(names):
            return [Contender(path, name) for path, name in zip(paths, names, strict=True)]
    return [Contender(path, str(path)) for path in paths]


def vary_setting(contenders: Sequence[Contender], vary: str) -> list[Contender]:
    """Measure each pipeline at several values of one setting.

    vary (str): "SETTING=VALUE,VALUE", as in "components.transformer.model.keep_ratio=1.0,0.5".
        Values are JSON; what is no JSON is text.
    RETURNS (list): One for each pipeline and value, with the last part of the setting's name and
        the value in its name.
    RAISES (SettingsError): Another form, or the same value twice.
    """
    setting, equals, values = vary.partition("=")
    texts = [text.strip() for text in values.split(",")]
    if not setting.strip() or not equals or not all(texts) or len(set(texts)) < len(texts):
        raise SettingsError(
            f"Got --vary {vary!r}. Expected SETTING=VALUE,VALUE with different values, as in "
            "components.transformer.model.keep_ratio=1.0,0.5"
        )
    setting = setting.strip()
    short = setting.rpartition(".")[2]
    return [
        Contender(
            contender.path,
            f"{contender.name} {short}={text}",
            {**contender.overrides, setting: _parse(text)},
        )
        for contender in contenders
        for text in texts
    ]


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def run_benchmark(
    contenders: Sequence[Contender], conditions: Conditions, *, progress: bool = False
) -> Report:
    """Measure pipelines in turns.

    contenders (Sequence[Contender]): At least one, with different names.
    progress (bool): Show a progress bar when standard error is a terminal.
    RETURNS (Report): Plain data, ready for JSON. "documents", "words" and "threads"; "pipelines":
        for each "words_per_second" (median, lowest and highest over the runs), "components"
        (median seconds of each in one run, "tokenizer" included), "peak_mb" (of the process
        with the gold documents and one batch of its own; None where the system does not tell),
        "device_peak_mb" (of the GPU; None on the CPU), "loaded_mb" (peak before any document), "f"
        and "partial_f" (None when it does not write the key), "keep_ratio" (None when it prunes
        nothing), "pareto" (see `pareto_front`).
    RAISES (SettingsError): Nothing to measure, names that are alike, or settings out of range.
    RAISES (DataError): The data lacks the key, or a pipeline cannot be loaded or run.
    """
    _check(contenders, conditions)
    with ExitStack() as stack:
        workers = [
            stack.enter_context(_start_worker(contender, conditions)) for contender in contenders
        ]
        facts, turns = _take_turns(workers, conditions.runs, progress)
    rows = [
        {"name": contender.name, "path": str(contender.path), "overrides": contender.overrides}
        | _summarize(fact, own)
        for contender, fact, *own in zip(contenders, facts, *turns, strict=True)
    ]
    for row, is_best in zip(rows, pareto_front(rows), strict=True):
        row["pareto"] = is_best
    shared = ("documents", "words", "threads")
    return {
        **{name: facts[0][name] for name in shared},
        "spans_key": conditions.spans_key,
        "runs": conditions.runs,
        "pipelines": rows,
    }


def pareto_front(rows: Sequence[Report]) -> list[bool]:
    """Which pipelines no other beats: at least as fast and as accurate, and better in one.

    Speeds are told apart only when the ranges of the runs do not overlap. Pipelines without F1 are
    never on the front.
    """

    def beats(other: Report, own: Report) -> bool:
        theirs, mine = other["words_per_second"], own["words_per_second"]
        is_faster = theirs["lowest"] > mine["highest"]
        is_slower = theirs["highest"] < mine["lowest"]
        is_better = other["f"] > own["f"]
        return other["f"] >= own["f"] and not is_slower and (is_faster or is_better)

    scored = [row for row in rows if row["f"] is not None]
    return [row["f"] is not None and not any(beats(other, row) for other in scored) for row in rows]


def format_benchmark(report: Report) -> str:
    """Write a report as tables for people, without a line break at the end."""
    on_gpu = any(row.get("device_peak_mb") is not None for row in report["pipelines"])
    memory = {"Peak MB": "peak_mb"} | ({"GPU MB": "device_peak_mb"} if on_gpu else {})
    scores = {"F": "f", "Overlap F": "partial_f", "Kept": "keep_ratio"}
    header = ["Pipeline", "Words/s", "Lowest", "Highest", *memory, *scores, ""]
    rows = []
    for row in report["pipelines"]:
        speed = row["words_per_second"]
        rows.append(
            (
                printable(row["name"]),
                *(f"{speed[name]:,.0f}" for name in ("median", "lowest", "highest")),
                *("-" if row[name] is None else f"{row[name]:,.0f}" for name in memory.values()),
                *(percent(row[name]) for name in scores.values()),
                "best" if row["pareto"] else "",
            )
        )
    right: list[Literal["r", "c", "l"]] = ["r"] * (len(header) - 2)
    parts = [
        table(rows, header=header, divider=True, aligns=["l", *right, "l"], max_col=60),
        _format_components(report["pipelines"]),
    ]
    text = "\n\n".join(part.strip("\n") for part in parts)
    return (
        f"{text}\n\n{report['documents']:,} documents, {report['words']:,} words, "
        f"{report['runs']} runs in turns after one that is not counted, {report['threads']} "
        "threads. Best: no other is as fast and more accurate, or as accurate and faster."
    )


def plot_benchmark(report: Report, path: Path, image_format: str | None = None) -> None:
    """Draw F1 against words/s, with the front of those that no other beats.

    path (Path): Image to write. image_format (str | None): None: by the ending of path.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    scored = [row for row in report["pipelines"] if row["f"] is not None]
    for row in scored:
        speed = row["words_per_second"]
        axes.errorbar(
            speed["median"],
            100 * row["f"],
            xerr=[[speed["median"] - speed["lowest"]], [speed["highest"] - speed["median"]]],
            fmt="o" if row["pareto"] else "x",
            color="tab:blue" if row["pareto"] else "tab:gray",
            capsize=3,
        )
        # A "$" would be read as the start of a formula.
        axes.annotate(
            row["name"].replace("$", r"\$"),
            (speed["median"], 100 * row["f"]),
            textcoords="offset points",
            xytext=(6, 6),
            fontsize="small",
        )
    front = sorted(
        (row["words_per_second"]["median"], 100 * row["f"]) for row in scored if row["pareto"]
    )
    axes.plot(*zip(*front, strict=True) if front else ([], []), color="tab:blue", alpha=0.4)
    axes.margins(0.2)
    axes.set_xlabel(f"Words/s, {report['threads']} threads (bars: lowest and highest run)")
    axes.set_ylabel(f"Strict F1 of {report['spans_key']!r} in %")
    axes.set_title(
        "Circles: no other is as fast and more accurate, or as accurate and faster",
        fontsize="small",
    )
    axes.grid(alpha=0.3)
    figure.savefig(path, format=image_format, dpi=150)


def _check(contenders: Sequence[Contender], conditions: Conditions) -> None:
    names = [contender.name for contender in contenders]
    if not names or len(set(names)) < len(names):
        raise SettingsError(
            f"Got the pipelines {names}. Expected at least one, each under a name of its own."
        )
    for name, value, lowest in (
        ("runs", conditions.runs, 1),
        ("threads", conditions.threads, 1),
        ("batch_size", conditions.batch_size, 1),
    ):
        if value is not None and value < lowest:
            raise SettingsError(f"Got {name} = {value}. Expected {lowest} or more.")


def _summarize(fact: Report, runs: Sequence[dict[str, float]]) -> Report:
    speeds = [fact["words"] / max(sum(run.values()), sys.float_info.epsilon) for run in runs]
    return {
        "words_per_second": {
            "median": median(speeds),
            "lowest": min(speeds),
            "highest": max(speeds),
        },
        "components": {name: median(run[name] for run in runs) for name in runs[0]},
        **{name: fact[name] for name in MEASURED_ONCE},
    }


def _format_components(rows: Sequence[Report]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row["components"]))
    body = [
        (
            printable(row["name"]),
            *(f"{own[name]:.2f}" if name in (own := row["components"]) else "-" for name in names),
        )
        for row in rows
    ]
    right: list[Literal["r", "c", "l"]] = ["r"] * len(names)
    header = ["Seconds per run", *map(printable, names)]
    return table(body, header=header, divider=True, aligns=["l", *right])


def _take_turns(
    workers: "Sequence[_Worker]", n_runs: int, progress: bool
) -> tuple[list[Report], list[list[Report]]]:
    """What is known of each worker in the end, and for each run the seconds of each."""
    n_steps = len(workers) * (n_runs + 2)
    with tqdm(total=n_steps, unit=" runs", leave=False, disable=None if progress else True) as bar:

        def ask(worker: _Worker, what: str) -> Report:
            answer: Report = worker.ask(what)
            bar.update(what != "peak")
            return answer

        # One after the other: two that work at once would share the memory.
        facts = [ask(worker, "warm up") for worker in workers]
        turns = [[ask(worker, "run") for worker in workers] for _ in range(n_runs)]
        # Scoring takes memory of its own, so it comes last.
        for what in ("peak", "score"):
            for worker, fact in zip(workers, facts, strict=True):
                fact |= ask(worker, what)
    return facts, turns


class _Worker:
    def __init__(self, name: str, process: Any, connection: Any) -> None:
        self.name = name
        self.process = process
        self.connection = connection

    def ask(self, what: str) -> Any:
        """RAISES (DataError): What failed in the process, or that it ended."""
        try:
            self.connection.send(what)
            answer = self.connection.recv()
        except (EOFError, OSError) as error:
            self.process.join(10)
            raise DataError(
                f"The process of the pipeline {self.name!r} ended with exit code "
                f"{self.process.exitcode}; -9 means that the system ran out of memory, or somebody "
                "killed it. Leave this pipeline out, or try a smaller --batch-size."
            ) from error
        if isinstance(answer, Failure):
            raise DataError(f"Pipeline {self.name!r}: {answer.message}")
        return answer


@contextmanager
def _start_worker(contender: Contender, conditions: Conditions) -> Iterator[_Worker]:
    # Not forked: threads of torch do not survive that, and memory would be shared.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, contender, conditions), daemon=True)
    with _threads_in_environment(conditions.threads):
        process.start()
    theirs.close()
    try:
        yield _Worker(contender.name, process, ours)
    finally:
        ours.close()
        process.terminate()
        process.join()


@contextmanager
def _threads_in_environment(threads: int | None) -> Iterator[None]:
    """Libraries read the number when they are imported, which is before a worker runs."""
    before = os.environ.get("OMP_NUM_THREADS")
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before
        elif threads is not None:
            del os.environ["OMP_NUM_THREADS"]
