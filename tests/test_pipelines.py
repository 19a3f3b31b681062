"""Loading pipelines and running them on gold documents."""

import pytest
import spacy
from spacy.tokens import Doc, Span

from spacy_spans import pipelines
from spacy_spans.errors import DataError, SettingsError

pytestmark = pytest.mark.installed


@pytest.fixture(scope="module")
def nlp():
    return spacy.blank("en")


def make_doc(nlp, text, spans=(), key="sc"):
    """Spans are (start token, end token, label)."""
    doc = nlp.make_doc(text)
    if key is not None:
        doc.spans[key] = [Span(doc, start, end, label=label) for start, end, label in spans]
    return doc


def test_a_missing_key_is_an_error(nlp):
    docs = [make_doc(nlp, "a b", [(0, 1, "A")], key="other")]
    empty = [make_doc(nlp, "a b", key=None)]
    with pytest.raises(DataError, match=r"The data has no doc.spans\['sc'\], only \['other'\]"):
        pipelines.check_keys(docs, docs, "sc")
    with pytest.raises(DataError, match=r"The pipeline.s output has .* only no keys at all"):
        pipelines.check_keys(docs, empty, "other")
    pipelines.check_keys(docs, docs, "other")
    pipelines.check_keys([], [], "sc")


def test_predict_keeps_words_only_where_spaces_are_unknown(nlp):
    known = Doc(nlp.vocab, words=["don't"], spaces=[False])
    unknown = Doc(nlp.vocab, words=["don't"])
    assert unknown.has_unknown_spaces
    assert [len(doc) for doc in pipelines.predict(nlp, [known, unknown])] == [2, 1]
    assert list(pipelines.predict(nlp, [])) == []


def test_a_folder_without_pipeline_is_an_error(tmp_path):
    with pytest.raises(
        SettingsError, match=r"no config.cfg. Expected what `python -m spacy train`"
    ):
        pipelines.load_pipeline(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.cfg", "[nlp"),
        ("config.cfg", '[nlp]\nlang = "en"\npipeline = ["a"]\n[components]\n[components.a]\n'),
        ("config.cfg", '[nlp]\nlang = "en"\npipelin = []\n'),
        (
            "config.cfg",
            '[nlp]\nlang = "en"\npipeline = ["a"]\n[components]\n[components.a]\nfactory = "no"\n',
        ),
        (
            "config.cfg",
            '[nlp]\nlang = "en"\npipeline = ["a"]\n[components]\n[components.a]\n'
            'factory = "sentencizer"\npunkt = null\n',
        ),
        ("meta.json", "{"),
        ("tokenizer", "half"),
        ("vocab/strings.json", "["),
    ],
)
def test_a_broken_pipeline_is_named(tmp_path, name, content):
    spacy.blank("en").to_disk(tmp_path / "pipeline")
    (tmp_path / "pipeline" / name).write_text(content)
    with pytest.raises(
        DataError, match=r"The pipeline in .*pipeline cannot be loaded \(\w+: "
    ) as e:
        pipelines.load_pipeline(tmp_path / "pipeline")
    assert str(e.value.__cause__) in str(e.value)


def test_texts_beyond_the_limit_of_the_parser(monkeypatch):
    nlp = spacy.blank("en")
    nlp.max_length = 10
    (doc,) = pipelines.predict(
        nlp, [make_doc(spacy.blank("en"), "A text of more than ten characters")]
    )
    assert doc.text == "A text of more than ten characters"
