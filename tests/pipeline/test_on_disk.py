"""What is on disk: weights and settings, nothing that is executed, and what is said of damage."""

import pickle
import re
from contextlib import contextmanager

import pytest
import spacy
import srsly
import torch

from spacy_spans.errors import DataError, SettingsError, SpansError
from spacy_spans.torch_layer import layer_shim

from . import (
    CANDIDATES,
    DATA_FOR,
    FLAT_DATA,
    SCHEMES,
    found,
    make_examples,
    make_initialized,
    make_nlp,
    make_pipe,
    predictions,
    train,
    train_by_heart,
)


@contextmanager
def no_unpickling():
    """Fail when anything is unpickled."""

    def refuse(*args, **kwargs):
        raise AssertionError("something was unpickled")

    with pytest.MonkeyPatch.context() as patch:
        for module, names in ((pickle, ("load", "loads", "Unpickler")), (torch, ("load",))):
            for name in names:
                patch.setattr(module, name, refuse)
        yield


@pytest.mark.parametrize(
    ("factory", "config"),
    [
        ("span_enumerator", {}),
        ("span_enumerator", {"candidates": CANDIDATES["boundary"]}),
        ("multispan_tagger", {}),
        ("multispan_tagger", {"scheme": SCHEMES["boundary"], "loss": "token"}),
    ],
)
def test_loading_unpickles_nothing(factory, config, tmp_path):
    nlp = train_by_heart(factory, **config)
    expected = predictions(nlp)
    nlp.to_disk(tmp_path)
    data = nlp.to_bytes()
    with no_unpickling():
        assert predictions(spacy.load(tmp_path)) == expected
        blank = spacy.blank("en").from_config(nlp.config)
        assert predictions(blank.from_bytes(data)) == expected


def test_the_folder_holds_no_pickle_and_no_torch_archive(factory, tmp_path):
    nlp = train_by_heart(factory)
    nlp.to_disk(tmp_path)
    files = [path for path in (tmp_path / factory).rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["cfg", "model"]
    for path in files:
        content = path.read_bytes()
        # Protocol 2 to 5 with what pickles begin with, at a length that weights do not have by
        # chance, and zip files.
        assert not re.search(
            rb"\x80[\x02-\x05](\x95.{5}\x00{3}|[}\]][q\x94]|\([KXU]|c\w+\n)", content, re.DOTALL
        )
        assert b"PK\x03\x04" not in content
        assert b"torch" not in content


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6, 0.95])
def test_a_truncated_model_file_is_an_error_that_says_what_to_do(factory, tmp_path, keep):
    train_by_heart(factory, steps=1).to_disk(tmp_path)
    path = tmp_path / factory / "model"
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(SpansError, match=rf"{path}' cannot be read.*damaged"):
        spacy.load(tmp_path)


def test_a_model_file_with_one_other_byte_is_an_error_that_names_it(factory, tmp_path):
    nlp = train_by_heart(factory, steps=1)
    nlp.to_disk(tmp_path)
    path = tmp_path / factory / "model"
    data = bytearray(path.read_bytes())
    # The weights are in the middle: numbers, of which nothing else would know how they were.
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"{path}' cannot be read: its checksum is not .* again\."):
        spacy.load(tmp_path)
    stored = srsly.msgpack_loads(nlp.get_pipe(factory).to_bytes())
    stored["model"] = bytes(data)
    with pytest.raises(DataError, match=r"stored bytes of .* cannot be read: its checksum"):
        nlp.get_pipe(factory).from_bytes(srsly.msgpack_dumps(stored))


def test_weights_stored_without_a_checksum_are_loaded(factory, tmp_path):
    nlp = train_by_heart(factory, steps=1)
    nlp.to_disk(tmp_path)
    path = tmp_path / factory / "cfg"
    cfg = srsly.read_json(path)
    assert len(cfg.pop("model_sha256")) == 64
    srsly.write_json(path, cfg)
    assert predictions(spacy.load(tmp_path)) == predictions(nlp)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"labels": ["A"]}',
        '{"labels": "AB", "changed": {}}',
        '{"labels": ["A", "A"], "changed": {}}',
        '{"labels": ["A", 3], "changed": {}}',
        '{"labels": ["A"], "changed": {"threshold": 1}}',
        "[" * 100_000,
        "\x00",
    ],
    ids=lambda content: content[:20],
)
def test_an_altered_cfg_is_an_error_that_names_the_file(factory, tmp_path, content):
    make_initialized(DATA_FOR[factory], factory=factory)[0].to_disk(tmp_path)
    path = tmp_path / factory / "cfg"
    path.write_text(content)
    with pytest.raises(DataError, match=rf"{path}' cannot be read: .* train again\."):
        spacy.load(tmp_path)


