"""Fixtures of tests that are done with each component."""

import io

import pytest
from spacy.util import logger_stream_handler

from . import DATA_FOR, with_listener, write_corpus


@pytest.fixture(scope="module", params=DATA_FOR)
def factory(request):
    """Each component in turn."""
    return request.param


@pytest.fixture(scope="module")
def listening(factory):
    return with_listener(factory)


@pytest.fixture
def corpus(factory, tmp_path):
    return write_corpus(tmp_path, factory)


@pytest.fixture
def said(monkeypatch):
    """A function that returns what spaCy's log, at the level it has by itself, shows by then."""
    stream = io.StringIO()
    monkeypatch.setattr(logger_stream_handler, "stream", stream)
    # Time and level come first.
    return lambda: [line.split("] ", 2)[2] for line in stream.getvalue().splitlines()]


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """A folder with a BERT of four layers that nothing was learned by."""
    from ..encoder import save_bert
    from .pruned import PIECES

    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "intermediate_size": 48}
    return save_bert(tmp_path_factory.mktemp("bert"), PIECES, **sizes)


@pytest.fixture(scope="session")
def pruned(bert):
    """A pipeline with a `pruned_transformer`, trained for a few steps. Not to the end: it makes
    mistakes, and is unsure.
    """
    from .pruned import make_examples, make_nlp, train

    nlp = make_nlp(bert, gates=[1, 3])
    nlp.initialize(lambda: make_examples(nlp))
    train(nlp, 40)
    nlp.get_pipe("span_enumerator").cfg["threshold"] = 0.05
    return nlp


@pytest.fixture
def dial(pruned):
    """A function that sets attributes of the encoder of `pruned` for one test."""
    attrs = pruned.get_pipe("transformer").model.attrs
    before = dict(attrs)
    yield attrs.update
    attrs.update(before)


@pytest.fixture(scope="session")
def trained_pruner():
    """A pipeline with a `token_pruner` that has learned its few texts by heart."""
    from . import make_examples, train
    from .pruner import SPARSE, make_nlp

    nlp, _ = make_nlp()
    losses = train(nlp, make_examples(nlp, SPARSE), steps=60)
    assert losses["token_pruner"] < 0.02
    return nlp
