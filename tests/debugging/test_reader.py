"""Documents that reader and batcher drop before training."""

import pytest
import spacy
from spacy.tokens import Doc, Span
from spacy.training import Corpus, Example
from spacy.training.batchers import minibatch_by_padded_size, minibatch_by_words

from spacy_spans.debugging.reader import _most_words, check_reader

from . import VOCAB, make, said, side

CORPUS = {"@readers": "spacy.Corpus.v1", "path": "x"}
WORDS = {"@batchers": "spacy.batch_by_words.v1", "tolerance": 0.5, "discard_oversize": True}
PADDED = {"@batchers": "spacy.batch_by_padded.v1", "buffer": 1, "discard_oversize": True}


def config_of(reader=None, batcher=None):
    return {"corpora": {"train": {**CORPUS, **(reader or {})}}, "training": {"batcher": batcher}}


def words(*lengths):
    return side(*(make(" ".join(["w"] * n), *[(0, 1, "A")] * (n > 0)) for n in lengths))


def in_sentences(n):
    doc = make(" ".join(["w"] * n), (0, 1, "A"))
    doc[0].is_sent_start = True
    for token in doc[1:]:
        token.is_sent_start = token.i % 2 == 0
    doc.ents = [Span(doc, 0, 1, "E")]
    return side(doc)


def test_nothing_is_left_out():
    for config in ({}, config_of(), config_of({"max_length": 0}), config_of({"max_length": 9})):
        for examples in ([], words(0), words(3, 8)):
            assert said(check_reader({"train": examples}, config, ["sc"])) == ["good: none"]
    # Of dev, nothing is said: its reader is another.
    config = config_of({"max_length": 2}, {**WORDS, "size": 1})
    assert said(check_reader({"dev": words(5)}, config, ["sc"])) == ["good: none"]
    other = config_of({"max_length": 2, "@readers": "other"}, {**WORDS, "discard_oversize": False})
    assert said(check_reader({"train": words(5)}, other, ["sc"])) == ["good: none"]


def test_the_reader_leaves_out_long_documents(tmp_path):
    config = config_of({"max_length": 4})
    (found,) = said(check_reader({"train": words(3, 4, 9)}, config, ["sc"]))
    assert found.startswith("warning: train: 2 of 3 documents left out, with 2 spans: the reader ")
    (found,) = said(check_reader({"train": words(4)}, config, ["sc"]))
    assert found.startswith("error: train: 1 of 1 document left out, with 1 span: the reader has ")
    # Sentences have entities, but no doc.spans.
    assert said(check_reader({"train": in_sentences(4)}, config, ["doc.ents"])) == ["good: none"]
    assert check_reader({"train": in_sentences(4)}, config, ["sc"]).findings[0][0] == "error"


def test_what_the_reader_leaves_out_is_what_spacy_leaves_out():
    examples = [*words(3, 4, 9), *in_sentences(6)]
    docs = [example.reference for example in examples]
    nlp = spacy.blank("en")
    read = list(Corpus("x", max_length=4).make_examples(nlp, docs))
    assert [len(own.reference) for own in read if "sc" in own.reference.spans] == [3]
    read = list(Corpus("x", gold_preproc=True).make_examples_gold_preproc(nlp, docs))
    assert [len(own.reference) for own in read if "sc" in own.reference.spans] == [3, 4, 9]


def test_gold_preproc_leaves_out_what_has_sentences():
    config = config_of({"gold_preproc": True})
    examples = [*words(3), *in_sentences(4)]
    (found,) = said(check_reader({"train": examples}, config, ["sc", "doc.ents"]))
    assert found.startswith("warning: train: 1 of 2 documents left out, with 2 spans: the reader ")
    assert said(check_reader({"train": examples}, config, ["doc.ents"])) == ["good: none"]


@pytest.mark.parametrize(
    "batcher", [{**WORDS, "size": 4}, {**PADDED, "size": 7}], ids=["words", "padded"]
)
def test_the_batcher_leaves_out_what_spacy_leaves_out(batcher):
    examples = words(2, 6, 7, 20)
    (found,) = said(check_reader({"train": examples}, config_of(None, batcher), ["sc"]))
    assert found.startswith("warning: train: 2 of 4 documents left out, with 2 spans: [training.b")
    assert "takes no document of more than 6 tokens" in found
    if "tolerance" in batcher:
        batches = minibatch_by_words(examples, 4, 0.5, True)
    else:
        batches = minibatch_by_padded_size(examples, 7, 1, True)
    assert [len(example) for batch in batches for example in batch] == [2, 6]


@pytest.mark.parametrize(
    ("size", "most"),
    [
        (100, 150),
        ({"@schedules": "compounding.v1", "start": 10, "stop": 40, "compound": 1.1}, 60),
        ({"@schedules": "other.v1"}, float("inf")),
        (None, float("inf")),
    ],
)
def test_the_longest_document_of_a_batch(size, most):
    assert _most_words({**WORDS, "size": size}) == most
    assert _most_words({"@batchers": "other", "size": size}) == float("inf")


def test_reader_and_batcher_count_a_document_once():
    config = config_of({"max_length": 10}, {**WORDS, "size": 4})
    found = said(check_reader({"train": words(3, 8, 20)}, config, ["sc"]))
    assert [own.split(":")[2].strip() for own in found] == [
        "1 of 3 documents left out, with 1 span"
    ] * 2
    found = said(check_reader({"train": words(8, 20)}, config, ["sc"]))
    assert [own.split(":")[0] for own in found] == ["warning", "error"]


def test_documents_are_measured_in_the_tokens_of_their_side():
    reference = Doc(VOCAB, words=["a", "b"], spaces=[False, False])
    examples = [Example(Doc(VOCAB, words=["ab"]), reference)]
    assert said(
        check_reader({"train": examples}, config_of(None, {**WORDS, "size": 1}), ["sc"])
    ) == ["good: none"]
    assert (
        check_reader({"train": examples}, config_of({"max_length": 2}), ["sc"]).findings[0][0]
        == "error"
    )
