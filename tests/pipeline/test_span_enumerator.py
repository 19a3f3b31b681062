"""The life of the component: overfit, predict, round trip, score; settings; empties."""

import pytest
import spacy
from spacy.tokens import Span
from spacy.training import Example

DATA = [
    (
        "write clean Python code every day",
        [(0, 3, "SKILL"), (2, 3, "KNOWLEDGE"), (0, 6, "DUTY"), (1, 4, "SKILL")],
    ),
    ("Knowledge of German food safety law", [(2, 6, "KNOWLEDGE"), (0, 6, "SKILL")]),
    ("We pay well", []),
    ("", []),
]


def make_examples(nlp, key="sc"):
    examples = []
    for text, spans in DATA:
        reference = nlp.make_doc(text)
        reference.spans[key] = [Span(reference, start, end, label) for start, end, label in spans]
        examples.append(Example(nlp.make_doc(text), reference))
    return examples


def found(doc, key="sc"):
    return [(span.start, span.end, span.label_) for span in doc.spans[key]]


@pytest.fixture(scope="module")
def trained():
    nlp = spacy.blank("en")
    nlp.add_pipe("span_enumerator")
    examples = make_examples(nlp)
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(60):
        losses = nlp.update(examples, sgd=optimizer)
    assert losses["span_enumerator"] < 0.01
    return nlp


def test_overfits_nested_and_crossing_spans(trained):
    for text, spans in DATA:
        doc = trained(text)
        assert found(doc) == sorted(spans)
        scores = doc.spans["sc"].attrs["scores"]
        assert len(scores) == len(spans)
        assert all(0.5 <= score <= 1 for score in scores)
