"""The registered schemes: found, without settings, and what they are."""

import pytest
import spacy

from spacy_spans.kernels.schemes import BIO, BIOES, BOUNDARY, IO, BoundaryScheme, ChainScheme

# The tags of a span of one, of two and of four tokens.
CHAINS = {
    "io": (IO, ["I"], ["I", "I"], ["I", "I", "I", "I"]),
    "bio": (BIO, ["B"], ["B", "I"], ["B", "I", "I", "I"]),
    "bioes": (BIOES, ["S"], ["B", "E"], ["B", "I", "I", "E"]),
}


def resolve(name):
    # As a component's config does; by itself confection would make a plain tuple of it.
    config = {"scheme": {"@misc": f"spacy-spans.{name}_scheme.v1"}, "loss": "token"}
    return spacy.blank("en").add_pipe("multispan_tagger", config=config).scheme


@pytest.mark.parametrize("name", CHAINS)
def test_chain_schemes_name_the_tags_of_spans_of_any_length(name):
    expected, *tags = CHAINS[name]
    scheme = resolve(name)
    assert scheme is expected
    assert isinstance(scheme, ChainScheme)
    assert scheme.name == name
    inside = scheme.tags[scheme.inside]
    assert [[scheme.tags[scheme.single]]] + [
        [scheme.tags[scheme.begin], *[inside] * n, scheme.tags[scheme.end]] for n in (0, 2)
    ] == tags


def test_the_boundary_scheme():
    scheme = resolve("boundary")
    assert scheme is BOUNDARY
    assert isinstance(scheme, BoundaryScheme)
    assert (scheme.name, scheme.tags) == ("boundary", ("START", "END"))


def test_schemes_say_what_they_lose_in_different_words():
    loses = {name: resolve(name).loses for name in ("io", "bio", "bioes", "boundary")}
    assert "touch" in loses["io"]
    assert loses["bio"] == loses["bioes"] == "spans of one label that overlap"
    assert "end together" in loses["boundary"]
