"""Pipelines with a `pruned_transformer` on a tiny encoder with random weights."""

import random

import numpy as np
import pytest
import spacy
from spacy.training import Example
from thinc.api import Adam

from ..encoder import TRANSFORMER_LISTENER
from . import found, write_spans

# What the encoder of the fixture `bert` knows: words, and parts of others.
WORDS = ["we", "want", "cooks", "who", "know", "law", "and", "food", "well", ",", "!", "日"]
PIECES = [*WORDS, "un", "##be", "##li", "##x", "x"]
ODD = ["unbelix", "x" * 40, "\n", "  ", "🙂", "unknown"]
SPAN_WORDS = {"cooks", "law", "unbelix"}
# For tests of such pipelines: it is said once, of tokens such as some of the odd ones.
QUIET = pytest.mark.filterwarnings("ignore:.*more than one window")


def model_of(bert, *, criterion="gate", **settings):
    """The block of the model in a config."""
    return {
        "@architectures": "spacy-spans.PrunedTransformerModel.v1",
        "name": str(bert),
        "get_spans": {"@span_getters": "spacy-spans.piece_windows.v1", "max_pieces": 24},
        "criterion": {"@misc": f"spacy-spans.{criterion}_criterion.v1"},
        "gates": [1],
        "keep_ratio": 0.5,
        "warmup_steps": 0,
        "autocast": "none",
        **settings,
    }


def make_nlp(bert, factory="pruned_transformer", component=None, **settings):
    """A transformer, and a span_enumerator within what it keeps.

    component (dict): Settings of the transformer. settings: Of its model.
    """
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    config = {"model": model_of(bert, **settings), **(component or {})}
    if factory == "transformer":
        config["set_extra_annotations"] = {"@annotation_setters": "spacy-spans.kept_tokens.v1"}
    nlp.add_pipe(factory, name="transformer", config=config)
    nlp.add_pipe(
        "span_enumerator", config={"model": {"tok2vec": TRANSFORMER_LISTENER}, "within_kept": True}
    )
    return nlp


def random_texts(n, seed=0, words=WORDS + ODD):
    draw = random.Random(seed)
    lengths = [draw.choice([0, 1, 2, 8, 40]) for _ in range(n)]
    return [" ".join(draw.choices(words, k=length)) for length in lengths]


def make_examples(nlp, n=12, words=WORDS + ODD):
    examples = []
    for text in random_texts(n, 1, words):
        gold = nlp.make_doc(text)
        spans = [(i, i + 1, "W") for i, token in enumerate(gold) if token.text in SPAN_WORDS]
        examples.append(Example(nlp.make_doc(text), write_spans(gold, "sc", spans)))
    return examples


def train(nlp, n_updates, optimizer=None):
    optimizer = optimizer or Adam(0.003)
    for _ in range(n_updates):
        losses = nlp.update(make_examples(nlp), sgd=optimizer)
    return losses


def attrs_of(nlp):
    return nlp.get_pipe("transformer").model.attrs


def gates_of(nlp):
    """The networks of the gates, in order."""
    return nlp.get_pipe("transformer").model.layers[1].shims[0].module.gates


def vectors(doc):
    return doc._.trf_data.model_output.last_hidden_state


def kept_mask(doc):
    mask = np.zeros(len(doc), dtype=bool)
    for start, end in [span[:2] for span in found(doc, "kept_tokens")]:
        mask[start:end] = True
    return mask


def make_stock(folder):
    """Let a stored pipeline have the stock factory, which does not know two of the settings."""
    config = spacy.util.load_config(folder / "config.cfg")
    transformer = config["components"]["transformer"]
    transformer["factory"] = "transformer"
    del transformer["spans_keys"], transformer["max_span_share"]
    config.to_disk(folder / "config.cfg")
