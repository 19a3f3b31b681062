"""What is said of training data, and what good data has too and is not said."""

import warnings
from itertools import count

import pytest
import spacy
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_spans.errors import SpansWarning
from spacy_spans.pipeline.data_report import (
    FEW_DOCS,
    SEE_DEBUG,
    describe_oddities,
    describe_truncation,
    find_encoders,
)

VOCAB = spacy.blank("en").vocab
NUMBERS = count()


def make(text, *spans, key="sc"):
    doc = Doc(VOCAB, words=text.split(" ")) if text else Doc(VOCAB)
    if key is not None:
        doc.spans[key] = [Span(doc, *span) for span in spans]
    return Example(Doc(VOCAB, words=[t.text for t in doc]), doc)


def fill(n, *spans):
    """Documents of different texts that nothing is to be said of, with some spans."""
    return [make(f"number {next(NUMBERS)} and more", *spans) for _ in range(n)]


def messages_on(examples, key="sc"):
    messages = describe_oddities(examples, key)
    assert all(message.endswith(f" {SEE_DEBUG}") for message in messages)
    return [message.removesuffix(f" {SEE_DEBUG}") for message in messages]


def test_nothing_and_good_data_say_nothing():
    assert (
        messages_on([]) == messages_on([make("")]) == messages_on([make("a b", (0, 1, "A"))]) == []
    )
    good = fill(FEW_DOCS + 1, (1, 2, "A"))
    assert messages_on(good) == messages_on(good, "other") == []


def test_white_space_at_an_end_is_always_said():
    one = make("a \n b", (0, 2, "A"), (1, 3, "B"), (2, 3, "B"))
    assert messages_on([one]) == [
        "2 gold spans in 'sc' with white space at an end (A 1, B 1; e.g. 'a \\n'), which is "
        "learned as part of them. Leave it out."
    ]


def test_few_examples_are_said_of_data_that_is_not_a_sample():
    rare = [make("some words", (0, 1, label)) for label in "CBBDE"]
    examples = fill(FEW_DOCS + 1, (1, 2, "A")) + rare
    assert messages_on(examples) == [
        "4 labels with fewer than 10 training examples in 'sc' (B 2, C 1, D 1, ...): hardly to be "
        "learned. Annotate more, or leave these labels out."
    ]
    # Documents that are not annotated do not count.
    assert messages_on(examples[-FEW_DOCS:]) == []
    assert messages_on(examples[-FEW_DOCS:] + [make("more", key=None)] * 10) == []
    nine = fill(FEW_DOCS, (1, 2, "A")) + fill(9, (1, 2, "B"))
    assert messages_on(nine)[0].startswith(
        "1 label with fewer than 10 training examples in 'sc' (B 9)"
    )
    assert messages_on(fill(FEW_DOCS, (1, 2, "A")) + fill(10, (1, 2, "B"))) == []


@pytest.mark.parametrize(("n_odd", "is_said"), [(10, False), (12, True), (49, True), (60, False)])
def test_punctuation_at_an_end_is_said_where_it_is_unlike_the_others(n_odd, is_said):
    # Of another label all end so: that is how it is annotated.
    whole = [make(f"Sentence {i} .", (0, 3, "S")) for i in range(20)]
    odd = [make(f"word {i} ,", (0, 3, "A")) for i in range(n_odd)]
    message = (
        f"{n_odd} gold spans in 'sc' ending with punctuation, unlike most of their label (A "
        f"{n_odd}; e.g. 'word 0 ,'). Annotate boundaries alike."
    )
    assert messages_on(whole + odd + fill(110 - n_odd, (1, 2, "A"))) == [message] * is_said


def test_one_text_with_other_spans_is_said_where_there_are_many():
    twice = [make(f"pair {i}", (0, 1, "A")) for i in range(8)] * 2
    at_odds = [make(f"odd {i}", *spans) for spans in ([(0, 1, "A")], []) for i in range(3)]
    rest = fill(FEW_DOCS, (1, 2, "A"))
    assert messages_on(twice + rest) == []
    assert messages_on(twice + at_odds + rest) == []
    assert messages_on(twice + at_odds + rest[:90]) == [
        "6 of 112 training documents with the text of another have other spans in 'sc' (e.g. "
        "'odd 0'): what one teaches the other contradicts. Annotate them alike, or keep one of "
        "each."
    ]


def often(n_strings, n_with, n_without, label="A"):
    """As many strings that are spans in some documents and none in others."""
    return [
        make(f"w{i} in {label}{number}", *([(0, 1, label)] * (number < n_with)))
        for i in range(n_strings)
        for number in range(n_with + n_without)
    ]


def test_missing_annotations_are_said_where_most_strings_lack_them():
    assert messages_on(often(20, 2, 3) + fill(1)) == [
        "20 of 20 strings that are annotated in 2 documents or more in 'sc' occur in more that "
        "have no span on them (e.g. 'w0' in 2 and not in 3). Annotations may be missing: what is "
        "not annotated is learned as no span."
    ]
    # In as many; of too few strings; half of them.
    assert messages_on(often(20, 3, 3)) == []
    assert messages_on(often(19, 2, 4)) == []
    assert messages_on(often(10, 2, 3) + often(20, 6, 0)[60:]) == []


