"""What `span_enumerator` lists: written, learned, added in training, of other packages."""

import warnings

import numpy as np
import pytest
import spacy
from spacy.training import Example
from thinc.api import Adam, Ragged

from spacy_spans.candidates import read_boundary_scores
from spacy_spans.errors import DataError, SpansError, SpansWarning

from . import (
    CANDIDATES,
    DATA,
    LABELS,
    SMALL_TOK2VEC,
    TEXTS,
    found,
    make_annotated_examples,
    make_example,
    make_examples,
    make_initialized,
    make_nlp,
    make_pipe,
    make_trained,
    scored,
    train,
    write_spans,
)

# Before initialize


def test_learned_candidates_before_initialize_are_an_error_that_says_what_to_do():
    nlp, pipe = make_pipe(candidates=CANDIDATES["boundary"])
    with pytest.raises(SpansError, match="no labels or no weights"):
        pipe.set_candidates([nlp.make_doc("text")])


def test_candidates_that_need_no_weights_can_be_written_before_initialize():
    nlp, pipe = make_pipe()
    doc = nlp.make_doc("two words")
    pipe.set_candidates([doc])
    assert found(doc, "candidates") == [(0, 1, ""), (0, 2, ""), (1, 2, "")]


# Written and learned


@pytest.mark.parametrize("candidates", CANDIDATES)
def test_candidates_are_written_only_on_request(candidates):
    for key in (None, "candidates"):
        nlp, pipe = make_pipe(
            candidates=CANDIDATES[candidates],
            candidates_key=key,
            upstream=("test_write_given",) if candidates == "preset" else (),
        )
        examples = make_annotated_examples(nlp, DATA)
        nlp.initialize(lambda examples=examples: examples)
        doc, empty = nlp("We pay well"), nlp("")
        assert ("candidates" in doc.spans) == (key is not None)
        assert ("candidates" in empty.spans) == (key is not None)
        if key is not None:
            listed = [(span.start, span.end) for span in doc.spans["candidates"]]
            scores = [read_boundary_scores(doc)] if candidates == "boundary" else None
            expected = pipe.listing([doc], scores).dataXd.tolist()
            assert listed == [tuple(span) for span in expected] != []
            assert {span.label_ for span in doc.spans["candidates"]} == {""}
            assert doc.spans["candidates"].attrs["scores"] == [1.0] * len(listed)
            assert list(empty.spans["candidates"]) == []


@pytest.mark.parametrize("candidates", ["length", "boundary"])
def test_set_candidates_writes_what_prediction_scores(candidates):
    nlp, pipe, _ = make_initialized(candidates=CANDIDATES[candidates], candidates_key="written")
    docs = [nlp(text) for text in TEXTS]
    pipe.set_candidates(docs)
    pipe.set_candidates(docs, candidates_key="again")
    for doc in docs:
        assert found(doc, "candidates") == found(doc, "again") == found(doc, "written")
    empty = [nlp.make_doc("")]
    pipe.set_candidates(empty)
    assert list(empty[0].spans["candidates"]) == []
    pipe.set_candidates([])


def test_only_boundary_candidates_leave_boundary_scores_on_documents():
    nlp, pipe, _ = make_initialized(candidates=CANDIDATES["boundary"])
    docs = list(nlp.pipe(TEXTS))
    tokens = pipe.model.get_ref("tokens").predict(docs)
    np.testing.assert_allclose(
        np.concatenate([doc._.boundary_scores["sc"] for doc in docs]), tokens[:, -2:], atol=1e-6
    )
    shapes = [doc._.boundary_scores["sc"].shape for doc in docs]
    assert shapes == [(6, 2), (6, 2), (3, 2), (0, 2)]
    assert docs[0]._.boundary_scores["sc"].dtype == np.float32
    nlp, _, _ = make_initialized()
    assert nlp(TEXTS[0])._.boundary_scores is None


def test_two_components_have_their_own_boundary_scores():
    # What the second learns lies elsewhere than what the first learns.
    nlp = make_nlp(candidates={**CANDIDATES["boundary"], "ratio": 0.05}, spans_key="one")
    config = {
        "spans_key": "two",
        "model": {"hidden_width": 16, "tok2vec": SMALL_TOK2VEC},
        "candidates": {**CANDIDATES["boundary"], "ratio": 0.05},
    }
    nlp.add_pipe("span_enumerator", name="second", config=config)
    text = "begin n finish " + "x " * 10 + "open n n close " + "y " * 10
    example = make_example(nlp, text, [(0, 3, "ONE")], "one")
    write_spans(example.reference, "two", [(13, 17, "TWO")])
    train(nlp, [example], steps=80)
    doc = nlp(text)
    assert (found(doc, "one"), found(doc, "two")) == ([(0, 3, "ONE")], [(13, 17, "TWO")])
    assert sorted(doc._.boundary_scores) == ["one", "two"]
    assert not np.allclose(doc._.boundary_scores["one"], doc._.boundary_scores["two"], atol=1.0)
    scores = nlp.evaluate([Example(nlp.make_doc(text), example.reference)])
    assert scores["spans_one_candidate_recall"] == scores["spans_two_candidate_recall"] == 1.0


