"""What is on disk: weights and settings, nothing that is executed, and what is said of damage."""

import pickle
from contextlib import contextmanager

import pytest
import spacy
import torch

from spacy_spans.errors import DataError, SpansError

from . import (
    CANDIDATES,
    DATA_FOR,
    FLAT_DATA,
    SCHEMES,
    found,
    make_examples,
    make_initialized,
    make_nlp,
    predictions,
    train,
    train_by_heart,
)

pytestmark = pytest.mark.installed


@pytest.fixture(params=DATA_FOR)
def factory(request):
    return request.param


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
        # Protocol 2 to 5 with the first opcodes that pickles begin with, and zip files.
        for version in (2, 3, 4, 5):
            for opcode in (b"\x95", b"}", b"]", b"(", b"c"):
                assert bytes([0x80, version]) + opcode not in content
        assert b"PK\x03\x04" not in content
        assert b"torch" not in content


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6, 0.95])
def test_a_truncated_model_file_is_an_error_that_says_what_to_do(factory, tmp_path, keep):
    train_by_heart(factory, steps=1).to_disk(tmp_path)
    path = tmp_path / factory / "model"
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(SpansError, match=r"cannot be read.*damaged"):
        spacy.load(tmp_path)


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


@pytest.mark.parametrize("setting", [{"layers": "shared"}, {"discontinuous": True}])
def test_settings_that_contradict_the_training_are_errors(setting, tmp_path):
    nlp, _, _ = make_initialized(FLAT_DATA, factory="multispan_tagger", layers="per_label")
    nlp.to_disk(tmp_path)
    config = {"components": {"multispan_tagger": setting}}
    with pytest.raises(DataError, match=r"was trained with .* = False, but its settings"):
        spacy.load(tmp_path, config=config)
    config = {"components": {"multispan_tagger": {"layers": "auto"}}}
    assert not spacy.load(tmp_path, config=config).get_pipe("multispan_tagger").layout.shared
