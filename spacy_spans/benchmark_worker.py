"""What `spacy_spans.benchmark` runs in the process of each pipeline: load it, run it, answer."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from timeit import default_timer
from typing import Any, TypeAlias

from spacy_spans.errors import SpansError
from spacy_spans.runtime import import_code, use_gpu

Report: TypeAlias = dict[str, Any]

# Where pruning components write by default; others are asked for their kept_key.
KEPT_KEY = "kept_tokens"
_MB = 1024**2


@dataclass(frozen=True)
class Contender:
    """A pipeline to measure.

    path (Path): Its folder, or the name of an installed package.
    name (str): What it is called in the report.
    overrides (dict): Settings that replace those of its config, as for `spacy.load`.
    """

    path: Path
    name: str
    overrides: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Conditions:
    """What all pipelines are measured under.

    data (Path): Gold: a .spacy file, or a folder with some.
    spans_key (str): Key of doc.spans to score.
    runs (int): Timed runs over all documents, after one that is not timed.
    threads (int | None): Threads of a process; None: as many as torch takes.
    batch_size (int | None): Documents in a batch; None for each pipeline's own.
    gpu_id (int): GPU to use, -1 for the CPU.
    code (Path | None): Python file to import first.
    """

    data: Path
    spans_key: str = "sc"
    runs: int = 5
    threads: int | None = None
    batch_size: int | None = None
    gpu_id: int = -1
    code: Path | None = None


@dataclass(frozen=True)
class Failure:
    """What went wrong, for the user."""

    message: str


def serve(connection: Any, contender: Contender, conditions: Conditions) -> None:
    """Answer until the other side hangs up."""
    session = None
    while True:
        try:
            what = connection.recv()
        except EOFError:
            return
        try:
            if session is None:
                session = _Session(contender, conditions)
            answers = {
                "warm up": session.warm_up,
                "run": session.run,
                "peak": session.peak,
                "score": session.score,
            }
            answer: Any = answers[what]()
        except (SpansError, OSError) as error:
            answer = Failure(str(error))
        # The components are somebody's: they may raise anything.
        except Exception as error:
            answer = Failure(f"it cannot be run ({type(error).__name__}: {error}).")
        connection.send(answer)


class _Session:
    """One loaded pipeline and the documents."""

    def __init__(self, contender: Contender, conditions: Conditions) -> None:
        # The parent never needs them.
        import torch

        from spacy_spans.pipelines import load_pipeline, require_key
        from spacy_spans.readers import read_docbin

        use_gpu(conditions.gpu_id)
        import_code(conditions.code)
        if conditions.threads is not None:
            torch.set_num_threads(conditions.threads)
        self.threads = torch.get_num_threads()
        self.nlp = load_pipeline(contender.path, overrides=contender.overrides)
        self.conditions = conditions
        self.gold = list(read_docbin(conditions.data, self.nlp.vocab))
        self.loaded_mb = peak_mb()
        require_key(self.gold, conditions.spans_key, "The data")
        self.device = find_device(conditions.gpu_id)

    def warm_up(self) -> Report:
        """Run once, not timed, and say what was loaded."""
        self.run()
        return {
            "documents": len(self.gold),
            "threads": self.threads,
            "loaded_mb": self.loaded_mb,
        }

    def peak(self) -> Report:
        """Most memory so far, of the process and on the GPU."""
        return {"peak_mb": peak_mb(), "device_peak_mb": device_peak_mb(self.device)}

    def score(self) -> Report:
        """Run once more and score what comes out.

        It holds all documents and compares them, which is no memory of the pipeline: the peak is
        asked for before.
        """
        from spacy.training import Example

        from spacy_spans.scorers import score_spans

        docs: list[Any] = []
        self.run(predicted=docs)
        key = self.conditions.spans_key
        scores: Report = {}
        if any(key in doc.spans for doc in docs):
            examples = [Example(*pair) for pair in zip(docs, self.gold, strict=True)]
            scores = score_spans(examples, spans_key=key)
        return {
            "words": sum(map(len, docs)),
            "f": scores.get(f"spans_{key}_f"),
            "partial_f": scores.get(f"spans_{key}_partial_f"),
            "keep_ratio": self._keep_ratio(docs),
        }

    def run(self, *, predicted: list[Any] | None = None) -> dict[str, float]:
        """Seconds of each component over all documents.

        predicted (list | None): Gets what comes out; None lets go of each batch.
        """
        from spacy.util import minibatch

        from spacy_spans.pipelines import unannotated

        nlp = self.nlp
        seconds = {"tokenizer": 0.0, **dict.fromkeys(nlp.pipe_names, 0.0)}
        for batch in minibatch(self.gold, self.conditions.batch_size or nlp.batch_size):
            start = self._now()
            docs = [unannotated(nlp, doc) for doc in batch]
            seconds["tokenizer"] += self._now() - start
            for name, component in nlp.pipeline:
                start = self._now()
                if hasattr(component, "pipe"):
                    docs = list(component.pipe(docs, batch_size=len(docs)))
                else:
                    docs = [component(doc) for doc in docs]
                seconds[name] += self._now() - start
            if predicted is not None:
                predicted += docs
        return seconds

    def _now(self) -> float:
        # What is asked of a GPU is done later: seconds would be those of whoever waits for it.
        if self.device is not None:
            self.device.synchronize()
        return default_timer()

    def _keep_ratio(self, docs: Sequence[Any]) -> float | None:
        """Share of tokens in kept runs, of the first key that a pruner wrote."""
        from spacy_spans.groups import read_offsets

        pipes = [pipe for _, pipe in self.nlp.pipeline]
        # A transformer's kept_key is a setting of what annotates for it.
        writers = [*pipes, *(getattr(pipe, "set_extra_annotations", None) for pipe in pipes)]
        asked = (getattr(writer, "kept_key", None) for writer in writers)
        for key in (*asked, KEPT_KEY):
            if key and any(key in doc.spans for doc in docs):
                kept = sum(
                    int((runs[:, 1] - runs[:, 0]).sum())
                    for runs in (read_offsets(doc, key) for doc in docs if key in doc.spans)
                )
                whole = sum(len(doc) for doc in docs if key not in doc.spans)
                return (kept + whole) / max(1, sum(map(len, docs)))
        return None


def peak_mb() -> float | None:
    """Most memory that this process has held so far, in MB of 2**20 bytes; None on Windows."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Not getrusage: what it says includes the process that started this one.
        for line in status.read_text(encoding="utf8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (_MB if sys.platform == "darwin" else 1024)


def find_device(gpu_id: int) -> Any:
    """What knows the GPU that is used, `torch.cuda`; None on the CPU, and for GPUs of others."""
    import torch

    return torch.cuda if gpu_id >= 0 and torch.cuda.is_available() else None


def device_peak_mb(device: Any) -> float | None:
    """Most memory of the GPU that torch and cupy have reserved, in MB of 2**20 bytes; None without
    a GPU.
    """
    if device is None:
        return None
    from thinc.compat import cupy, has_cupy_gpu

    reserved = device.max_memory_reserved()
    if has_cupy_gpu:
        # It gives nothing back on its own. Empty where cupy takes its memory from torch.
        reserved += cupy.get_default_memory_pool().total_bytes()
    return float(reserved) / _MB
