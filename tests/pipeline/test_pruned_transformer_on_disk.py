"""`pruned_transformer` stored, loaded, sourced, damaged; settings that go with it."""

import pytest
import spacy

from spacy_spans.errors import DataError

from . import scored
from .pruned import QUIET, attrs_of, make_stock, random_texts

pytestmark = [pytest.mark.slow, QUIET]


def results(nlp):
    return [(scored(doc), scored(doc, "kept_tokens")) for doc in nlp.pipe(random_texts(20, 2))]


@pytest.mark.parametrize("factory", ["pruned_transformer", "transformer"])
def test_saved_pipelines_give_the_same_and_the_dial_turns(pruned, factory, tmp_path):
    expected = results(pruned)
    pruned.to_disk(tmp_path)
    if factory == "transformer":
        make_stock(tmp_path)
    assert results(spacy.load(tmp_path)) == expected
    loaded = spacy.load(tmp_path, config={"components.transformer.model.keep_ratio": 0.2})
    assert attrs_of(loaded)["keep_ratio"] == 0.2
    assert attrs_of(loaded)["gates_trained"]
    by_config = results(loaded)
    assert by_config != expected
    other = spacy.load(tmp_path)
    attrs_of(other)["keep_ratio"] = 0.2
    assert results(other) == by_config
    # What was changed is stored, and counts until the config says something else.
    other.to_disk(tmp_path / "changed")
    assert attrs_of(spacy.load(tmp_path / "changed"))["keep_ratio"] == 0.2
    back = {"components.transformer.model.keep_ratio": 0.9}
    again = spacy.load(tmp_path / "changed", config=back)
    assert attrs_of(again)["keep_ratio"] == 0.9


def test_bytes_and_sourced_components_give_the_same(pruned):
    expected = results(pruned)
    nlp = spacy.blank("en").from_config(pruned.config).from_bytes(pruned.to_bytes())
    assert results(nlp) == expected
    sourced = spacy.blank("en", vocab=pruned.vocab)
    sourced.add_pipe("transformer", source=pruned)
    sourced.add_pipe("span_enumerator", source=pruned)
    assert results(sourced) == expected
    again = spacy.blank("en").from_config(sourced.config).from_bytes(sourced.to_bytes())
    assert results(again) == expected


def test_replaced_listeners_have_the_dial_too(pruned, tmp_path):
    pruned.to_disk(tmp_path / "whole")
    # Nothing will write what was kept any more.
    unrestricted = {"components.span_enumerator.within_kept": False}
    nlp = spacy.load(tmp_path / "whole", config=unrestricted)
    nlp.replace_listeners("transformer", "span_enumerator", ["model.tok2vec"])
    nlp.remove_pipe("transformer")
    nlp.to_disk(tmp_path / "replaced")
    override = {"components.span_enumerator.model.tok2vec.keep_ratio": 0.2}
    loaded = spacy.load(tmp_path / "replaced", config=override)
    inner = loaded.get_pipe("span_enumerator").model.get_ref("tokens")
    (encoder,) = [own for own in inner.walk() if own.name == "transformer"]
    assert encoder.attrs["keep_ratio"] == 0.2
    assert encoder.attrs["gates_trained"]
    texts = random_texts(10, 2)
    at_ratio = [scored(doc) for doc in loaded.pipe(texts)]
    encoder.attrs["keep_ratio"] = 0.5
    expected = [scored(doc) for doc in nlp.pipe(texts)]
    assert [scored(doc) for doc in loaded.pipe(texts)] == expected
    assert at_ratio != expected


@pytest.mark.parametrize("content", ["truncated", "altered", "missing"])
@pytest.mark.parametrize("name", ["model", "cfg"])
def test_damage_is_an_error_that_names_the_file(pruned, tmp_path, name, content):
    pruned.to_disk(tmp_path)
    path = tmp_path / "transformer" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1 if name == "model" else 128
    path.write_bytes(data[: len(data) // 3] if content == "truncated" else data)
    if content == "missing":
        path.unlink()
    with pytest.raises(DataError, match=rf"{path}' cannot be read: .* damaged"):
        spacy.load(tmp_path)


def test_weights_without_a_checksum_are_those_of_the_stock_factory(pruned, tmp_path):
    pruned.to_disk(tmp_path)
    checksum = tmp_path / "transformer" / "model.sha256"
    assert len(checksum.read_text()) == 64
    checksum.unlink()
    assert results(spacy.load(tmp_path)) == results(pruned)


def test_stock_weights_beside_an_older_checksum_say_what_to_delete(pruned, tmp_path):
    folder = tmp_path / "stock"
    pruned.to_disk(folder)
    make_stock(folder)
    stock = spacy.load(folder)
    attrs_of(stock)["keep_ratio"] = 0.2
    expected = results(stock)
    pruned.to_disk(tmp_path / "both")
    stock.get_pipe("transformer").to_disk(tmp_path / "both" / "transformer")
    message = r"model' cannot be read: .*model\.sha256 there is of older weights: delete it"
    with pytest.raises(DataError, match=message):
        spacy.load(tmp_path / "both")
    (tmp_path / "both" / "transformer" / "model.sha256").unlink()
    assert results(spacy.load(tmp_path / "both")) == expected
