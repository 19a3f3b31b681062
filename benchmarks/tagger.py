"""`transformer` + `multispan_tagger` beside stock `ner` and stock `spancat`.

Same encoder (MiniLM), data, batches and epochs; see `_training.py`. `all` runs every cell in a
process of its own and writes `results/tagger.{json,md}`; cells that are there are not run again
(`--fresh` starts over).
"""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import typer
from enumerator import (
    DATA,
    ENCODER,
    HERE,
    LEARN_RATE,
    OWN_ENCODER,
    RESULTS,
    WORK,
    learn_rate,
    run_cells,
    write_cell,
)
from thinc.api import Config

EPOCHS = {"wnut17": 3, "toxic_spans": 2, "cnc": 2, "craft": 3}
BATCH_DOCS = {"wnut17": 64, "toxic_spans": 64, "cnc": 64, "craft": 2}
# What differs from the default of the component; the stock ones have a config of their own.
SYSTEMS: dict[str, dict[str, Any]] = {
    "ner": {},
    "spancat": {"components.spancat.suggester.max_size": 32},
    "tagger": {},
    "tagger-token": {"loss": "token"},
    "tagger-no-context": {"model.context_window": 0},
    "tagger-bioes": {"scheme.@misc": "spacy-spans.bioes_scheme.v1"},
    "tagger-boundary": {"scheme.@misc": "spacy-spans.boundary_scheme.v1", "loss": "token"},
    "tagger-long": {},
}
# Times the epochs of the others.
LONGER = {"tagger-long": 2}
JOBS = [
    ("tagger", "cnc"),
    ("spancat", "cnc"),
    ("tagger", "wnut17"),
    ("ner", "wnut17"),
    ("tagger", "craft"),
    ("tagger", "toxic_spans"),
    ("ner", "toxic_spans"),
    ("tagger-token", "cnc"),
    ("tagger-no-context", "cnc"),
    ("tagger-bioes", "cnc"),
    ("tagger-boundary", "cnc"),
    ("tagger-long", "cnc"),
]
# Words/s in training over a few steps, side by side: system, words in a batch, own encoder.
STEPS = [
    ("spancat", 250, False),
    ("tagger", 250, False),
    ("tagger", 250, True),
    ("spancat", 1000, False),
    ("tagger", 1000, False),
    ("tagger", 1000, True),
]
TIMED_STEPS = 12

app = typer.Typer(pretty_exceptions_enable=False)


def component_of(system: str) -> str:
    return "multispan_tagger" if system.startswith("tagger") else system


def build_config(system: str) -> Config:
    component = component_of(system)
    overrides = {"components.transformer.model.name": str(ENCODER)}
    for setting, value in SYSTEMS[system].items():
        inside = setting.startswith("components.")
        overrides[setting if inside else f"components.{component}.{setting}"] = value
    # Settings that the file leaves to the defaults have to be there to be overridden.
    config = Config().from_disk(HERE / "configs" / f"{component}.cfg", interpolate=False)
    for setting, value in overrides.items():
        section = config
        *path, name = setting.split(".")
        for part in path:
            section = section.setdefault(part, {})
        section[name] = value
    return config.interpolate()


def read_part(nlp: Any, data: str, part: str) -> list[Any]:
    """Annotated documents, aligned with `expand`; fragments and original characters are kept."""
    from spacy.tokens import DocBin

    from spacy_spans.converters import ConvertSettings, convert

    path = WORK / "corpora" / f"{data}-{part}.spacy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        convert(DATA / data / f"{part}.jsonl", path, ConvertSettings(alignment_mode="expand"))
    return list(DocBin().from_disk(path).get_docs(nlp.vocab))


@app.command("train")
def train_cell(system: str, data: str, seed: int = 0, threads: int = 2) -> None:
    """Train one pipeline, score it on dev, save it."""
    import spacy
    import torch
    from _training import fit
    from spacy.util import fix_random_seed

    torch.set_num_threads(threads)
    fix_random_seed(seed)
    nlp = spacy.util.load_model_from_config(build_config(system), auto_fill=True)
    docs = read_part(nlp, data, "train")
    if system == "ner":
        set_entities(docs)
    epochs = EPOCHS[data] * LONGER.get(system, 1)
    result = fit(nlp, docs, epochs=epochs, learn_rate=learn_rate(system, data))
    pipelines = WORK / "pipelines"
    pipelines.mkdir(parents=True, exist_ok=True)
    nlp.to_disk(pipelines / f"{system}-{data}-{seed}")
    cell = {"system": system, "data": data, "seed": seed, "epochs": epochs, "n_threads": threads}
    cell |= result | score_dev(nlp, system, read_part(nlp, data, "dev"))
    write_cell(f"tagger-train-{system}-{data}-{seed}", cell)


def set_entities(docs: list[Any]) -> None:
    """The longest of spans that overlap, which is what stock `ner` can learn."""
    from spacy.util import filter_spans

    for doc in docs:
        doc.ents = filter_spans(doc.spans["sc"])


