"""What the tests of checks share: small documents, and components to check them for."""

import spacy
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_spans.debugging.plan import find_components

VOCAB = spacy.blank("en").vocab


def make(text, *spans, key="sc"):
    """A document of the words of a text, with spans in tokens; without words for an empty one."""
    doc = Doc(VOCAB, words=text.split(" ")) if text else Doc(VOCAB)
    if key is not None:
        doc.spans[key] = [Span(doc, *span) for span in spans]
    return doc


def side(*docs):
    """Examples of documents that the pipeline tokenizes alike."""
    return [Example(Doc(doc.vocab, words=[t.text for t in doc]), doc) for doc in docs]


def make_component(factory, **config):
    """The component of a pipeline that has only this one."""
    nlp = spacy.blank("en")
    nlp.add_pipe(factory, config=config)
    (component,) = find_components(nlp)
    return component


def said(section):
    """Levels and messages of a section, as one text a finding."""
    return [f"{level}: {message}" for level, message in section.findings]
