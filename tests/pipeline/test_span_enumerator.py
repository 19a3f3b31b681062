"""The life of the component: overfit, predict, round trip, score; settings; training; empties."""

import pickle
import subprocess
import sys
import warnings
from functools import cache

import numpy as np
import pytest
import spacy
import srsly
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from thinc.api import Adam, Ragged

from spacy_spans.candidates import read_boundary_scores, split_offsets, to_ragged
from spacy_spans.errors import DataError, SpansError, SpansWarning
from spacy_spans.modules.span_classifier import SpanClassifier
from spacy_spans.torch_layer import layer_shim

from .. import reference
from . import (
    CANDIDATES,
    DATA,
    LABELS,
    LISTENER,
    ONE_LABEL_DATA,
    SMALL_TOK2VEC,
    found,
    make_example,
    make_examples,
    make_initialized,
    make_nlp,
    make_pipe,
    make_trained,
    scored,
    train,
    train_on,
    write_given,
    write_spans,
)

pytestmark = pytest.mark.installed

TEXTS = [text for text, _ in DATA]


def data_for(loss):
    return ONE_LABEL_DATA if loss == "softmax" else DATA


def make_annotated_examples(nlp, data):
    """Examples whose predicted documents have the spans that preset candidates are read from."""
    examples = make_examples(nlp, data)
    for example in examples:
        write_given(example.predicted)
    return examples


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


def test_learned_candidates_before_initialize_are_an_error_that_says_what_to_do():
    nlp, pipe = make_pipe(candidates=CANDIDATES["boundary"])
    with pytest.raises(SpansError, match="no labels or no weights"):
        pipe.set_candidates([nlp.make_doc("text")])


def test_candidates_that_need_no_weights_can_be_written_before_initialize():
    nlp, pipe = make_pipe()
    doc = nlp.make_doc("two words")
    pipe.set_candidates([doc])
    assert found(doc, "candidates") == [(0, 1, ""), (0, 2, ""), (1, 2, "")]


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


# pipe equals one by one


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


# Labels


def test_labels_added_before_initialize_come_first_and_are_learned():
    nlp, pipe = make_pipe()
    assert pipe.add_label("SKILL") == 1
    assert pipe.add_label("SKILL") == 0
    assert pipe.labels == ("SKILL",)
    train(nlp, make_examples(nlp))
    assert pipe.labels == ("SKILL", "DUTY", "KNOWLEDGE")
    assert [found(doc) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in DATA]


@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_a_label_added_after_initialize_leaves_the_others_and_is_learned(loss):
    data = data_for(loss)
    nlp = make_trained(data, loss=loss)
    pipe = nlp.get_pipe("span_enumerator")
    docs = [nlp.make_doc(text) for text in TEXTS]
    candidates = pipe.listing(docs, None)
    classifier = pipe.model.get_ref("classifier")
    before = {key: value.clone() for key, value in state_of(classifier).items()}
    logits = pipe.model.predict((docs, candidates))
    n_old = logits.shape[1]
    assert pipe.add_label("NEW") == 1
    assert pipe.add_label("NEW") == 0
    assert pipe.labels == (*LABELS, "NEW")
    assert pipe.model.get_dim("nO") == classifier.get_dim("nO") == n_old + 1
    after = state_of(classifier)
    # What was learned is there bit by bit; logits differ only by the rounding of a wider product.
    for key, value in before.items():
        assert torch.equal(after[key][: len(value)], value), key
    resized = pipe.model.predict((docs, candidates))
    assert resized.shape == (len(logits), n_old + 1)
    np.testing.assert_allclose(resized[:, :n_old], logits, rtol=1e-5, atol=1e-4)
    with_new = [*data, ("totally new words", [(1, 3, "NEW")])]
    losses = train_on(nlp, make_examples(nlp, with_new))
    assert losses["span_enumerator"] < 0.01
    assert [found(doc) for doc in nlp.pipe(text for text, _ in with_new)] == [
        spans for _, spans in with_new
    ]
    loaded = make_nlp(loss=loss).from_bytes(nlp.to_bytes())
    assert scored(loaded("totally new words")) == scored(nlp("totally new words"))


