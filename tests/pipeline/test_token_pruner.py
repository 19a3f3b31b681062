"""The pruner's life: predict, round trip, score; without training; settings."""

import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Adam

from spacy_spans.errors import SettingsError, SpansError, SpansWarning
from spacy_spans.torch_layer import layer_shim

from . import make_example, make_examples, train, train_on, write_spans
from .pruner import LEXICAL, SPARSE, TEXTS, kept, make_nlp


def test_keeps_the_tokens_of_spans(trained_pruner):
    for doc, (_, spans) in zip(trained_pruner.pipe(TEXTS), SPARSE, strict=True):
        assert kept(doc) == [span[:2] for span in spans]
        assert all(0.8 < score <= 1 for score in doc.spans["kept_tokens"].attrs["scores"])


def test_round_trips(trained_pruner, tmp_path):
    trained_pruner.to_disk(tmp_path)
    blank = spacy.blank("en").from_config(trained_pruner.config)
    for loaded in (spacy.load(tmp_path), blank.from_bytes(trained_pruner.to_bytes())):
        assert loaded.to_bytes() == trained_pruner.to_bytes()
        for text in TEXTS:
            scores = [
                nlp(text).spans["kept_tokens"].attrs["scores"] for nlp in (loaded, trained_pruner)
            ]
            assert scores[0] == scores[1]


def test_pipe_equals_one_by_one_and_in_two_processes(trained_pruner):
    alone = [kept(trained_pruner(text)) for text in TEXTS]
    assert [kept(doc) for doc in trained_pruner.pipe(TEXTS, batch_size=3)] == alone
    assert [kept(doc) for doc in trained_pruner.pipe(TEXTS, n_process=2)] == alone


def test_sourced_and_frozen(trained_pruner):
    # Sourced components are shared, and this one is trained further.
    source = spacy.blank("en").from_config(trained_pruner.config)
    source.from_bytes(trained_pruner.to_bytes())
    nlp = spacy.blank("en")
    nlp.add_pipe("token_pruner", source=source)
    before = nlp.get_pipe("token_pruner").to_bytes()
    nlp.update(make_examples(nlp, SPARSE), sgd=Adam(0.1), exclude=["token_pruner"])
    assert nlp.get_pipe("token_pruner").to_bytes() == before
    expected = [kept(doc) for doc in trained_pruner.pipe(TEXTS)]
    assert [kept(doc) for doc in nlp.pipe(TEXTS)] == expected
    train_on(nlp, make_examples(nlp, SPARSE), steps=1)
    assert nlp.get_pipe("token_pruner").to_bytes() != before


def test_scores_of_perfect_predictions(trained_pruner):
    scores = trained_pruner.evaluate(make_examples(trained_pruner, SPARSE))
    assert scores["kept_tokens_keep_ratio"] == 4 / 16
    for name in ("f", "token_recall", "span_recall"):
        assert scores[f"kept_tokens_{name}"] == 1.0


def test_scores_of_imperfect_predictions():
    nlp, pipe = make_nlp(spans_keys=["sc", "more"])
    example = make_example(nlp, "a b c d e f", [(0, 3, "A"), (1, 2, "A")])
    write_spans(example.reference, "more", [(4, 5, "B")])
    write_spans(example.predicted, "kept_tokens", [(1, 3), (5, 6)])
    unannotated = Example(nlp.make_doc("g h"), nlp.make_doc("g h"))
    write_spans(unannotated.predicted, "kept_tokens", [(0, 2)])
    assert pipe.score([example, unannotated]) == {
        "kept_tokens_token_recall": 2 / 4,
        "kept_tokens_keep_ratio": 5 / 8,
        "kept_tokens_span_recall": 1 / 3,
        "kept_tokens_f": pytest.approx(2 * 2 / (3 + 4)),
    }


@pytest.mark.parametrize("data", [[], [("", [])], [("a b", [])]])
def test_scores_without_gold(data):
    nlp, pipe = make_nlp()
    scores = pipe.score(make_examples(nlp, data))
    ratio = 0.0 if data and data[0][0] else None
    assert scores.pop("kept_tokens_keep_ratio") == ratio
    assert set(scores.values()) == {None}


def test_score_weights_follow_the_key():
    nlp, _ = make_nlp(kept_key="mine", spans_keys=["other"])
    nlp.initialize(lambda: make_examples(nlp, SPARSE, "other"))
    weights = nlp.config["training"]["score_weights"]
    assert weights["mine_f"] == 1.0
    assert {name for name, weight in weights.items() if weight is not None} == {
        f"mine_{name}" for name in ("f", "token_recall", "keep_ratio", "span_recall")
    }


# Without training


def test_untrained_it_keeps_everything_and_says_so_once():
    nlp, _ = make_nlp()
    assert kept(nlp("")) == []
    with pytest.warns(SpansWarning, match="keeps every token: it is not trained yet"):
        assert kept(nlp("a b c")) == [(0, 3)]
    assert kept(nlp("a b")) == [(0, 2)]
    with pytest.raises(SpansError, match="has no weights yet"):
        nlp.update(make_examples(nlp, SPARSE), sgd=Adam(0.1))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, [(0, 1), (3, 4), (5, 6)]),
        ({"drop_stop_words": False}, [(0, 4), (5, 6)]),
        ({"drop_punctuation": False}, [(0, 1), (3, 6)]),
    ],
)
def test_stop_words_and_punctuation_are_dropped_without_training(config, expected, tmp_path):
    nlp, _ = make_nlp(model={**LEXICAL, **config})
    doc = Doc(nlp.vocab, words=["cooks", "of", "the", "world", ",", "unite", " "])
    assert kept(nlp(doc)) == expected
    assert kept(nlp("")) == []
    nlp.to_disk(tmp_path)
    assert kept(spacy.load(tmp_path)(doc)) == expected


# Settings


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"context": -1}, "context = -1"),
        ({"min_run": 0}, "min_run = 0"),
        ({"positive_weight": 0.0}, "positive_weight"),
        ({"spans_keys": []}, "at least one key"),
        ({"spans_keys": ["kept_tokens"]}, "among spans_keys"),
        ({"kept_key": "a:b"}, "a:b"),
    ],
)
def test_settings_out_of_range(config, message):
    with pytest.raises(SettingsError, match=message):
        make_nlp(**config)


def test_settings_changed_after_training_are_checked(trained_pruner, monkeypatch):
    monkeypatch.setitem(trained_pruner.get_pipe("token_pruner").cfg, "context", -1)
    with pytest.raises(SettingsError, match="context = -1"):
        trained_pruner("a b c")


def test_settings_changed_after_training_are_stored(trained_pruner, tmp_path):
    nlp = spacy.blank("en").from_config(trained_pruner.config).from_bytes(trained_pruner.to_bytes())
    nlp.get_pipe("token_pruner").cfg["context"] = 2
    nlp.to_disk(tmp_path)
    assert kept(spacy.load(tmp_path)(TEXTS[0])) == [(0, 6)]


def test_weights_that_are_no_numbers_are_an_error():
    nlp, pipe = make_nlp()
    train(nlp, make_examples(nlp, SPARSE), steps=1)
    module = layer_shim(pipe.model.get_ref("scorer")).module
    for parameter in module.parameters():
        parameter.data.fill_(float("nan"))
    with pytest.raises(SpansError, match="'token_pruner' gives scores that are not finite"):
        nlp("we need good cooks")
