"""Fixtures of tests that are done with each component."""

import pytest

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