def test_boundaries_that_were_never_learned_are_an_error_when_loaded(tmp_path):
    nlp, pipe, _ = make_initialized()
    nlp.to_disk(tmp_path)
    with pytest.raises(DataError, match="start and end scores, which it never learned"):
        make_nlp(candidates=CANDIDATES["boundary"]).from_bytes(nlp.to_bytes())
    with pytest.raises(DataError, match="start and end scores, which it never learned"):
        make_nlp(candidates=CANDIDATES["boundary"]).from_disk(tmp_path)
    # The other way round there is nothing to miss, nor before initialize.
    learned, _, _ = make_initialized(candidates=CANDIDATES["boundary"])
    assert make_nlp().from_bytes(learned.to_bytes()).get_pipe(pipe.name).labels == LABELS
    again = make_nlp(candidates=CANDIDATES["boundary"]).from_bytes(learned.to_bytes())
    assert scored(again(TEXTS[0])) == scored(learned(TEXTS[0]))
    bare = make_nlp(candidates=CANDIDATES["boundary"])
    make_nlp(candidates=CANDIDATES["boundary"]).from_bytes(bare.to_bytes())


def test_boundary_scores_do_not_hold_on_to_the_batch():
    nlp, _, _ = make_initialized(candidates=CANDIDATES["boundary"])
    for doc in nlp.pipe(TEXTS):
        assert doc._.boundary_scores["sc"].base is None


def test_learned_boundaries_reach_gold_that_length_does_not():
    data = [
        ("a " * 20 + "begin " + "m " * 30 + "finish " + "z " * 20, [(20, 52, "LONG")]),
        ("x " * 10 + "begin n finish " + "y " * 10, [(10, 13, "LONG")]),
    ]
    nlp = make_trained(data, candidates={**CANDIDATES["boundary"], "ratio": 0.05})
    for text, spans in data:
        assert found(nlp(text)) == spans


def test_stock_spancat_learns_from_learned_boundaries():
    nlp = make_nlp(candidates=CANDIDATES["boundary"])
    spancat = {"suggester": CANDIDATES["boundary"], "spans_key": "theirs"}
    nlp.add_pipe("spancat", config=spancat)
    examples = make_examples(nlp)
    for example in examples:
        example.reference.spans["theirs"] = example.reference.spans["sc"].copy()
    train(nlp, examples, steps=60, annotates=["span_enumerator"])
    docs = list(nlp.pipe(TEXTS))
    assert [found(doc) for doc in docs] == [spans for _, spans in DATA]
    assert [found(doc, "theirs") for doc in docs] == [spans for _, spans in DATA]


def test_stock_spancat_without_annotating_components_says_what_to_do():
    nlp = make_nlp(candidates=CANDIDATES["boundary"])
    config = {"suggester": CANDIDATES["boundary"], "spans_key": "theirs"}
    nlp.add_pipe("spancat", config=config)
    examples = make_examples(nlp)
    for example in examples:
        example.reference.spans["theirs"] = example.reference.spans["sc"].copy()
    nlp.initialize(lambda: examples)
    fresh = make_examples(nlp, key="theirs")
    with nlp.select_pipes(enable="spancat"), pytest.raises(SpansError, match="annotating_compon"):
        nlp.update(fresh)


@pytest.mark.parametrize("key", ["sc", "skills"])
def test_another_component_names_whose_boundary_scores_it_uses(key):
    nlp = make_nlp(candidates=CANDIDATES["boundary"])
    model = {"hidden_width": 16, "tok2vec": SMALL_TOK2VEC}
    config = {"spans_key": "skills", "candidates": CANDIDATES["boundary"], "model": model}
    nlp.add_pipe("span_enumerator", name="second", config=config)
    suggester = {**CANDIDATES["boundary"], "scores_key": key}
    config = {"spans_key": "theirs", "suggester": suggester, "threshold": 0.0}
    nlp.add_pipe("spancat", config=config)
    examples = make_examples(nlp)
    for example in examples:
        for other in ("theirs", "skills"):
            example.reference.spans[other] = example.reference.spans["sc"].copy()
    train(nlp, examples, steps=2, annotates=["span_enumerator", "second"])
    doc = nlp(TEXTS[0])
    pipe = nlp.get_pipe("span_enumerator" if key == "sc" else "second")
    pipe.set_candidates([doc])
    # At threshold 0 every candidate is kept.
    assert {span[:2] for span in found(doc, "theirs")} == {
        span[:2] for span in found(doc, "candidates")
    }


