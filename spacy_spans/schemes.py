"""Registered tag schemes: `@misc = "spacy-spans.bio_scheme.v1"`.

Each is made by a function without settings. What a scheme is, and how spans become tags and tags
spans again, is in `kernels.schemes`.
"""

from spacy_spans.kernels.schemes import (
    BIO,
    BIOES,
    BOUNDARY,
    IO,
    BoundaryScheme,
    ChainScheme,
)


def make_io_scheme_v1() -> ChainScheme:
    """Inside or outside. The fewest tags, but spans of one label that touch become one."""
    return IO


def make_bio_scheme_v1() -> ChainScheme:
    """Begin, inside, outside. Spans of one label may touch."""
    return BIO


def make_bioes_scheme_v1() -> ChainScheme:
    """Begin, inside, end, single, outside. As bio, with the last token marked as well."""
    return BIOES


def make_boundary_scheme_v1() -> BoundaryScheme:
    """A start bit and an end bit for each token; each start takes the nearest end.

    Spans of one label may overlap if they end together. Tokens inside of a span are not looked
    at, so there are no transitions and no `loss = "crf"`.
    """
    return BOUNDARY