@pytest.mark.parametrize("name", ["cfg", "model"])
def test_a_missing_file_is_an_error_that_names_it(factory, tmp_path, name):
    make_initialized(DATA_FOR[factory], factory=factory)[0].to_disk(tmp_path)
    path = tmp_path / factory / name
    path.unlink()
    with pytest.raises(DataError, match=rf"{path}' cannot be read"):
        spacy.load(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("which", ["first", "last"])
def test_weights_that_are_no_numbers_are_an_error_not_an_empty_prediction(factory, which, value):
    nlp = train_by_heart(factory, steps=1)
    names = {"span_enumerator": "classifier", "multispan_tagger": "projector"}
    pipe = nlp.get_pipe(factory)
    module = layer_shim(pipe.model.get_ref(names[factory])).module
    parameters = list(module.parameters())
    with torch.no_grad():
        parameters[{"first": 0, "last": -1}[which]].fill_(value)
    with pytest.raises(SpansError, match=rf"'{factory}' gives scores that are not fin.*again wit"):
        nlp("write clean Python code")
    assert nlp("").spans["sc"].attrs["scores"] == []


@pytest.mark.parametrize("label", ["#a", "; a", "[a]", "a=b", "a:b", " a", "a ", "a\nb", ""])
def test_thresholds_that_a_config_would_lose_are_an_error(factory, label, tmp_path):
    with pytest.raises(SettingsError, match=r"which no config file can hold.*\.cfg\["):
        make_nlp(factory=factory, label_thresholds={label: 0.5})


def test_thresholds_of_such_labels_are_stored_with_the_weights(factory, tmp_path):
    data = [("a b", [(0, 1, "#a")])]
    nlp, pipe, _ = make_initialized(data, factory=factory)
    pipe.cfg["label_thresholds"]["#a"] = 0.25
    nlp.to_disk(tmp_path)
    assert spacy.load(tmp_path).get_pipe(factory).thresholds() == [0.25]


def test_labels_that_a_config_holds_may_have_thresholds(factory, tmp_path):
    thresholds = {"A#b": 0.1, "a b": 0.2, "$x": 0.3, "Über": 0.4, "A ;b": 0.5, "${a.b}": 0.6}
    nlp = make_nlp(factory=factory, label_thresholds=thresholds)
    nlp.to_disk(tmp_path)
    assert spacy.load(tmp_path).get_pipe(factory).cfg["label_thresholds"] == thresholds


# A setting of [model], and one on which the number of outputs depends.
OTHER_SETTINGS = {
    "span_enumerator": ("hidden_width", 9, "loss", "softmax", "have 3 outputs.*loss make 4"),
    "multispan_tagger": ("context_window", 1, "scheme", SCHEMES["bioes"], "12 outputs.*make 18"),
}


def test_weights_of_other_settings_are_an_error_that_says_what_to_do(factory, tmp_path):
    train_by_heart(factory, steps=1).to_disk(tmp_path)
    setting, value, other, other_value, message = OTHER_SETTINGS[factory]
    with pytest.raises(DataError, match=r"(?s)cannot be read.*\[model\] settings"):
        spacy.load(tmp_path, config={f"components.{factory}.model.{setting}": value})
    with pytest.raises(DataError, match=message):
        spacy.load(tmp_path, config={f"components.{factory}.{other}": other_value})


def test_component_files_of_before_and_after_initialize(factory, tmp_path):
    nlp = make_nlp(factory=factory)
    nlp.get_pipe(factory).add_label("A")
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert loaded.get_pipe(factory).labels == ("A",)
    train(loaded, make_examples(loaded, [("x y", [(0, 2, "A")])]))
    assert found(loaded("x y")) == [(0, 2, "A")]


@pytest.mark.parametrize(
    ("factory", "settings"),
    [
        ("span_enumerator", {"loss": "softmax"}),
        ("span_enumerator", {"candidates": CANDIDATES["boundary"]}),
        ("multispan_tagger", {"layers": "shared", "discontinuous": True}),
        ("multispan_tagger", {"layers": "per_label", "discontinuous": False}),
    ],
)
def test_labels_without_weights_are_loaded_whatever_the_settings(factory, settings, tmp_path):
    nlp, pipe = make_pipe(factory=factory, **settings)
    pipe.add_label("A")
    nlp.to_disk(tmp_path)
    data = pipe.to_bytes()
    # What is loaded has no weights either where there were some, of other labels.
    _, other, _ = make_initialized([("a b", [(0, 1, "X"), (1, 2, "Y")])], factory=factory)
    loaded = [
        spacy.load(tmp_path).get_pipe(factory),
        make_pipe(factory=factory, **settings)[1].from_bytes(data),
        other.from_bytes(data),
        other.from_disk(tmp_path / factory, exclude=["vocab"]),
    ]
    for own in loaded:
        assert own.labels == ("A",)
        with pytest.raises(SpansError, match="no labels or no weights"):
            own.predict([nlp.make_doc("x y")])
    again = loaded[0]
    assert again.add_label("B") == 1
    examples = make_examples(nlp, [("x y", [(0, 2, "A"), (0, 1, "B")])] * 2)
    if settings.get("layers") == "shared":
        examples = make_examples(nlp, [("x y", [(0, 1, "A"), (1, 2, "B")])])
    again.initialize(lambda: examples)
    assert again.from_bytes(again.to_bytes()).labels == ("A", "B")


@pytest.mark.parametrize("setting", [{"layers": "shared"}, {"discontinuous": True}])
def test_settings_that_contradict_the_training_are_errors(setting, tmp_path):
    nlp, _, _ = make_initialized(FLAT_DATA, factory="multispan_tagger", layers="per_label")
    nlp.to_disk(tmp_path)
    config = {"components": {"multispan_tagger": setting}}
    with pytest.raises(DataError, match=r"was trained with .* = False, but its settings"):
        spacy.load(tmp_path, config=config)
    config = {"components": {"multispan_tagger": {"layers": "auto"}}}
    assert not spacy.load(tmp_path, config=config).get_pipe("multispan_tagger").layout.shared