def state_of(model):
    return layer_shim(model).module.state_dict()


def test_an_optimizer_that_knew_the_old_size_trains_a_new_label():
    nlp, pipe, examples = make_initialized()
    optimizer = Adam(0.005)
    nlp.update(examples, sgd=optimizer)
    pipe.add_label("NEW")
    new = [*examples, make_example(nlp, "totally new words", [(1, 3, "NEW")])]
    for _ in range(60):
        nlp.update(new, sgd=optimizer)
    assert found(nlp("totally new words")) == [(1, 3, "NEW")]


# Training


def make_update(data=DATA, repeat=1, **config):
    """Loss and gradients of one update without an optimizer, from fixed weights."""
    nlp, pipe, _ = make_initialized(data_for(config.get("loss")), **config)
    examples = [example for _ in range(repeat) for example in make_examples(nlp, data)]
    losses = pipe.update(examples)
    return losses["span_enumerator"], gradients_of(pipe)


def gradients_of(pipe):
    gradients = {}
    for i, node in enumerate(pipe.model.walk()):
        for name in node.grad_names:
            gradients[i, name] = node.get_grad(name).copy()
        for shim in node.shims:
            for name, value in shim.module.named_parameters():
                assert value.grad is not None, name
                gradients[i, name] = value.grad.numpy().copy()
    return gradients


def assert_same_gradients(gradients, others, factor=1.0, **tolerance):
    tolerance = {"rtol": 1e-3, "atol": 1e-6, **tolerance}
    assert sorted(gradients) == sorted(others)
    for key, value in gradients.items():
        np.testing.assert_allclose(value * factor, others[key], err_msg=str(key), **tolerance)


@pytest.mark.parametrize("candidates", ["length", "boundary"])
@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_repeating_the_batch_changes_neither_loss_nor_gradient(loss, candidates):
    config = {"loss": loss, "candidates": CANDIDATES[candidates]}
    once, gradients = make_update(**config)
    thrice, others = make_update(repeat=3, **config)
    assert once > 0.1
    assert thrice == pytest.approx(once, rel=1e-4)
    assert max(np.abs(value).max() for value in gradients.values()) > 1e-3
    assert_same_gradients(gradients, others)


