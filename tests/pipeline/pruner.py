"""Pipelines with a `token_pruner`."""

import numpy as np
import spacy

from spacy_spans.pipeline.token_pruner import TokenPruner

from . import SMALL_TOK2VEC

# Tokens in spans: of the first text 2 and 3, of the second none.
SPARSE = [
    ("we need good cooks who work hard every day", [(2, 4, "WHO")]),
    ("and we pay well", []),
    ("", []),
    ("please call today", [(0, 1, "HOW"), (2, 3, "WHEN")]),
]
TEXTS = [text for text, _ in SPARSE]
LEXICAL = {"@architectures": "spacy-spans.LexicalTokenPruner.v1"}
RECALL = {"@misc": "spacy-spans.recall_target_policy.v1", "recall": 0.9}


def make_nlp(model=None, **config):
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    name = config.pop("name", "token_pruner")
    model = model or {"tok2vec": SMALL_TOK2VEC}
    nlp.add_pipe("token_pruner", name=name, config={"context": 0, "model": model, **config})
    return nlp, nlp.get_pipe(name)


def kept(doc, key="kept_tokens"):
    group = doc.spans[key]
    assert group.name == key
    assert len(group.attrs["scores"]) == len(group)
    assert {span.label_ for span in group} <= {""}
    return [(span.start, span.end) for span in group]


def give_scores(pipe, monkeypatch, scores):
    """Let a pruner score every document alike, repeated where it is longer."""
    monkeypatch.setattr(TokenPruner, "_has_weights", True)

    def score_tokens(docs):
        return [np.resize(np.asarray(scores, dtype="f"), len(doc)) for doc in docs]

    monkeypatch.setattr(pipe, "score_tokens", score_tokens)
