"""What is to be checked: components that learn spans, and their data."""

from pathlib import Path

import pytest
import spacy
from spacy.tokens import Doc, DocBin

from spacy_spans.debugging.plan import (
    LABELLING,
    PRUNERS,
    UNLABELLED,
    corpus_settings,
    find_components,
    make_plan,
    read_examples,
)
from spacy_spans.errors import DataError, SettingsError

from . import VOCAB, make, make_component

PRUNED = {"model": {"name": "none"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A config with two heads and a rule, its pipeline, and a config that is wrong."""
    path = tmp_path_factory.mktemp("plan")
    nlp = spacy.blank("en")
    nlp.add_pipe("spancat", config={"spans_key": "a"})
    nlp.add_pipe("span_ruler")
    nlp.add_pipe("span_enumerator", config={"spans_key": "b"})
    nlp.config.to_disk(path / "own.cfg")
    nlp.to_disk(path / "own")
    (path / "wrong.cfg").write_text('[nlp]\nlang = "en"\npipeline = ["none"]', encoding="utf8")
    return path


# Components


@pytest.mark.parametrize(
    ("factory", "config", "keys", "labels"),
    [
        ("span_enumerator", {"spans_key": "a"}, ["a"], True),
        ("multispan_tagger", {"spans_key": "a"}, ["a"], True),
        ("spancat", {"spans_key": "a"}, ["a"], True),
        ("spancat_singlelabel", {}, ["sc"], True),
        ("ner", {}, ["doc.ents"], True),
        ("beam_ner", {}, ["doc.ents"], True),
        ("span_finder", {"spans_key": "a"}, ["a"], False),
        ("token_pruner", {"spans_keys": ["a", "b"]}, ["a", "b"], False),
        (
            "pruned_transformer",
            {**PRUNED, "spans_keys": ["a", "doc.ents"]},
            ["a", "doc.ents"],
            False,
        ),
    ],
)
def test_components_and_what_they_learn_from(factory, config, keys, labels):
    component = make_component(factory, **config)
    assert (component.name, component.factory, component.keys) == (factory, factory, keys)
    assert component.labels_spans == labels
    assert component.learns
    assert component.settings["factory"] == factory
    assert factory in LABELLING + UNLABELLED
    assert not {*LABELLING} & {*UNLABELLED}
    assert {*PRUNERS} <= {*UNLABELLED}


@pytest.mark.parametrize(
    ("factory", "model", "learns"),
    [
        ("token_pruner", {"@architectures": "spacy-spans.LexicalTokenPruner.v1"}, False),
        ("pruned_transformer", {"name": "none", "gates": []}, False),
        (
            "pruned_transformer",
            {
                "name": "none",
                "criterion": {"@misc": "spacy-spans.norm_criterion.v1"},
                "keep_ratio": 0.5,
            },
            False,
        ),
        ("pruned_transformer", {"name": "none"}, True),
    ],
)
def test_pruners_that_learn_nothing(factory, model, learns):
    assert make_component(factory, model=model).learns == learns


def test_other_components_are_left_out():
    nlp = spacy.blank("en")
    assert find_components(nlp) == []
    for name in ("sentencizer", "span_ruler", "ner", "textcat"):
        nlp.add_pipe(name)
    nlp.add_pipe("spancat", name="mine")
    assert [own.name for own in find_components(nlp)] == ["ner", "mine"]
    assert [own.name for own in find_components(nlp, without=["ner"])] == ["mine"]


# Plans


def test_a_config_is_built_and_a_pipeline_loaded(folder):
    for source, is_trained in (("own.cfg", False), ("own", True)):
        plan = make_plan(folder / source)
        assert [(own.name, own.keys) for own in plan.components] == [
            ("spancat", ["a"]),
            ("span_enumerator", ["b"]),
        ]
        assert plan.is_trained == is_trained
        assert (plan.train, plan.dev) == (None, None)
        assert plan.config["components"]["spancat"]["factory"] == "spancat"


def test_settings_are_overridden(folder):
    overrides = {"components.span_enumerator.spans_key": "other", "paths.train": "t.spacy"}
    for source in ("own.cfg", "own"):
        plan = make_plan(folder / source, overrides=overrides)
        assert [own.keys for own in plan.components] == [["a"], ["other"]]
        assert (plan.train, plan.dev) == (Path("t.spacy"), None)


def test_frozen_components_are_left_out_of_what_will_be_trained(folder):
    frozen = {"training.frozen_components": ["spancat"]}
    plan = make_plan(folder / "own.cfg", overrides=frozen)
    assert [own.name for own in plan.components] == ["span_enumerator"]
    # Trained ones are there to be checked.
    assert len(make_plan(folder / "own", overrides=frozen).components) == 2
    with pytest.raises(SettingsError, match=r"frozen: \['spancat', 'span_enumerator'\]"):
        make_plan(
            folder / "own.cfg",
            overrides={"training.frozen_components": ["spancat", "span_enumerator"]},
        )


def test_data_by_place_and_by_name(folder):
    one, two = Path("1"), Path("2")
    for data, names, expected in (
        ([one, two], {}, (one, two)),
        ([one], {"dev": two}, (one, two)),
        ([], {"train": one}, (one, None)),
        ([], {"dev": two}, (None, two)),
    ):
        plan = make_plan(folder / "own.cfg", data, **names)
        assert (plan.train, plan.dev) == expected
    with pytest.raises(SettingsError, match="Got train data twice: 1 and 2"):
        make_plan(folder / "own.cfg", [one], train=two)
    with pytest.raises(SettingsError, match="Got 3 data files, expected two at most"):
        make_plan(folder / "own.cfg", [one, two, one])


def test_configs_that_cannot_be_checked(folder):
    with pytest.raises(SettingsError, match=r"There is no config .*none\.cfg"):
        make_plan(folder / "none.cfg")
    with pytest.raises(SettingsError, match=r"wrong\.cfg cannot be built \("):
        make_plan(folder / "wrong.cfg")
    with pytest.raises(SettingsError, match="none is not the folder of a pipeline"):
        make_plan(folder / "none")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {}),
        ({"corpora": {"train": {"path": "a"}}}, {"path": "a"}),
        ({"corpora": {"train": None}}, {}),
        ({"training": {"train_corpus": "more.own"}, "more": {"own": {"path": "b"}}}, {"path": "b"}),
        ({"training": {"train_corpus": "more.own"}, "corpora": {"train": {"path": "a"}}}, {}),
        ({"training": None, "corpora": {"train": {"path": None}}}, {"path": None}),
    ],
)
def test_the_reader_is_the_one_that_training_names(config, expected):
    assert corpus_settings(config, "train") == expected
    assert corpus_settings(config, "dev") == {}


# Data


def test_examples_hold_the_text_as_the_pipeline_tokenizes_it(tmp_path):
    # Where spaces are unknown there is no text to tokenize.
    nlp = spacy.blank("en")
    joined = Doc(VOCAB, words=["one-two", "it's"], spaces=[True, False])
    unknown = Doc(VOCAB, words=["it's", "so"])
    DocBin(docs=[joined, unknown, make("")], store_user_data=True).to_disk(tmp_path / "a.spacy")
    examples = read_examples(nlp, tmp_path / "a.spacy", None)
    assert [[token.text for token in own.predicted] for own in examples] == [
        ["one", "-", "two", "it", "'s"],
        ["it's", "so"],
        [],
    ]
    assert [own.reference.text for own in examples] == ["one-two it's", "it's so ", ""]
    assert not any(own.predicted.spans for own in examples)
    assert len(read_examples(nlp, tmp_path / "a.spacy", 1)) == 1
    assert len(read_examples(nlp, tmp_path, 9)) == 3
    with pytest.raises(DataError, match=r"b\.spacy does not exist"):
        read_examples(nlp, tmp_path / "b.spacy", None)