@pytest.mark.parametrize("candidates", ["length", "boundary"])
@pytest.mark.parametrize(
    "settings_",
    [
        {},
        {"loss": "softmax"},
        {"boundary_smoothing": 0.2},
        {"loss": "softmax", "boundary_smoothing": 0.2},
        {"negative_ratio": 2.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [1, 7, 48])
def test_blocks_of_candidates_train_as_one_block(monkeypatch, size, settings_, candidates):
    config = {"candidates": CANDIDATES[candidates], **settings_}
    whole, gradients = make_update(**config)
    monkeypatch.setattr("spacy_spans.pipeline.candidate_scoring.SPANS_PER_TRAINING_BLOCK", size)
    seen = []
    classify = SpanClassifier.forward

    def spy(self, tokens, offsets):
        seen.append(len(offsets))
        return classify(self, tokens, offsets)

    monkeypatch.setattr(SpanClassifier, "forward", spy)
    blocks, others = make_update(**config)
    assert set(seen[:-1]) <= {size}
    assert 0 < seen[-1] <= size
    assert sum(seen) > 10
    assert blocks == pytest.approx(whole, rel=1e-5)
    assert_same_gradients(gradients, others)


def test_update_adds_to_the_losses_it_is_given():
    _, pipe, examples = make_initialized()
    losses = {"other": 1.0, "span_enumerator": 2.0}
    alone = pipe.update(examples)["span_enumerator"]
    returned = pipe.update(examples, losses=losses)
    assert returned is losses
    assert losses == {"other": 1.0, "span_enumerator": pytest.approx(2.0 + alone)}


def test_update_without_an_optimizer_accumulates_gradients():
    nlp, pipe, examples = make_initialized()
    before = nlp.to_bytes()
    pipe.update(examples)
    once = gradients_of(pipe)
    pipe.update(examples)
    assert_same_gradients(once, gradients_of(pipe), factor=2.0)
    assert nlp.to_bytes() == before
    pipe.finish_update(Adam(0.01))
    assert nlp.to_bytes() != before
    assert not any(value.any() for value in gradients_of(pipe).values())


def test_update_with_an_optimizer_changes_weights_and_lowers_the_loss():
    _, pipe, examples = make_initialized()
    optimizer = Adam(0.005)
    losses = [pipe.update(examples, sgd=optimizer)["span_enumerator"] for _ in range(10)]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_training_that_has_diverged_stops(monkeypatch, value):
    nlp, pipe, examples = make_initialized()
    before = nlp.to_bytes()
    original = pipe._loss

    def diverged(*args):
        return value, original(*args)[1]

    monkeypatch.setattr(pipe, "_loss", diverged)
    message = rf"The loss of 'span_enumerator' is {value}: training has diverged.*learning rate"
    with pytest.raises(SpansError, match=message):
        pipe.update(examples, sgd=Adam(0.01))
    assert nlp.to_bytes() == before


def test_dropout_is_used_in_training_only():
    nlp, pipe, examples = make_initialized()
    without = {pipe.update(examples)["span_enumerator"] for _ in range(2)}
    assert len(without) == 1
    with_dropout = {pipe.update(examples, drop=0.5)["span_enumerator"] for _ in range(3)}
    assert len(with_dropout) == 3
    first, second = (pipe.predict([nlp.make_doc(TEXTS[0])]).spans[0] for _ in range(2))
    assert first.scores.tolist() == second.scores.tolist()


def test_training_with_dropout_overfits_too():
    nlp = make_nlp()
    train(nlp, make_examples(nlp), steps=80, drop=0.1)
    assert [found(doc) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in DATA]


@pytest.mark.parametrize("candidates", ["length", "boundary"])
@pytest.mark.parametrize("settings_", [{}, {"negative_ratio": 2.0}, {"loss": "softmax"}], ids=str)
def test_empties_cost_nothing_in_training(candidates, settings_):
    data = data_for(settings_.get("loss"))
    nlp, pipe, _ = make_initialized(data, candidates=CANDIDATES[candidates], **settings_)
    before = nlp.to_bytes()
    optimizer = Adam(0.01)
    assert pipe.update([], sgd=optimizer) == {"span_enumerator": 0.0}
    empty = make_examples(nlp, [("", []), ("", [])])
    assert pipe.update(empty, sgd=optimizer) == {"span_enumerator": 0.0}
    assert nlp.to_bytes() == before
    # White space is made of tokens, and negatives like any others.
    blank = make_examples(nlp, [("", []), (" ", []), ("\n \t", [])])
    assert pipe.update(blank, sgd=optimizer)["span_enumerator"] > 0


def test_a_batch_without_candidates_costs_nothing():
    nlp, pipe = make_pipe(candidates=CANDIDATES["preset"], negative_ratio=1.0)
    examples = make_annotated_examples(nlp, DATA)
    nlp.initialize(lambda: examples)
    bare = make_examples(nlp, [("We pay well", []), ("", [])])
    for example in bare:
        write_spans(example.predicted, "given", [])
    assert pipe.update(bare, sgd=Adam(0.01)) == {"span_enumerator": 0.0}
    docs = [example.predicted for example in bare]
    pipe.set_annotations(docs, pipe.predict(docs))
    assert [list(doc.spans["sc"]) for doc in docs] == [[], []]


@pytest.mark.parametrize("kind", ["length", "boundary"])
def test_documents_without_the_key_teach_nothing(kind):
    nlp, pipe, _ = make_initialized(candidates=CANDIDATES[kind])
    missing = Example(nlp.make_doc("We pay well"), nlp.make_doc("We pay well"))
    empty = make_example(nlp, "We pay well", [])
    assert pipe.update([empty])["span_enumerator"] > 0
    pipe.finish_update(Adam(0.0))
    assert pipe.update([missing])["span_enumerator"] == 0
    parameters = [
        parameter
        for name in ("tokens", "classifier")
        for node in pipe.model.get_ref(name).walk()
        for shim in node.shims
        for parameter in shim.module.parameters()
    ]
    assert parameters
    assert not any(p.grad is not None and p.grad.any() for p in parameters)
    if kind == "length":
        assert pipe.get_loss([missing], logits_for(pipe, [missing]))[0] == 0


def test_training_data_with_unknown_labels_is_an_error():
    nlp, pipe, _ = make_initialized()
    example = make_example(nlp, "We pay well", [(0, 1, "TYPO")])
    for call in (pipe.update, lambda examples: pipe.get_loss(examples, logits_for(pipe, examples))):
        with pytest.raises(SpansError, match=r"'We' labelled 'TYPO'.*knows only \['DUTY'"):
            call([example])


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


def logits_for(pipe, examples, seed=None):
    docs = [example.predicted for example in examples]
    candidates = pipe.listing(docs, None)
    if seed is None:
        return candidates, pipe.model.predict((docs, candidates))
    shape = (len(candidates.dataXd), pipe.n_classes)
    return candidates, np.random.RandomState(seed).normal(size=shape)


@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_get_loss_gradient_matches_differences(loss, smoothing):
    nlp, pipe, _ = make_initialized(data_for(loss), loss=loss, boundary_smoothing=smoothing)
    examples = make_examples(nlp, [("a b c", [(0, 2, "SKILL"), (0, 2, "DUTY")]), ("", [])])
    candidates, logits = logits_for(pipe, examples, seed=1)
    value, gradient = pipe.get_loss(examples, (candidates, logits))
    assert value > 0
    assert gradient.shape == logits.shape == (6, pipe.n_classes)
    step = 1e-5
    for index in np.ndindex(logits.shape):
        around = []
        for sign in (1, -1):
            moved = logits.copy()
            moved[index] += sign * step
            around.append(pipe.get_loss(examples, (candidates, moved))[0])
        assert gradient[index] == pytest.approx((around[0] - around[1]) / (2 * step), abs=2e-5)


@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_get_loss_is_what_update_reports(loss):
    _, pipe, examples = make_initialized(data_for(loss), loss=loss)
    value, _ = pipe.get_loss(examples, logits_for(pipe, examples))
    assert pipe.update(examples)["span_enumerator"] == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_get_loss_is_the_slow_loss_per_token(loss):
    smoothing = 0.2
    nlp, pipe, _ = make_initialized(data_for(loss), loss=loss, boundary_smoothing=smoothing)
    examples = make_examples(nlp)
    candidates, logits = logits_for(pipe, examples, seed=2)
    value, _ = pipe.get_loss(examples, (candidates, logits))
    total, row = 0.0, 0
    for (_, gold), own in zip(DATA, split_offsets(candidates), strict=True):
        labelled = [(start, end, LABELS.index(label)) for start, end, label in gold]
        spans = [tuple(span) for span in own.tolist()]
        for targets in reference.targets_of(spans, labelled, len(LABELS), smoothing):
            given = logits[row].tolist()
            if loss == "softmax":
                total += reference.softmax_loss_of(given, reference.null_class_first(targets))
            else:
                total += sum(map(reference.sigmoid_loss_of, given, targets))
            row += 1
    assert value == pytest.approx(total / 15, rel=1e-5)


def test_get_loss_of_empties_is_zero():
    nlp, pipe, _ = make_initialized()
    for examples in ([], make_examples(nlp, [("", [])])):
        nothing = to_ragged([np.zeros((0, 2), "i")] * len(examples))
        value, gradient = pipe.get_loss(examples, (nothing, np.zeros((0, 3), "f")))
        assert value == 0.0
        assert gradient.shape == (0, 3)


def test_sampled_negatives_cost_on_average_what_all_cost():
    # Fixed weights: only the draw differs.
    _, pipe, examples = make_initialized()
    whole = pipe.update(examples)["span_enumerator"]
    pipe.negative_ratio = 1.0
    np.random.seed(0)
    draws = [pipe.update(examples)["span_enumerator"] for _ in range(300)]
    assert np.std(draws) > 0
    error = np.std(draws) / np.sqrt(len(draws))
    assert abs(np.mean(draws) - whole) < 4 * error
    pipe.negative_ratio = 1e9
    assert pipe.update(examples)["span_enumerator"] == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("settings_", [{"negative_ratio": 3.0}, {"boundary_smoothing": 0.1}])
def test_training_options_overfit_too(settings_):
    nlp = make_trained(steps=80, **settings_)
    assert [found(doc) for doc in nlp.pipe(TEXTS)] == [spans for _, spans in DATA]


def test_boundary_smoothing_pulls_near_misses_up():
    data = [("a b c d e f", [(1, 4, "A")])]
    scores = {}
    for smoothing in (0.0, 0.4):
        nlp = make_trained(data, boundary_smoothing=smoothing, threshold=0.0, steps=150)
        by_span = {span[:2]: span[3] for span in scored(nlp("a b c d e f"))}
        scores[smoothing] = by_span
    np.testing.assert_allclose(scores[0.0][1, 4], 1.0, atol=0.02)
    np.testing.assert_allclose(scores[0.4][1, 4], 0.6, atol=0.05)
    for near in ((0, 4), (2, 4), (1, 3), (1, 5)):
        assert scores[0.0][near] < 0.02
        assert scores[0.4][near] == pytest.approx(0.1, abs=0.05)
    for smoothing in scores:
        assert scores[smoothing][5, 6] < 0.02


def test_misaligned_gold_is_left_out_of_training():
    nlp, pipe, _ = make_initialized()
    aligned = make_example(nlp, "a bc", [(0, 1, "SKILL")])
    words, spaces = ["a", "b", "c"], [True, False, False]
    reference_doc = Doc(nlp.vocab, words=words, spaces=spaces)
    write_spans(reference_doc, "sc", [(0, 1, "SKILL"), (1, 2, "DUTY")])
    misaligned = Example(nlp.make_doc("a bc"), reference_doc)
    assert pipe.update([misaligned])["span_enumerator"] == pipe.update([aligned])["span_enumerator"]


def test_gold_on_other_tokens_is_learned_where_it_fits():
    nlp = make_nlp()
    reference_doc = Doc(nlp.vocab, words=["a", "b", "c"], spaces=[True, False, False])
    write_spans(reference_doc, "sc", [(1, 3, "A"), (0, 3, "B")])
    example = Example(nlp.make_doc("a bc"), reference_doc)
    train(nlp, [example])
    assert found(nlp("a bc")) == [(0, 2, "B"), (1, 2, "A")]


def test_two_components_share_a_token_encoder():
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "*"}
    nlp = make_nlp(tok2vec=listener, upstream=("tok2vec",), spans_key="one")
    config = {"spans_key": "two", "model": {"hidden_width": 16, "tok2vec": listener}}
    nlp.add_pipe("span_enumerator", name="second", config=config)
    examples = []
    for text, spans in DATA:
        example = make_example(nlp, text, spans, "one")
        write_spans(example.reference, "two", [(0, end, "TWO") for _, end, _ in spans[:1]])
        examples.append(example)
    losses = train(nlp, examples)
    assert set(losses) == {"tok2vec", "span_enumerator", "second"}
    docs = list(nlp.pipe(TEXTS))
    assert [found(doc, "one") for doc in docs] == [spans for _, spans in DATA]
    assert [found(doc, "two") for doc in docs] == [[(0, 3, "TWO")], [(0, 6, "TWO")], [], []]


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


def test_initialize_sets_the_bias_to_the_rarity_of_each_label():
    _, pipe, examples = make_initialized()
    classifier = layer_shim(pipe.model.get_ref("classifier")).module
    assert isinstance(classifier, SpanClassifier)
    n = 21 + 21 + 6
    counts = {"DUTY": 1, "KNOWLEDGE": 2, "SKILL": 4}
    rates = [(counts[label] + 1) / (n + 2) for label in LABELS]
    expected = [np.log(rate / (1 - rate)) for rate in rates]
    np.testing.assert_allclose(classifier.classify.bias.detach().numpy(), expected, rtol=1e-5)
    # So that the first loss is about that of guessing the rates.
    assert pipe.update(examples)["span_enumerator"] < 3 * len(LABELS) * n * 0.35 / 15
