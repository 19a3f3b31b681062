"""Where scores stand, by the names of all columns."""

import numpy as np
import pytest

from spacy_spans.kernels.schemes import BIO, BIOES, BOUNDARY, IO
from spacy_spans.modules.fragment_linker import N_ROLES
from spacy_spans.pipeline.tag_layout import LINK_WIDTH, TagLayout

from .. import reference_tags as reference

LAYOUTS = {
    f"{scheme.name}{'-shared' * shared}{'-links' * links}": (scheme, shared, links)
    for scheme, shared in (
        (IO, False),
        (BIO, False),
        (BIO, True),
        (BIOES, False),
        (BIOES, True),
        (BOUNDARY, False),
    )
    for links in (False, True)
}
by_layout = pytest.mark.parametrize(("scheme", "shared", "links"), LAYOUTS.values(), ids=LAYOUTS)


def make_layout(scheme, shared, links, n_labels):
    return TagLayout(scheme, n_labels, shared=shared, links=links)


def layers_of(scheme, shared, links, n_labels):
    """Name and tags of each layer, in the order of the class's docstring."""
    layers = [("fragments", ["O", "B0", "I0"])] * links
    if scheme is BOUNDARY:
        return layers + [(f"layer{i}", ["START", "END"]) for i in range(n_labels)]
    tags = "".join(scheme.tags)
    if shared:
        return [*layers, ("shared", reference.tag_names(tags, n_labels))]
    return layers + [(f"layer{i}", reference.tag_names(tags, 1)) for i in range(n_labels)]


def score_names(layers):
    return [f"{name}:{tag}" for name, tags in layers for tag in tags]


def edge_names(layers):
    return [
        f"{name}:{before}>{tag}"
        for name, tags in layers
        if "START" not in tags
        for before in [*tags, "first", "last"]
        for tag in tags
    ]


@by_layout
@pytest.mark.parametrize("n_labels", [1, 2, 4])
def test_sizes_are_those_of_all_names(scheme, shared, links, n_labels):
    layout = make_layout(scheme, shared, links, n_labels)
    layers = layers_of(scheme, shared, links, n_labels)
    assert layout.n_scores == len(score_names(layers))
    assert layout.n_edges == len(edge_names(layers))
    assert layout.n_links == links * N_ROLES * LINK_WIDTH
    assert layout.n_layers == len(layers) - links
    assert layout.n_tags == len(layers[-1][1])
    assert (layout.table is None) == (scheme is BOUNDARY)


@by_layout
@pytest.mark.parametrize("n_labels", [1, 3])
def test_parts_of_the_output_are_where_their_names_are(scheme, shared, links, n_labels):
    layout = make_layout(scheme, shared, links, n_labels)
    layers = layers_of(scheme, shared, links, n_labels)
    link_names = [f"link{i}" for i in range(layout.n_links)]
    # Two tokens.
    rows = np.asarray([[*score_names(layers), *link_names]] * 2)
    own = layout.scores(rows)
    assert (
        own.tolist() == [[[f"{name}:{tag}" for tag in tags] for name, tags in layers[links:]]] * 2
    )
    assert layout.link_features(rows).tolist() == [link_names] * 2
    if links:
        assert layout.fragment_scores(rows).tolist() == [[score_names(layers[:1])]] * 2
    else:
        assert layout.fragment_scores(rows).shape == (2, 1, 0)
    edges = np.asarray(edge_names(layers))
    if scheme is not BOUNDARY:
        own = layout.edges(edges)
        assert own.shape == (layout.n_layers, layout.n_tags + 2, layout.n_tags)
        assert own.ravel().tolist() == edge_names(layers[links:])
        name, tags = layers[-1]
        assert own[-1, -2, 0] == f"{name}:first>O"
        assert own[-1, -1, -1] == f"{name}:last>{tags[-1]}"
        assert own[-1, 1, 0] == f"{name}:{tags[1]}>O"
    if links:
        assert layout.fragment_edges(edges).ravel().tolist() == edge_names(layers[:1])
        assert layout.fragment_edges(edges).shape == (1, 5, 3)


@by_layout
@pytest.mark.parametrize(("n_old", "n_new"), [(1, 1), (1, 2), (2, 3), (2, 5)])
def test_more_labels_leave_every_name_where_it_says(scheme, shared, links, n_old, n_new):
    old = layers_of(scheme, shared, links, n_old)
    new = layers_of(scheme, shared, links, n_new)
    places, edge_places = make_layout(scheme, shared, links, n_old).places_in(
        make_layout(scheme, shared, links, n_new)
    )
    assert [score_names(new)[i] for i in places.tolist()] == score_names(old)
    assert [edge_names(new)[i] for i in edge_places.tolist()] == edge_names(old)


@pytest.mark.parametrize(
    ("shared", "layers", "within"), [(True, [0, 0, 0], [2, 0, 1]), (False, [2, 0, 1], [0, 0, 0])]
)
def test_labels_to_layers_and_back(shared, layers, within):
    layout = make_layout(BIO, shared, False, 3)
    labels = np.asarray([2, 0, 1])
    assert layout.layer_of(labels).tolist() == layers
    assert layout.label_within(labels).tolist() == within
    back = layout.label_at(layout.layer_of(labels), layout.label_within(labels))
    assert back.tolist() == [2, 0, 1]
