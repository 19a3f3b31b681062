"""Timing and memory of prediction, on pipelines that are trained already."""

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import spacy
from spacy import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch
from thinc.api import Config

# Words read by one run: seconds for the encoder, minutes for stock at 32.
MAX_WORDS = 8000


def time_parts(
    nlp: Language, head: str, texts: list[str], *, batch_docs: int, repeats: int = 3
) -> dict[str, Any]:
    """Median seconds of the encoder and of all that follows it, over the same batches.

    Memory: how far the peak rises once the head runs as well.
    """
    encoder, component = nlp.get_pipe("transformer"), nlp.get_pipe(head)
    lengths = [len(nlp.make_doc(text)) for text in texts]
    n_texts = next((i for i in range(len(texts)) if sum(lengths[:i]) >= MAX_WORDS), len(texts))
    texts, n_words = texts[:n_texts], sum(lengths[:n_texts])

    def run(with_head: bool) -> tuple[float, float]:
        seconds = [0.0, 0.0]
        for batch in minibatch([nlp.make_doc(text) for text in texts], batch_docs):
            start = time.perf_counter()
            encoder.set_annotations(batch, encoder.predict(batch))
            middle = time.perf_counter()
            if with_head:
                component.set_annotations(batch, component.predict(batch))
            seconds[0] += middle - start
            seconds[1] += time.perf_counter() - middle
        return seconds[0], seconds[1]

    run(with_head=False)
    before = _peak_bytes()
    run(with_head=True)
    after = _peak_bytes()
    n_runs = 1 if run(with_head=True)[1] > 60 else repeats
    runs = [run(with_head=True) for _ in range(n_runs)]
    encoder_seconds = statistics.median(run[0] for run in runs)
    head_seconds = statistics.median(run[1] for run in runs)
    return {
        "batch_docs": batch_docs,
        "words": n_words,
        "runs": n_runs,
        "encoder_seconds": encoder_seconds,
        "head_seconds": head_seconds,
        "head_share": statistics.median(run[1] / run[0] for run in runs),
        "words_per_second": n_words / (encoder_seconds + head_seconds),
        "memory_growth_mb": (after - before) / 1024**2,
        "peak_mb": after / 1024**2,
    }


def time_long_document(config_path: Path, max_length: int, n_tokens: int) -> dict[str, Any]:
    """Predict one document of `n_tokens` with a lightly trained CNN pipeline."""
    config = Config().from_disk(config_path, interpolate=False)
    config["vars"]["max_length"] = max_length
    config = config.interpolate()
    nlp = spacy.util.load_model_from_config(config, auto_fill=True)
    words = "we need somebody who can write clean Python code and talk to customers".split()
    reference = Doc(nlp.vocab, words=words * 4)
    short = Doc(nlp.vocab, words=words * 4)
    reference.spans["sc"] = [spacy.tokens.Span(reference, 5, 8, label="SKILL")]
    examples = [Example(short, reference)]
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(30):
        nlp.update(examples, sgd=optimizer)
    long = Doc(nlp.vocab, words=(words * (n_tokens // len(words) + 1))[:n_tokens])
    start = time.perf_counter()
    for _, component in nlp.pipeline:
        long = component(long)
    return {
        "tokens": len(long),
        "max_length": max_length,
        "seconds": time.perf_counter() - start,
        "spans": len(long.spans["sc"]),
        "peak_mb": _peak_bytes() / 1024**2,
    }


STARTUP = """
import sys, time, types
if {hidden}:
    stub = types.ModuleType("spacy_spans.factories")
    stub.make_span_enumerator = stub.make_multispan_tagger = lambda: None
    sys.modules["spacy_spans.factories"] = stub
import spacy
start = time.perf_counter()
spacy.blank("en")
print(time.perf_counter() - start)
"""


def time_startup(runs: int) -> dict[str, Any]:
    """Median seconds of the first `spacy.blank("en")` in a process, in turn with and without."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(runs):
        for hidden, collected in seconds.items():
            code = STARTUP.format(hidden=hidden)
            output = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True
            )
            collected.append(float(output.stdout))
    with_package = statistics.median(seconds[False])
    without = statistics.median(seconds[True])
    return {
        "runs": runs,
        "with_ms": 1000 * with_package,
        "without_ms": 1000 * without,
        "difference_ms": 1000 * (with_package - without),
    }


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
