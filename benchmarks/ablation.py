"""What each part of the span classifier is worth.

All heads of a run share one encoder and are trained together on it, each a `span_enumerator`
with a key of its own: a screening, cheap and paired, not final scores. Parts that did not pay
live here only.
"""

import json
import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")


import typer
from _report import table
from _training import train
from enumerator import DATA, LEARN_RATE, RESULTS, build_config
from spacy import registry
from spacy.tokens import Doc
from thinc.api import Config, Model
from torch import Tensor, nn

from spacy_spans.architectures import assemble_span_enumerator
from spacy_spans.modules.span_classifier import SpanClassifier
from spacy_spans.modules.token_projector import TokenProjector


class EndpointsOnly(SpanClassifier):
    """No content: start, end and length alone."""

    def combine(self, tokens: Tensor, offsets: Tensor) -> Tensor:
        tokens = tokens.clone()
        tokens[:, 2 * self.hidden : 3 * self.hidden] = 0
        return super().combine(tokens, offsets)


class Biaffine(SpanClassifier):
    """A low-rank bilinear form of start and end per class, beside the length."""

    def __init__(self, hidden: int, n_classes: int) -> None:
        super().__init__(hidden, n_classes)
        self.rank = 32
        self.start = nn.Linear(hidden, self.rank * n_classes)
        self.end = nn.Linear(hidden, self.rank * n_classes)
        self.of_length = nn.Linear(hidden, n_classes, bias=False)

    def _score(self, tokens: Tensor, offsets: Tensor) -> Tensor:
        from spacy_spans.modules.span_classifier import length_buckets

        start, end, _ = tokens[:, : 3 * self.hidden].split(self.hidden, dim=1)
        left = self.start(start).index_select(0, offsets[:, 0])
        right = self.end(end).index_select(0, offsets[:, 1] - 1)
        product = (left * right).reshape(len(offsets), -1, self.rank).sum(-1) * self.rank**-0.5
        lengths = self.length(length_buckets(offsets[:, 1] - offsets[:, 0]))
        return product + self.of_length(lengths) + self.classify.bias


class GridMixing(SpanClassifier):
    """Neighbours on the start x length grid exchange what they know, by a 3 x 3 convolution."""

    def __init__(self, hidden: int, n_classes: int) -> None:
        super().__init__(hidden, n_classes)
        self.mix = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.mix_out = nn.Linear(hidden, hidden)

    def forward(self, tokens: Tensor, offsets: Tensor) -> Tensor:
        if len(offsets) == 0:
            return super().forward(tokens, offsets)
        features = nn.functional.gelu(self.combine(tokens, offsets))
        lengths = offsets[:, 1] - offsets[:, 0]
        grid = features.new_zeros(len(tokens), int(lengths.max()), self.hidden)
        cell = (offsets[:, 0].long(), (lengths - 1).long())
        grid = grid.index_put(cell, features).permute(2, 0, 1).unsqueeze(0)
        mixed = self.mix(grid).squeeze(0).permute(1, 2, 0)[cell]
        return self.classify(features + self.mix_out(nn.functional.gelu(mixed)))


VARIANTS: dict[str, dict[str, Any]] = {
    "endpoints": {"classifier": EndpointsOnly, "window": 0},
    "content": {"window": 0},
    "context": {"classifier": EndpointsOnly},
    "both": {},
    "both64": {"hidden": 64},
    "both_slow": {"factor": 1.0},
    "both_fast": {"factor": 10.0},
    "both_wide": {"window": 4},
    "softmax": {"settings": {"loss": "softmax"}},
    "smoothed": {"settings": {"boundary_smoothing": 0.1}},
    "biaffine": {"classifier": Biaffine},
    "grid": {"classifier": GridMixing, "window": 0},
}


MEANINGS = {
    "endpoints": "endpoints and length only",
    "content": "+ content (mean of the tokens, from prefix sums)",
    "context": "+ context (two tokens on each side)",
    "both": "+ content + context, 128 features",
    "both64": "the same, 64 features (the default)",
    "both_wide": "the same, 128 features, four tokens on each side",
    "both_slow": "the same, 128 features, learning rate as the encoder's",
    "both_fast": "the same, 128 features, learning rate ten times the encoder's",
    "softmax": "the same, 128 features, softmax with a null class",
    "smoothed": "the same, 128 features, boundary smoothing 0.1",
    "grid": "+ content + mixing on the start x length grid",
    "biaffine": "low-rank biaffine (32) + context",
}


@registry.architectures("ablation.SpanEnumerator.v1")
def build_variant(tok2vec: Model[list[Doc], Any], variant: str) -> Model:
    options = VARIANTS[variant]
    hidden, window = options.get("hidden", 128), options.get("window", 2)
    classifier = options.get("classifier", SpanClassifier)
    return assemble_span_enumerator(
        tok2vec,
        lambda n_in, n_out: TokenProjector(n_in, hidden, window),
        lambda n_in, n_out: classifier(hidden, n_out),
        token_width=3 * hidden + 2,
        learn_rate_factor=options.get("factor", 5.0),
    )


def build_heads(variants: list[str], max_length: int) -> Config:
    """One pipeline with a head for each variant, every one under a key of its own."""
    config = build_config("span_enumerator", max_length)
    head = config["components"].pop("span_enumerator")
    for variant in variants:
        own = json.loads(json.dumps(head))
        own["model"]["@architectures"] = "ablation.SpanEnumerator.v1"
        own["model"]["variant"] = variant
        own["spans_key"] = variant
        own.update(VARIANTS[variant].get("settings", {}))
        config["components"][variant] = own
    config["nlp"]["pipeline"] = ["transformer", *variants]
    return Config(config)


def main(
    data: str = "genia", max_length: int = 12, seed: int = 0, epochs: int = 6, threads: int = 2
) -> None:
    """Train all variants on one encoder; write their strict F1 on dev."""
    variants = list(VARIANTS)
    result = train(
        build_heads(variants, max_length),
        DATA / data,
        None,
        seed=seed,
        epochs=epochs,
        learn_rate=LEARN_RATE,
        n_threads=threads,
        keys=variants,
    )
    for score in result["scores"].values():
        score.pop("curve")
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"data": data, "max_length": max_length, "seed": seed, **result}, indent=1)
    (RESULTS / "ablation.json").write_text(text + "\n", encoding="utf8")
    write_table(json.loads(text))


def write_table(result: dict[str, Any]) -> None:
    rows = []
    for variant, meaning in MEANINGS.items():
        dev, threshold = result["scores"][variant]["dev"], result["scores"][variant]["threshold"]
        scores = [f"{100 * dev[name]:.1f}" for name in ("p", "r", "f")]
        rows.append([meaning, *scores, str(threshold)])
    lines = [
        "# What each part of the span classifier is worth",
        "",
        f"`python benchmarks/ablation.py`: {result['data']}, max length {result['max_length']}, "
        f"seed {result['seed']}, {result['steps']} steps; strict on dev, best threshold of each. "
        "All heads were trained on one shared encoder, in one run: a screening, a point either "
        "way is noise.",
        "",
        *table(["head", "P", "R", "F1", "threshold"], rows),
        "",
    ]
    (RESULTS / "ablation.md").write_text("\n".join(lines), encoding="utf8")
    print("\n".join(lines))


if __name__ == "__main__":
    typer.run(main)
