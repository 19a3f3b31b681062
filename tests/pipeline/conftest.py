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