def score_dev(nlp: Any, system: str, gold: list[Any]) -> dict[str, Any]:
    """All metrics, at the threshold that is best on dev for strict F1 and at the default one."""
    from _training import THRESHOLDS
    from spacy.training import Example

    from spacy_spans.scorers import score_spans

    predicted = list(nlp.pipe([doc.text for doc in gold], batch_size=8))
    if system == "ner":
        for doc in predicted:
            doc.spans["sc"] = list(doc.ents)
    examples = [Example(p, g) for p, g in zip(predicted, gold, strict=True)]
    curve = {}
    for threshold in [0.0] if system == "ner" else [0.0, *THRESHOLDS]:
        for doc in predicted:
            keep_above(doc, threshold)
        scores = score_spans(examples, spans_key="sc")
        curve[threshold] = {
            name.removeprefix("spans_sc_"): value
            for name, value in scores.items()
            if not isinstance(value, dict)
        }
    best = max(curve, key=lambda threshold: curve[threshold]["f"] or 0.0)
    default = 0.5 if system == "spancat" else 0.0
    return {"threshold": best, "dev": curve[best], "untuned": curve[default]}


def keep_above(doc: Any, threshold: float) -> None:
    from spacy.tokens import SpanGroup

    group = doc.spans["sc"]
    scores = group.attrs.get("scores", [1.0] * len(group))
    kept = [(span, score) for span, score in zip(group, scores, strict=True) if score >= threshold]
    doc.spans["sc"] = SpanGroup(
        doc,
        name="sc",
        attrs={"scores": [score for _, score in kept]},
        spans=[span for span, _ in kept],
    )


@app.command("steps")
def steps_cell(
    system: str,
    data: str,
    threads: int = 2,
    batch_words: int = 250,
    own_encoder: bool = False,
) -> None:
    """Time a few training steps, on request with `PrunedTransformerModel` as the encoder."""
    import spacy
    import torch
    from _training import fit

    torch.set_num_threads(threads)
    config = build_config(system)
    if own_encoder:
        config["components"]["transformer"]["model"].update(OWN_ENCODER)
    nlp = spacy.util.load_model_from_config(config, auto_fill=True)
    docs = read_part(nlp, data, "train")
    if system == "ner":
        set_entities(docs)
    result = fit(
        nlp,
        docs,
        epochs=1,
        learn_rate=LEARN_RATE,
        max_steps=TIMED_STEPS,
        batch_words=batch_words,
    )
    cell = {"system": system, "data": data, "n_threads": threads, "own_encoder": own_encoder}
    write_cell(steps_name(system, data, batch_words, own_encoder), cell | result)


def steps_name(system: str, data: str, batch_words: int, own_encoder: bool) -> str:
    name = f"tagger-steps-{system}-{data}-{batch_words}"
    return f"{name}-own-encoder" if own_encoder else name


@app.command("predict")
def predict_cell(system: str, data: str, threads: int = 2) -> None:
    """Time prediction with a trained pipeline, the encoder and what follows it apart."""
    import spacy
    import torch
    from _timing import time_parts

    torch.set_num_threads(threads)
    nlp = spacy.load(WORK / "pipelines" / f"{system}-{data}-0")
    texts = [doc.text for doc in read_part(nlp, data, "dev")]
    result = time_parts(nlp, component_of(system), texts, batch_docs=BATCH_DOCS[data])
    cell = {"system": system, "data": data, "n_threads": threads}
    write_cell(f"tagger-predict-{system}-{data}", cell | result)


@app.command("long-document")
def long_document_cell(n_tokens: int = 100_000) -> None:
    """Predict one very long document with the CNN configuration, and note the peak memory."""
    from _timing import time_long_document

    cell = time_long_document(HERE.parent / "configs" / "tagger_cpu.cfg", None, n_tokens)
    write_cell("tagger-long-document", cell)


@app.command("report")
def report() -> None:
    """Write the table and the JSON, of the cells that are there and of those stored."""
    from _tagger_report import write_report

    write_report(WORK / "cells", RESULTS)


@app.command("all")
def run_all(fresh: bool = False, threads: int = 2) -> None:
    """Run every cell, one process each, then report."""
    options = ("--threads", threads)
    jobs = {f"tagger-train-{s}-{d}-0": ("train", s, d, *options) for s, d in JOBS}
    for system, batch_words, own in STEPS:
        more = ("--batch-words", batch_words, *(["--own-encoder"] if own else []))
        jobs[steps_name(system, "cnc", batch_words, own)] = (
            "steps",
            system,
            "cnc",
            *more,
            *options,
        )
    jobs |= {f"tagger-predict-{s}-{d}": ("predict", s, d, *options) for s, d in JOBS}
    jobs["tagger-long-document"] = ("long-document",)
    run_cells(Path(__file__), jobs, fresh=fresh)
    report()


if __name__ == "__main__":
    app()
