"""Reading .spacy files: folders, what is not one, and what is damaged."""

import random
import zlib

import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span, SpanGroup
from spacy.vocab import Vocab

from spacy_spans.coverage import measure_coverage
from spacy_spans.errors import DataError
from spacy_spans.readers import read_docbin


@pytest.fixture(scope="module")
def nlp():
    return spacy.blank("en")


def make_doc(vocab, n_tokens, spans=()):
    """Spans are (start, end, label)."""
    doc = Doc(vocab, words=["w"] * n_tokens)
    group = [Span(doc, start, end, label=label) for start, end, label in spans]
    doc.spans["sc"] = SpanGroup(doc, name="sc", spans=group)
    return doc


def test_docs_are_read_from_files_and_folders(nlp, tmp_path):
    (tmp_path / "deep").mkdir()
    DocBin(docs=[make_doc(nlp.vocab, 1), make_doc(nlp.vocab, 2)]).to_disk(tmp_path / "a.spacy")
    DocBin(docs=[make_doc(nlp.vocab, 3)]).to_disk(tmp_path / "deep" / "b.spacy")
    DocBin().to_disk(tmp_path / "none.spacy")
    assert [len(doc) for doc in read_docbin(tmp_path, nlp.vocab)] == [1, 2, 3]
    assert [len(doc) for doc in read_docbin(tmp_path / "a.spacy", nlp.vocab)] == [1, 2]
    assert list(read_docbin(tmp_path / "none.spacy", nlp.vocab)) == []


def test_unreadable_paths_are_errors(nlp, tmp_path):
    with pytest.raises(DataError, match=r"does not exist: expected a \.spacy file"):
        list(read_docbin(tmp_path / "missing.spacy", nlp.vocab))
    with pytest.raises(DataError, match=r"has no \.spacy file: make some"):
        list(read_docbin(tmp_path, nlp.vocab))
    for content in (b"", b"{}"):
        (tmp_path / "bad.spacy").write_bytes(content)
        with pytest.raises(DataError, match=r"bad.spacy is not a .spacy file, .*spans convert"):
            list(read_docbin(tmp_path / "bad.spacy", nlp.vocab))


def test_hidden_files_of_a_folder_are_passed_over(nlp, tmp_path):
    DocBin(docs=[make_doc(nlp.vocab, 1)]).to_disk(tmp_path / "a.spacy")
    (tmp_path / ".a.1234.tmp.spacy").write_bytes(b"half")
    assert [len(doc) for doc in read_docbin(tmp_path, nlp.vocab)] == [1]


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_are_named(nlp, tmp_path, seed):
    """Whatever is damaged: there are documents, or an error that names the file."""
    docs = [make_doc(nlp.vocab, 5, [(0, 2, "A"), (1, 4, "B")]), make_doc(nlp.vocab, 0)]
    content = bytearray(zlib.decompress(DocBin(docs=docs).to_bytes()))
    rng = random.Random(seed)
    for _ in range(2):
        content[rng.randrange(len(content))] = rng.randrange(256)
    start = rng.randrange(len(content))
    del content[start : start + rng.randrange(4)]
    path = tmp_path / "damaged.spacy"
    path.write_bytes(zlib.compress(bytes(content)))
    message = ""
    try:
        measure_coverage(read_docbin(path, Vocab()))
    except DataError as error:
        message = str(error)
    assert not message or "damaged.spacy is" in message or "has doc.spans['sc']" in message


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"lengths", b"lengthz"), (b"attrs", b"attrz"), (b"strings", b"stringz")],
)
def test_a_file_damaged_inside_is_named(nlp, tmp_path, old, new):
    content = zlib.decompress(DocBin(docs=[make_doc(nlp.vocab, 5, [(0, 2, "A")])]).to_bytes())
    assert old in content
    path = tmp_path / "damaged.spacy"
    path.write_bytes(zlib.compress(content.replace(old, new)))
    with pytest.raises(DataError, match=r"damaged\.spacy is not a \.spacy file, or is damaged"):
        list(read_docbin(path, nlp.vocab))
