"""Loading pipelines and running them on gold documents."""

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc, Span

from spacy_spans import pipelines
from spacy_spans.errors import DataError, SettingsError, SpansError


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
        pipelines.require_key(docs, "sc", "The data")
    for without in (empty, []):
        with pytest.raises(DataError, match=r"The output has .* only no keys at all"):
            pipelines.require_key(without, "other", "The output")
    pipelines.require_key([*empty, *docs], "other", "The data")


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


class Failing:
    """Fails on documents with the word "bad"; `itself` leaves that to no error handler."""

    def __init__(self, itself=False):
        if itself:
            self.pipe = lambda docs, **kwargs: map(self, docs)

    def __call__(self, doc):
        if "bad" in doc.text:
            raise ZeroDivisionError("no luck")
        return doc


@Language.factory("test_failing", default_config={"itself": False})
def make_failing(nlp, name, itself):
    return Failing(itself)


def test_a_component_that_fails_is_named_with_the_document():
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("test_failing", name="mine")
    handler = nlp.default_error_handler
    gold = [make_doc(nlp, "good"), make_doc(nlp, "so\nbad " + "x" * 99), make_doc(nlp, "bad")]
    message = r"^The component 'mine' failed while predicting, on 'so bad x+…' \(ZeroDiv"
    with pytest.raises(SpansError, match=message) as e:
        list(pipelines.predict(nlp, gold))
    assert isinstance(e.value.__cause__, ZeroDivisionError)
    # Not for good: the pipeline is the user's.
    assert nlp.default_error_handler is handler
    assert nlp.get_pipe("sentencizer").get_error_handler() is handler
    assert [doc.text for doc in pipelines.predict(nlp, gold[:1])] == ["good"]


@Language.component("test_batched")
class Batched:
    """Takes whole batches, as trainable components do."""

    fails = None

    @classmethod
    def predict(cls, docs):
        if cls.fails(docs):
            raise ValueError("broken")

    def __new__(cls, doc):
        cls.predict([doc])
        return doc

    @classmethod
    def pipe(cls, docs, batch_size):
        docs = list(docs)
        try:
            cls.predict(docs)
        except ValueError as error:
            cls.handler("mine", cls, docs, error)
        return docs

    @classmethod
    def get_error_handler(cls):
        return None

    @classmethod
    def set_error_handler(cls, handler):
        cls.handler = handler


@pytest.mark.parametrize(
    ("fails", "named"),
    [
        (lambda docs: any(doc.text == "bad" for doc in docs), "on 'bad'"),
        (lambda docs: len(docs) > 1, "on one of 3 documents, the first of them 'good'"),
    ],
)
def test_of_a_batch_that_fails_the_document_that_does_alone_is_named(monkeypatch, fails, named):
    monkeypatch.setattr(Batched, "fails", staticmethod(fails))
    nlp = spacy.blank("en")
    nlp.add_pipe("test_batched")
    gold = [make_doc(nlp, text) for text in ("good", "bad", "good")]
    with pytest.raises(SpansError, match=rf"'mine' failed while predicting, {named} \(ValueErr"):
        list(pipelines.predict(nlp, gold))
    assert Batched.handler is None


def test_a_component_that_asks_no_error_handler_is_among_those_named():
    nlp = spacy.blank("en")
    nlp.add_pipe("test_failing", name="mine", config={"itself": True})
    with pytest.raises(SpansError, match=r"one of \['mine'\] failed .*no luck"):
        list(pipelines.predict(nlp, [make_doc(nlp, "bad")]))


def test_errors_of_this_package_stay_as_they_are():
    nlp = spacy.blank("en")
    nlp.add_pipe("span_enumerator")
    with pytest.raises(SpansError, match=r"^The component 'span_enumerator' has no labels"):
        list(pipelines.predict(nlp, [make_doc(nlp, "a")]))