# Added in training, and of other packages


def test_gold_candidates_are_added_only_when_asked():
    # A gold span longer than the candidates, and nothing else to learn from.
    data = [("a b c d", [(0, 4, "A")])]
    short = {**CANDIDATES["length"], "max_length": 1}
    pipes = {}
    for add in (True, False):
        nlp, pipe = make_pipe(candidates=short, add_gold_candidates=add)
        examples = make_examples(nlp, data)
        with pytest.warns(SpansWarning, match="1 of 1 gold spans"):
            nlp.initialize(lambda examples=examples: examples)
        gold = [pipe._gold(example).offsets for example in examples]
        docs = [example.predicted for example in examples]
        listed, weights = pipe.listing.in_training(
            docs, gold, None, [True] * len(docs), add_gold=add, negative_ratio=None
        )
        assert weights is None
        pipes[add] = [tuple(span) for span in listed.dataXd.tolist()]
        assert pipe.update(examples, sgd=Adam(0.01))["span_enumerator"] > 0
    assert pipes[False] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert pipes[True] == [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)]


def test_gold_candidates_are_never_added_to_predictions():
    data = [("a b c d", [(0, 4, "A")])]
    nlp, _ = make_pipe(candidates={**CANDIDATES["length"], "max_length": 1})
    examples = make_examples(nlp, data)
    with pytest.warns(SpansWarning):
        train(nlp, examples)
    assert found(nlp("a b c d")) == []
    assert nlp.evaluate(examples)["spans_sc_candidate_recall"] == 0.0


def test_candidates_of_stock_spancat_can_be_used():
    ngrams = {"@misc": "spacy.ngram_suggester.v1", "sizes": [1, 2, 3, 4, 5, 6]}
    nlp = make_trained(candidates=ngrams)
    assert [found(doc) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in DATA]


def with_foreign_candidates(listed, **settings_):
    """A component whose candidates are the given ones, in every document that has tokens."""
    _, pipe, _ = make_initialized(threshold=0.0, candidates_key="listed", **settings_)
    arrays = np.asarray(listed, dtype="i").reshape(-1, 2)

    def list_foreign(docs, *, ops=None):
        own = [arrays if len(doc) else arrays[:0] for doc in docs]
        return Ragged(np.concatenate(own), np.asarray([len(a) for a in own], dtype="i"))

    pipe.listing.function = list_foreign
    return pipe


def test_candidates_of_others_are_sorted_and_scored_once():
    pipe = with_foreign_candidates([(2, 3), (0, 2), (2, 3), (0, 1)])
    docs = [spacy.blank("en").make_doc(text) for text in ("a b c", "", "d e f")]
    pipe.set_annotations(docs, pipe.predict(docs))
    listed = [[(span.start, span.end) for span in doc.spans["listed"]] for doc in docs]
    assert listed == [[(0, 1), (0, 2), (2, 3)], [], [(0, 1), (0, 2), (2, 3)]]
    assert [len(doc.spans["sc"]) for doc in docs] == [3 * len(LABELS), 0, 3 * len(LABELS)]


def test_candidates_of_others_outside_the_document_are_an_error():
    pipe = with_foreign_candidates([(0, 1), (1, 4)])
    nlp = spacy.blank("en")
    for call in (
        lambda: pipe.predict([nlp.make_doc("a b c")]),
        lambda: pipe.update([make_example(nlp, "a b c", [])]),
    ):
        with pytest.raises(SpansError, match=r"returned the span \[1, 4\] for a document of 3"):
            call()


@pytest.mark.parametrize("candidates", ["length", "boundary"])
def test_candidates_are_listed_in_numpy(candidates):
    nlp, pipe, _ = make_initialized(candidates=CANDIDATES[candidates], candidates_key="listed")
    listed = pipe.predict([nlp.make_doc(text) for text in TEXTS]).candidates
    assert type(listed.dataXd) is type(listed.lengths) is np.ndarray
    assert listed.dataXd.dtype == np.int32
    assert listed.dataXd.shape == (listed.lengths.sum(), 2)


# Read from what components before wrote


def test_candidates_read_from_an_upstream_component_can_be_initialized_from_bare_documents():
    # What `spacy train` does: documents of the corpus carry no annotation at initialize.
    nlp = make_nlp(candidates=CANDIDATES["preset"], upstream=("test_write_given",))
    examples = make_examples(nlp)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpansWarning)
        train(nlp, examples, annotates=["test_write_given"])
    assert [found(doc) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in DATA]


def test_candidates_within_sentences_can_be_initialized_from_bare_documents():
    within = {**CANDIDATES["length"], "within_sentences": True}
    nlp = make_nlp(candidates=within, upstream=("sentencizer",))
    examples = make_examples(nlp)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpansWarning)
        train(nlp, examples, annotates=["sentencizer"])
    assert [found(doc) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in DATA]
