"""`span_enumerator` on streams: batches, processes, memory, odd documents, errors."""

import pickle
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import srsly
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_spans.errors import SpansError

from . import (
    CANDIDATES,
    DATA,
    LABELS,
    TEXTS,
    found,
    make_annotated_examples,
    make_nlp,
    make_pipe,
    make_trained,
    scored,
    train,
    write_given,
)


@cache
def keeps_everything():
    """A pipeline that writes all candidates: no threshold hides a difference."""
    return make_trained(threshold=0.0, steps=3)


def assert_same_scores(docs, others):
    for doc, other in zip(docs, others, strict=True):
        assert doc.text == other.text
        own, theirs = sorted(scored(doc)), sorted(scored(other))
        assert [span[:3] for span in own] == [span[:3] for span in theirs]
        np.testing.assert_allclose(
            [span[3] for span in own], [span[3] for span in theirs], atol=1e-6, rtol=1e-6
        )


any_text = st.text(
    st.one_of(
        st.sampled_from(" \n\tab.,é漢字🙂👩‍👩‍👧‍👦\u200d\u202e\u00a0"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=20,
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(any_text, st.sampled_from([*TEXTS, " ", "\n\n"])), max_size=6))
def test_pipe_equals_calls_one_by_one(texts):
    nlp = keeps_everything()
    for batch_size in (1, 3, 100):
        assert_same_scores(nlp.pipe(texts, batch_size=batch_size), map(nlp, texts))


def test_predictions_do_not_depend_on_the_rest_of_the_batch():
    alone = scored(keeps_everything()(TEXTS[0]))
    for others in (["x"], ["", " ", "a b c " * 100], [TEXTS[1]] * 30):
        texts = [*others, TEXTS[0], *others]
        doc = list(keeps_everything().pipe(texts))[len(others)]
        assert [span[:3] for span in sorted(scored(doc))] == [span[:3] for span in sorted(alone)]
        np.testing.assert_allclose(
            sorted(span[3] for span in scored(doc)), sorted(span[3] for span in alone), atol=1e-6
        )


def test_pipe_keeps_order_and_context():
    nlp = make_trained()
    pairs = [(text, i) for i, text in enumerate([TEXTS[2], TEXTS[0], "", TEXTS[1]])]
    result = list(nlp.pipe(pairs, as_tuples=True, batch_size=2))
    assert [context for _, context in result] == [0, 1, 2, 3]
    assert [found(doc) for doc, _ in result] == [DATA[i][1] for i in (2, 0, 3, 1)]


def test_pipe_takes_documents_and_generators():
    nlp = make_trained()
    docs = nlp.pipe(nlp.make_doc(text) for text in TEXTS)
    assert [found(doc) for doc in docs] == [spans for _, spans in DATA]


@pytest.mark.parametrize("candidates", ["length", "boundary"])
def test_two_processes_find_what_one_finds(candidates):
    nlp = make_trained(candidates=CANDIDATES[candidates])
    texts = [*TEXTS, *reversed(TEXTS)]
    one = list(nlp.pipe(texts, batch_size=2))
    two = list(nlp.pipe(texts, batch_size=2, n_process=2))
    assert [found(doc) for doc in two] == [spans for _, spans in [*DATA, *reversed(DATA)]]
    assert_same_scores(one, two)
    if candidates == "boundary":
        for doc, other in zip(one, two, strict=True):
            np.testing.assert_allclose(
                doc._.boundary_scores["sc"], other._.boundary_scores["sc"], atol=1e-5, rtol=1e-5
            )


@pytest.mark.parametrize("candidates", CANDIDATES)
def test_a_pickled_component_predicts_the_same(candidates):
    upstream = ("test_write_given",) if candidates == "preset" else ()
    nlp = make_nlp(candidates=CANDIDATES[candidates], upstream=upstream)
    train(nlp, make_annotated_examples(nlp, DATA))
    copy = pickle.loads(pickle.dumps(nlp.get_pipe("span_enumerator")))
    assert copy.labels == LABELS
    docs = [nlp(text) for text in TEXTS]
    copies = [write_given(nlp.make_doc(text)) for text in TEXTS]
    copy.set_annotations(copies, copy.predict(copies))
    assert [scored(doc) for doc in copies] == [scored(doc) for doc in docs]
    # And can be trained further.
    assert 0 < copy.update(make_annotated_examples(nlp, DATA))[copy.name] < 0.01


def test_a_component_without_weights_can_be_pickled():
    nlp, pipe = make_pipe()
    pipe.add_label("A")
    copy = pickle.loads(pickle.dumps(pipe))
    assert copy.labels == ("A",)
    with pytest.raises(SpansError, match="no labels or no weights"):
        copy.predict([nlp.make_doc("text")])


SPAWN = """
import multiprocessing, sys
import spacy, srsly

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    nlp = spacy.load(sys.argv[1])
    found = [
        [[span.start, span.end, span.label_] for span in doc.spans["sc"]]
        for doc in nlp.pipe(srsly.read_json(sys.argv[2]), n_process=2, batch_size=2)
    ]
    srsly.write_json(sys.argv[3], found)
"""


@pytest.mark.slow
@pytest.mark.parametrize("candidates", ["length", "boundary"])
def test_processes_that_are_spawned_find_what_one_finds(candidates, tmp_path):
    make_trained(candidates=CANDIDATES[candidates]).to_disk(tmp_path / "pipeline")
    (tmp_path / "spawn.py").write_text(SPAWN)
    srsly.write_json(tmp_path / "texts.json", TEXTS)
    names = ("spawn.py", "pipeline", "texts.json", "found.json")
    subprocess.run([sys.executable, *(tmp_path / name for name in names)], check=True, timeout=100)
    spans = [[tuple(span) for span in own] for own in srsly.read_json(tmp_path / "found.json")]
    assert [sorted(own) for own in spans] == [own for _, own in DATA]


@pytest.mark.parametrize("candidates", ["length", "boundary"])
def test_memory_zones_leave_the_component_as_it_was(candidates):
    nlp = make_trained(candidates=CANDIDATES[candidates])
    n_strings = len(nlp.vocab.strings)
    for _ in range(2):
        with nlp.memory_zone():
            texts = [f"write zork{i} Python quux{i} every day" for i in range(9)]
            assert len(list(nlp.pipe([*texts, *TEXTS]))) == len(texts) + len(TEXTS)
        assert len(nlp.vocab.strings) == n_strings
        assert [found(doc) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in DATA]


@pytest.mark.parametrize("text", [" ", "\n\n \t", "\u00a0", " " * 500, "🙂", "a\n"])
def test_white_space_and_odd_documents_are_scored_like_others(text):
    doc = keeps_everything()(text)
    longest = keeps_everything().config["components"]["span_enumerator"]["candidates"]["max_length"]
    n = len(doc)
    n_spans = sum(1 for i in range(n) for j in range(i + 1, n + 1) if j - i <= longest)
    assert len(scored(doc)) == len(LABELS) * n_spans


def test_errors_in_pipe_go_to_the_error_handler():
    nlp = make_trained()
    pipe = nlp.get_pipe("span_enumerator")
    original = pipe.listing.function

    def failing(docs, *, ops=None):
        if any("bad" in doc.text for doc in docs):
            raise ValueError("bad document")
        return original(docs, ops=ops)

    pipe.listing.function = failing
    seen = []
    pipe.set_error_handler(lambda name, proc, docs, error: seen.append((name, str(error))))
    texts = [TEXTS[0], "bad", TEXTS[1]]
    docs = list(nlp.pipe(texts, batch_size=1))
    assert [found(doc) for doc in docs] == [DATA[0][1], DATA[1][1]]
    assert seen == [("span_enumerator", "bad document")]