def test_other_labels_are_said_where_many_strings_have_them():
    as_a = often(30, 4, 0)
    assert messages_on(as_a + often(4, 3, 0, "B")) == [
        "4 of 30 strings that are annotated in 2 documents or more in 'sc' have one label in some "
        "and another in others (e.g. 'w0': A 4, B 3). Annotate them alike, unless it is their "
        "context that decides."
    ]
    assert messages_on(as_a + often(3, 4, 0, "B")) == []


STRIDED = {"@span_getters": "spacy-transformers.strided_spans.v1", "window": 3, "stride": 2}
LISTENER = {
    "@architectures": "spacy-transformers.TransformerListener.v1",
    "grad_factor": 1.0,
    "pooling": {"@layers": "reduce_mean.v1"},
}


@pytest.fixture(scope="module")
def listening(letters):
    """A stock transformer that takes 7 letters, and two components that listen to it."""
    pytest.importorskip("spacy_transformers")
    nlp = spacy.blank("en", vocab=VOCAB)
    model = {
        "@architectures": "spacy-transformers.TransformerModel.v3",
        "name": str(letters),
        "get_spans": STRIDED,
        "tokenizer_config": {"use_fast": True},
    }
    nlp.add_pipe("transformer", config={"model": model})
    for factory in ("span_enumerator", "multispan_tagger"):
        nlp.add_pipe(factory, config={"model": {"tok2vec": LISTENER}})
    nlp.add_pipe("span_enumerator", name="apart")
    return nlp


CUT = make("aaaaaaa b ccccccc d e f", (0, 1, "A"), (1, 2, "A"), (2, 6, "A"))
WHOLE = make("aaaa bbbb cccc dd e", (4, 5, "A"))


def test_gold_that_an_encoder_does_not_see_is_said(listening):
    pipe = listening.get_pipe("span_enumerator")
    assert find_encoders(pipe, listening) == []
    model = listening.get_pipe("transformer").model
    model.initialize(X=[WHOLE.predicted])
    assert find_encoders(pipe, listening) == [("transformer", model)]
    assert find_encoders(pipe, None) == []
    assert find_encoders(listening.get_pipe("apart"), listening) == []
    with listening.select_pipes(disable=["transformer"]):
        assert find_encoders(pipe, listening) == [("transformer", model)]
    assert describe_truncation([], "sc", "transformer", model) == []
    assert describe_truncation([WHOLE], "sc", "transformer", model) == []
    # Nothing is lost of documents without gold.
    assert describe_truncation([CUT], "other", "transformer", model) == []
    (message,) = describe_truncation([WHOLE, CUT, CUT], "sc", "own", model)
    assert message.startswith(
        "own cuts off 4 gold spans in 'sc', of 2 documents, where windows have more than 7 word "
        "pieces (e.g. 'b'). The architecture spacy-spans.PrunedTransformerModel.v1"
    )
    assert message.endswith(SEE_DEBUG)


def test_what_cannot_be_checked_is_logged(listening, said, monkeypatch):
    pipe = listening.get_pipe("transformer")
    pipe.model.initialize(X=[WHOLE.predicted])
    monkeypatch.setitem(pipe.model.attrs, "get_spans", lambda docs: [list(d.sents) for d in docs])
    assert describe_truncation([CUT], "sc", "transformer", pipe.model) == []
    (line,) = said()
    assert line.startswith("transformer: not checked for tokens that it cuts off ([E030]")


def test_each_is_said_once_for_a_key(listening):
    """By the first that learns from it, and of each encoder by the first that has it."""
    examples = [CUT, make("a \n", (0, 2, "A"))]

    def said_by(nlp):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            nlp.initialize(lambda: examples)
        own = [str(one.message) for one in caught if issubclass(one.category, SpansWarning)]
        return [message.split(" in 'sc'")[0] for message in own if SEE_DEBUG in message]

    once = ["1 gold span", "transformer cuts off 2 gold spans"]
    assert said_by(listening) == once
    with listening.select_pipes(disable=["span_enumerator", "apart"]):
        assert said_by(listening) == once
    with listening.select_pipes(disable=["span_enumerator", "multispan_tagger"]):
        assert said_by(listening) == once[:1]


@pytest.mark.parametrize("factory", ["span_enumerator", "multispan_tagger"])
def test_data_is_read_twice_at_initialize(factory):
    nlp = spacy.blank("en", vocab=VOCAB)
    pipe = nlp.add_pipe(factory)
    calls = []

    def get_examples():
        calls.append(1)
        # A generator, as a corpus gives.
        return (example for example in fill(3, (1, 2, "A")))

    pipe.initialize(get_examples, nlp=nlp)
    # spaCy's check that they are examples, and the data.
    assert len(calls) == 2
