"""A file of a stored pipeline that is cut off, altered or missing is named by the error."""

import re
from contextlib import contextmanager

import pytest
import spacy

from spacy_spans.errors import DataError
from spacy_spans.pipelines import load_pipeline

from ..pipeline import scored
from . import make_examples, make_pipeline, make_texts, save_encoder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::spacy_spans.errors.SpansWarning"),
]

# Of each component: its folder and what is in it.
FILES = {
    "span_enumerator": ("span_enumerator", ["cfg", "model"]),
    "multispan_tagger": ("multispan_tagger", ["cfg", "model"]),
    "token_pruner": ("token_pruner", ["cfg", "model"]),
    "pruned_transformer": ("transformer", ["cfg", "model", "model.sha256"]),
}
STOCK_FILES = [
    "config.cfg",
    "meta.json",
    "tokenizer",
    "vocab/strings.json",
    "vocab/lookups.bin",
    "vocab/vectors",
    "vocab/vectors.cfg",
    "vocab/key2row",
]


def alter(data, at):
    """One byte is another one, which is none of any text."""
    at = int(at * (len(data) - 1))
    return data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1 :]


DAMAGE = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: 2 * len(data) // 3],
    "altered at the start": lambda data: alter(data, 0),
    "altered in the middle": lambda data: alter(data, 0.5),
    "altered at the end": lambda data: alter(data, 1),
    "missing": None,
}


@contextmanager
def damaged(path, damage):
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(DAMAGE[damage](data))
    yield
    path.write_bytes(data)


@pytest.fixture(scope="module", params=FILES)
def stored(request, tmp_path_factory):
    """A trained pipeline and the folder that it was written to."""
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "encoder").mkdir()
    nlp = make_pipeline(request.param, save_encoder(folder / "encoder"))
    examples = make_examples(nlp, make_texts(20))
    nlp.initialize(lambda: examples)
    nlp.update(examples)
    nlp.to_disk(folder / "pipeline")
    return request.param, nlp, folder / "pipeline"


def test_files_are_all_of_a_component(stored):
    name, _, folder = stored
    own, files = FILES[name]
    assert sorted(path.name for path in (folder / own).rglob("*")) == files


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_of_a_component_is_named(stored, damage):
    name, nlp, folder = stored
    own, files = FILES[name]
    for file in files:
        path = folder / own / file
        if (file, damage) == ("model.sha256", "missing"):
            # As what the stock transformer stores.
            continue
        message = rf"The file '{re.escape(str(path))}' cannot be read: .*damaged.* train again\."
        with damaged(path, damage), pytest.raises(DataError, match=message):
            nlp.get_pipe(own).from_disk(folder / own, exclude=["vocab"])
        # The pipe is as the file is again.
        nlp.get_pipe(own).from_disk(folder / own, exclude=["vocab"])


def test_a_damaged_model_is_named_when_the_pipeline_is_loaded(stored):
    name, nlp, folder = stored
    path = folder / FILES[name][0] / "model"
    for load in (spacy.load, load_pipeline):
        with (
            damaged(path, "truncated"),
            pytest.raises(DataError, match=rf"'{re.escape(str(path))}' cannot be read"),
        ):
            load(folder)
    loaded = spacy.load(folder)
    for text in make_texts(10, seed=1):
        doc, other = nlp(text), loaded(text)
        assert {*doc.spans} == {*other.spans}
        assert all(scored(doc, key) == scored(other, key) for key in doc.spans)


@pytest.mark.parametrize("name", STOCK_FILES)
def test_a_damaged_file_of_the_pipeline_is_named(name, tmp_path):
    """spaCy reads them, so it is our commands that can say which one it is."""
    spacy.blank("en").to_disk(tmp_path)
    path = tmp_path / name
    for damage in ("empty", "altered at the start"):
        with (
            damaged(path, damage),
            pytest.raises(DataError, match=rf"Its file '{re.escape(str(path))}' is damaged\."),
        ):
            load_pipeline(tmp_path)
    assert load_pipeline(tmp_path).pipe_names == []


def test_a_file_that_can_be_read_is_not_called_damaged(tmp_path):
    spacy.blank("en").to_disk(tmp_path)
    config = (tmp_path / "config.cfg").read_text()
    (tmp_path / "config.cfg").write_text(config.replace("pipeline = []", 'pipeline = ["a"]'))
    with pytest.raises(DataError, match=r"Can't find component 'a'") as error:
        load_pipeline(tmp_path)
    assert "Its file" not in str(error.value)
