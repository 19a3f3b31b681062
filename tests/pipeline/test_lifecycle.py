"""What a pipeline goes through: sourced, renamed, frozen, in processes; with each component."""

import pytest
import spacy
from thinc.api import Adam

from . import (
    LISTENER,
    SMALL_TOK2VEC,
    TEXTS,
    assert_perfect,
    examples_of,
    make_nlp,
    predictions,
    scored,
    train,
    train_by_heart,
    train_on,
    with_listener,
)

# Sourced, renamed, frozen


def test_sourced_with_its_token_encoder(factory, listening, tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", source=listening)
    nlp.add_pipe(factory, source=listening)
    assert predictions(nlp) == predictions(listening)
    nlp.to_disk(tmp_path)
    assert predictions(spacy.load(tmp_path)) == predictions(listening)


def test_sourced_without_its_token_encoder_after_replacing_the_listener(factory, tmp_path):
    source = with_listener(factory)
    expected = predictions(source)
    source.replace_listeners("tok2vec", factory, ["model.tok2vec"])
    assert predictions(source) == expected
    nlp = spacy.blank("en")
    nlp.add_pipe(factory, source=source)
    assert nlp.pipe_names == [factory]
    assert predictions(nlp) == expected
    nlp.to_disk(tmp_path)
    assert predictions(spacy.load(tmp_path)) == expected


def test_a_pipeline_with_a_replaced_listener_can_be_trained(factory):
    nlp = with_listener(factory)
    nlp.replace_listeners("tok2vec", factory, ["model.tok2vec"])
    pipe = nlp.get_pipe(factory)
    before = pipe.model.get_ref("tok2vec").to_bytes()
    losses = train_on(nlp, examples_of(nlp), steps=2)
    assert losses[factory] < 0.5
    assert pipe.model.get_ref("tok2vec").to_bytes() != before
    assert_perfect(nlp)


def test_sourced_into_a_pipeline_with_another_component(factory):
    other = make_nlp(factory=factory, name="other", spans_key="other")
    train(other, examples_of(other, "other"))
    source = train_by_heart(factory)
    other.add_pipe(factory, source=source)
    assert predictions(other) == predictions(source)
    assert_perfect(other, "other")


def test_sourcing_a_trained_component_leaves_the_source_alone(factory):
    source = train_by_heart(factory)
    expected = predictions(source)
    nlp = spacy.blank("en")
    nlp.add_pipe(factory, source=source)
    threshold = source.get_pipe(factory).cfg["threshold"]
    nlp.get_pipe(factory).cfg["threshold"] = 0.999999
    assert source.get_pipe(factory).cfg["threshold"] in (threshold, 0.999999)
    source.get_pipe(factory).cfg["threshold"] = threshold
    assert predictions(source) == expected


@pytest.mark.parametrize("upstream", [(), ("tok2vec",)])
def test_renamed(factory, upstream, tmp_path):
    nlp = train_by_heart(
        factory, upstream=upstream, tok2vec=LISTENER if upstream else SMALL_TOK2VEC
    )
    expected = predictions(nlp)
    nlp.rename_pipe(factory, "finder")
    assert nlp.pipe_names == [*upstream, "finder"]
    assert predictions(nlp) == expected
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert loaded.pipe_names == [*upstream, "finder"]
    assert predictions(loaded) == expected
    assert train_on(loaded, examples_of(loaded), steps=1)["finder"] < 0.5


def test_not_updated_while_disabled(factory):
    nlp = train_by_heart(factory, upstream=())
    nlp.add_pipe("textcat").add_label("A")
    nlp.get_pipe("textcat").add_label("B")
    examples = examples_of(nlp)
    for example in examples:
        example.reference.cats = {"A": 1.0, "B": 0.0}
    with nlp.select_pipes(enable="textcat"):
        nlp.initialize(lambda: examples)
        before = nlp.get_pipe(factory).to_bytes()
        train_on(nlp, examples, steps=2)
    assert nlp.get_pipe(factory).to_bytes() == before
    assert_perfect(nlp)


def test_excluded_from_an_update(factory):
    nlp = train_by_heart(factory)
    before = nlp.to_bytes()
    assert nlp.update(examples_of(nlp), sgd=Adam(0.1), exclude=[factory]) == {}
    assert nlp.to_bytes() == before


# Processes and memory


def test_two_processes_find_what_one_finds(factory):
    nlp = train_by_heart(factory)
    expected = predictions(nlp)
    docs = list(nlp.pipe([*TEXTS, *TEXTS], batch_size=2, n_process=2))
    for doc, own in zip(docs, [*expected, *expected], strict=True):
        spans, ids = own[: len(own) // 2], own[len(own) // 2 :]
        assert [span.id_ for span in doc.spans["sc"]] == ids
        for span, (*other, score) in zip(scored(doc), spans, strict=True):
            assert span == (*other, pytest.approx(score, abs=1e-6))


def test_memory_zones_leave_the_component_as_it_was(factory):
    nlp = train_by_heart(factory)
    assert_perfect(nlp)
    n_strings = len(nlp.vocab.strings)
    for _ in range(2):
        with nlp.memory_zone():
            texts = [f"write zork{i} Python quux{i} every day" for i in range(9)]
            assert len(list(nlp.pipe([*texts, *TEXTS]))) == len(texts) + len(TEXTS)
        assert len(nlp.vocab.strings) == n_strings
        assert_perfect(nlp)


def test_errors_in_pipe_go_to_the_error_handler(factory, monkeypatch):
    nlp = train_by_heart(factory)
    pipe = nlp.get_pipe(factory)
    predict = pipe.predict

    def failing(docs):
        if any("bad" in doc.text for doc in docs):
            raise ValueError("bad document")
        return predict(docs)

    monkeypatch.setattr(pipe, "predict", failing)
    seen = []
    pipe.set_error_handler(lambda name, proc, docs, error: seen.append((name, str(error))))
    docs = list(nlp.pipe([TEXTS[0], "bad", TEXTS[1]], batch_size=1))
    assert [doc.text for doc in docs] == [TEXTS[0], TEXTS[1]]
    assert seen == [(factory, "bad document")]
