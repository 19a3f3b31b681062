"""The life of the component: overfit, predict, round trip, score; groups; listeners."""

import numpy as np
import pytest
import spacy
from spacy.tokens import DocBin

from spacy_spans.errors import SpansError

from . import (
    CANDIDATES,
    DATA,
    LABELS,
    LISTENER,
    TEXTS,
    data_for,
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
    write_given,
    write_spans,
)

# Overfit, predict, round trip, score


@pytest.fixture(
    scope="module",
    params=[(loss, name) for loss in ("sigmoid", "softmax") for name in CANDIDATES],
    ids=lambda param: "-".join(param),
)
def overfitted(request):
    """A pipeline that knows its data by heart, and the data."""
    loss, candidates = request.param
    upstream = ("test_write_given",) if candidates == "preset" else ()
    nlp = make_nlp(loss=loss, candidates=CANDIDATES[candidates], upstream=upstream)
    data = data_for(loss)
    losses = train(nlp, make_annotated_examples(nlp, data))
    assert 0 < losses["span_enumerator"] < 0.01
    return nlp, data


def test_overfits_nested_and_crossing_spans(overfitted):
    nlp, data = overfitted
    for text, spans in data:
        doc = nlp(text)
        assert found(doc) == spans
        assert all(0.9 < score <= 1 for *_, score in scored(doc))
        assert doc.spans["sc"].name == "sc"
        assert not doc.ents


def test_round_trips_predict_bitwise_the_same(overfitted, tmp_path):
    nlp, data = overfitted
    nlp.to_disk(tmp_path)
    from_bytes = spacy.blank("en").from_config(nlp.config)
    from_bytes.from_bytes(nlp.to_bytes())
    for loaded in (spacy.load(tmp_path), from_bytes):
        assert loaded.get_pipe("span_enumerator").labels == LABELS
        for text, _ in data:
            assert scored(loaded(text)) == scored(nlp(text))
        assert loaded.to_bytes() == nlp.to_bytes()


def test_component_round_trips_alone(overfitted, tmp_path):
    nlp, data = overfitted
    pipe = nlp.get_pipe("span_enumerator")
    pipe.to_disk(tmp_path / "pipe")
    docs = [nlp(text) for text, _ in data]
    for load in (
        lambda new: new.from_bytes(pipe.to_bytes()),
        lambda new: new.from_disk(tmp_path / "pipe"),
    ):
        _, new = make_pipe(loss=pipe.loss)
        new.listing = pipe.listing
        assert load(new) is new
        copies = [write_given(doc.copy()) for doc in docs]
        new.set_annotations(copies, new.predict(copies))
        assert [scored(copy) for copy in copies] == [scored(doc) for doc in docs]


def test_scores_of_perfect_predictions(overfitted):
    nlp, data = overfitted
    scores = nlp.evaluate(make_examples(nlp, data))
    for name in ("p", "r", "f", "boundary_f", "candidate_recall"):
        assert scores[f"spans_sc_{name}"] == 1.0, name
    perfect = {"p": 1.0, "r": 1.0, "f": 1.0}
    assert scores["spans_sc_per_type"] == dict.fromkeys(LABELS, perfect)


def test_scores_of_imperfect_predictions():
    nlp, pipe = make_pipe()
    pipe.add_label("A")
    example = make_example(nlp, "a b c d", [(0, 1, "A"), (0, 2, "A"), (2, 4, "B")])
    write_spans(example.predicted, "sc", [(0, 1, "A"), (2, 4, "A"), (3, 4, "A")])
    scores = pipe.score([example])
    assert scores["spans_sc_p"] == pytest.approx(1 / 3)
    assert scores["spans_sc_r"] == pytest.approx(1 / 3)
    assert scores["spans_sc_f"] == pytest.approx(1 / 3)
    assert scores["spans_sc_boundary_f"] == pytest.approx(2 / 3)
    assert scores["spans_sc_candidate_recall"] == 1.0
    assert scores["spans_sc_per_type"]["A"] == {
        "p": pytest.approx(1 / 3),
        "r": pytest.approx(1 / 2),
        "f": pytest.approx(2 / 5),
    }
    assert scores["spans_sc_per_type"]["B"] == {"p": 0.0, "r": 0.0, "f": 0.0}


def test_scores_without_any_span_are_none():
    nlp, pipe, _ = make_initialized()
    for data in ([], [("", [])]):
        scores = pipe.score(make_examples(nlp, data))
        assert {scores[f"spans_sc_{name}"] for name in ("p", "r", "f", "boundary_f")} == {None}


def test_without_a_scorer_there_are_no_scores():
    _, pipe, examples = make_initialized(scorer=None)
    assert pipe.score(examples) == {}


# Before there is anything to predict with


