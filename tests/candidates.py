"""What tests of candidates share."""

import numpy as np
import spacy
from spacy.tokens import Doc
from spacy.vocab import Vocab

VOCAB = Vocab()


def build(name, **settings):
    return spacy.registry.misc.get(f"spacy-spans.{name}.v1")(**settings)


def make_doc(n_tokens, sentence_lengths=None):
    starts = None
    if sentence_lengths is not None:
        starts = [i == 0 for length in sentence_lengths for i in range(length)]
    return Doc(VOCAB, words=[f"w{i}" for i in range(n_tokens)], sent_starts=starts)


def listed(ragged):
    """Offsets of each document; fails on anything but int32 of shape (n, 2)."""
    data, lengths = np.asarray(ragged.dataXd), np.asarray(ragged.lengths)
    assert data.dtype == lengths.dtype == np.int32
    assert data.shape == (lengths.sum(), 2)
    rows = [tuple(row) for row in data.tolist()]
    documents = []
    for length in lengths.tolist():
        documents.append(rows[:length])
        rows = rows[length:]
    return documents
