"""Train one pipeline on one corpus, score it on dev, save it: the protocol both sides share.

Same documents (cut at `WINDOW_WORDS` in training, whole on dev), same batches (about
`BATCH_WORDS`), same Adam with 10 % warm-up and linear decay, same number of epochs, same
threshold rule (the best of 0.05 to 0.95 on dev). Small batches are for stock's sake: its
classifier starts at p = 0.5 and needs the steps.
"""

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import spacy
import torch
from spacy import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import fix_random_seed
from thinc.api import Adam, Config, warmup_linear

from spacy_spans import fragments, write_fragments

THRESHOLDS = [round(0.05 * step, 2) for step in range(1, 20)]
BATCH_WORDS = 250
WINDOW_WORDS = 128
SPANS_KEY = "sc"


def read_corpus(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf8") as file:
        return [json.loads(line) for line in file]


def reference_doc(nlp: Language, record: dict[str, Any], keys: list[str]) -> Doc:
    doc = nlp.make_doc(record["text"])
    spans = (
        doc.char_span(s["start"], s["end"], label=s["label"], alignment_mode="contract")
        for s in record["spans"]
    )
    aligned = [span for span in spans if span is not None]
    for key in keys:
        doc.spans[key] = aligned
    return doc


def cut(doc: Doc) -> list[Doc]:
    """Pieces of at most `WINDOW_WORDS`; mentions across a cut are left out."""
    pieces = []
    for start in range(0, len(doc), WINDOW_WORDS):
        end = min(start + WINDOW_WORDS, len(doc))
        piece = doc[start:end].as_doc()
        # as_doc copies neither groups nor entities that a cut goes through.
        for key in doc.spans:
            inside = (
                mention
                for mention in fragments(doc, key)
                if start <= mention[0].start and mention[-1].end <= end
            )
            write_fragments(
                piece,
                key,
                [
                    [Span(piece, s.start - start, s.end - start, label=s.label) for s in mention]
                    for mention in inside
                ],
            )
        pieces.append(piece)
    return pieces


def unannotated(doc: Doc) -> Doc:
    """The same tokens alone."""
    spaces = [bool(token.whitespace_) for token in doc]
    return Doc(doc.vocab, words=[token.text for token in doc], spaces=spaces)


def word_batches(docs: list[Doc], size: int, *, shuffle: bool) -> Iterator[list[Doc]]:
    """Group documents until the next one would pass `size` words."""
    order = list(docs)
    if shuffle:
        random.shuffle(order)
    batch: list[Doc] = []
    n_words = 0
    for doc in order:
        if batch and n_words + len(doc) > size:
            yield batch
            batch, n_words = [], 0
        batch.append(doc)
        n_words += len(doc)
    if batch:
        yield batch


def train(
    config: Config,
    corpus: Path,
    output: Path | None,
    *,
    seed: int,
    epochs: int,
    learn_rate: float,
    max_steps: int = 0,
    n_threads: int = 2,
    keys: list[str] | None = None,
    batch_words: int = BATCH_WORDS,
) -> dict[str, Any]:
    """Train `config` for `epochs`; return words/s and, after a whole training, scores on dev."""
    keys = keys or [SPANS_KEY]
    torch.set_num_threads(n_threads)
    fix_random_seed(seed)
    nlp = spacy.util.load_model_from_config(config, auto_fill=True)
    records = read_corpus(corpus / "train.jsonl")
    docs = [reference_doc(nlp, record, keys) for record in records]
    result = fit(
        nlp,
        docs,
        epochs=epochs,
        learn_rate=learn_rate,
        max_steps=max_steps,
        batch_words=batch_words,
    )
    result["n_threads"] = n_threads
    if not max_steps:
        if output is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            nlp.to_disk(output)
        records = read_corpus(corpus / "dev.jsonl")
        docs = list(nlp.pipe([record["text"] for record in records], batch_size=8))
        scores = {key: score_key(docs, records, key) for key in keys}
        result |= scores[SPANS_KEY] if SPANS_KEY in scores else {"scores": scores}
    return result


def fit(
    nlp: Language,
    docs: list[Doc],
    *,
    epochs: int,
    learn_rate: float,
    max_steps: int = 0,
    batch_words: int = BATCH_WORDS,
    begin: Callable[[int], None] = lambda total: None,
    each_step: Callable[[], None] = lambda: None,
    annotates: Sequence[str] = (),
) -> dict[str, Any]:
    """Train on annotated documents for `epochs`, or `max_steps` if that is less.

    begin: Called once all components are initialised, with the number of steps. each_step: Called
    before each. annotates: Components that are not trained here, and annotate the documents.
    """
    docs = [piece for doc in docs for piece in cut(doc)]
    nlp.initialize(lambda: [Example(unannotated(doc), doc) for doc in docs])
    total = epochs * sum(1 for _ in word_batches(docs, batch_words, shuffle=False))
    begin(total)
    optimizer = Adam(
        learn_rate=warmup_linear(learn_rate, max(1, total // 10), total),
        L2=0.01,
        L2_is_weight_decay=True,
        grad_clip=1.0,
    )
    n_words = n_steps = 0
    start = time.perf_counter()
    for epoch in range(epochs):
        for batch in word_batches(docs, batch_words, shuffle=True):
            examples = [Example(unannotated(doc), doc) for doc in batch]
            each_step()
            losses = nlp.update(
                examples, sgd=optimizer, drop=0.1, annotates=annotates, exclude=annotates
            )
            if not all(math.isfinite(loss) for loss in losses.values()):
                raise ValueError(f"Loss is not finite at step {n_steps}: {losses}")
            optimizer.step_schedules()
            n_words += sum(len(doc) for doc in batch)
            n_steps += 1
            if n_steps == max_steps:
                break
        print(f"epoch {epoch + 1}/{epochs}, {n_words / (time.perf_counter() - start):.0f} words/s")
        if n_steps == max_steps:
            break
    return {
        "train_words_per_second": n_words / (time.perf_counter() - start),
        "steps": n_steps,
        "batch_words": batch_words,
        "learn_rate": learn_rate,
    }


def score_key(docs: list[Doc], records: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """Strict micro P/R/F against the gold characters, at every threshold; the best is named.

    Gold that no token boundary meets counts as missed, for both sides.
    """
    gold = [{(s["start"], s["end"], s["label"]) for s in r["spans"]} for r in records]
    predicted = []
    for doc in docs:
        group = doc.spans[key]
        found = [(span.start_char, span.end_char, span.label_) for span in group]
        predicted.append(list(zip(found, group.attrs.get("scores", []), strict=True)))
    curve = {}
    n_gold = sum(len(keys) for keys in gold)
    for threshold in THRESHOLDS:
        hits = n_predicted = 0
        for keys, scored in zip(gold, predicted, strict=True):
            kept = {found for found, value in scored if value >= threshold}
            hits += len(kept & keys)
            n_predicted += len(kept)
        curve[str(threshold)] = {
            "p": hits / n_predicted if n_predicted else 0.0,
            "r": hits / n_gold if n_gold else 0.0,
            "f": 2 * hits / max(1, n_predicted + n_gold),
        }
    best = max(curve, key=lambda threshold: curve[threshold]["f"])
    return {"threshold": float(best), "dev": curve[best], "curve": curve}