def test_prediction_before_initialize_is_an_error_that_says_what_to_do():
    nlp, pipe = make_pipe()
    with pytest.raises(SpansError, match=r"'span_enumerator' has no labels or no weights.*Train"):
        nlp("text")
    pipe.add_label("A")
    with pytest.raises(SpansError, match="no labels or no weights"):
        nlp("text")
    with pytest.raises(SpansError, match="no labels or no weights"):
        pipe.update([make_example(nlp, "text", [(0, 1, "A")])])


def test_empty_documents_pass_before_initialize():
    nlp, pipe = make_pipe()
    assert found(nlp("")) == []
    assert nlp("").spans["sc"].attrs["scores"] == []
    assert pipe.predict([]).spans == []
    assert list(nlp.pipe([])) == []


# Groups that are written


def test_groups_have_their_key_as_name_and_a_score_for_each_span():
    nlp, _ = make_pipe(spans_key="skills", candidates_key="listed", threshold=0.0)
    examples = make_examples(nlp, key="skills")
    nlp.initialize(lambda: examples)
    for text in TEXTS:
        doc = nlp(text)
        assert sorted(doc.spans) == ["listed", "skills"]
        for key in doc.spans:
            assert doc.spans[key].name == key
            assert len(doc.spans[key].attrs["scores"]) == len(doc.spans[key])
        scores = doc.spans["skills"].attrs["scores"]
        assert all(type(score) is float for score in scores)
        assert np.asarray(scores, dtype="f").tolist() == scores, "float32 values"


def test_groups_survive_a_docbin():
    nlp = make_trained(candidates_key="listed", candidates=CANDIDATES["boundary"])
    docs = [nlp(text) for text in TEXTS]
    data = DocBin(docs=docs, store_user_data=True).to_bytes()
    for doc, copy in zip(docs, DocBin().from_bytes(data).get_docs(nlp.vocab), strict=True):
        assert scored(copy) == scored(doc)
        assert found(copy, "listed") == found(doc, "listed")
        assert list(copy._.boundary_scores) == ["sc"]
        np.testing.assert_array_equal(copy._.boundary_scores["sc"], doc._.boundary_scores["sc"])


def test_groups_are_rebuilt_on_each_pass():
    nlp = make_trained()
    doc = nlp(TEXTS[0])
    again = nlp(doc)
    assert found(again) == DATA[0][1]
    assert len(again.spans["sc"].attrs["scores"]) == len(DATA[0][1])


def test_other_groups_are_left_alone():
    nlp = make_trained()
    doc = write_spans(nlp.make_doc(TEXTS[0]), "mine", [(0, 1, "X"), (0, 2, "Y")])
    assert found(nlp(doc), "mine") == [(0, 1, "X"), (0, 2, "Y")]


@pytest.mark.parametrize("candidates", ["length", "boundary"])
def test_predict_writes_nothing(candidates):
    nlp, pipe, _ = make_initialized(candidates=CANDIDATES[candidates], candidates_key="listed")
    docs = [nlp.make_doc(text) for text in TEXTS]
    before = [doc.to_bytes() for doc in docs]
    prediction = pipe.predict(docs)
    assert [doc.to_bytes() for doc in docs] == before
    pipe.set_annotations(docs, prediction)
    for doc in docs:
        assert sorted(doc.spans) == ["listed", "sc"]
        assert (doc._.boundary_scores is not None) == (candidates == "boundary")


# What a listener listens to


def test_a_listener_with_nothing_to_listen_to_is_an_error():
    nlp = make_trained(tok2vec=LISTENER, upstream=("tok2vec",))
    assert found(nlp(TEXTS[0])) == DATA[0][1]
    message = "'span_enumerator' listens to a tok2vec or transformer component"
    with nlp.select_pipes(disable="tok2vec"):
        with pytest.raises(SpansError, match=message):
            nlp(TEXTS[0])
        with pytest.raises(SpansError, match=message):
            list(nlp.pipe(TEXTS))
        assert found(nlp("")) == []
    pipe = nlp.get_pipe("span_enumerator")
    # One document among others that was processed.
    with pytest.raises(SpansError, match=message):
        pipe.predict([nlp(TEXTS[0]), nlp.make_doc(TEXTS[1])])
    # Empty documents have nothing to listen to.
    assert len(pipe.predict([nlp(TEXTS[0]), nlp.make_doc("")]).spans) == 2


def test_a_listener_is_not_missed_where_it_was_replaced():
    nlp = make_trained(tok2vec=LISTENER, upstream=("tok2vec",))
    nlp.replace_listeners("tok2vec", "span_enumerator", ["model.tok2vec"])
    with nlp.select_pipes(disable="tok2vec"):
        assert [found(doc) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in DATA]
