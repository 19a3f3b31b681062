"""Losses of `multispan_tagger`: by value, and their gradients against finite differences."""

import math

import numpy as np
import pytest
from thinc.api import Model

from spacy_spans.alignment import GoldMentions
from spacy_spans.kernels.schemes import BIO, BIOES, BOUNDARY, IO
from spacy_spans.pipeline.tag_layout import FRAGMENT_TABLE, TagLayout
from spacy_spans.pipeline.tag_loss import link_loss, tag_loss
from spacy_spans.pipeline.tagging import encode, make_batch

from .. import reference
from .. import reference_tags as slow

N_LABELS, MAX_GAP = 2, 4
LAYOUTS = {
    f"{scheme.name}{'-shared' * shared}{'-links' * links}": TagLayout(
        scheme, N_LABELS, shared=shared, links=links
    )
    for scheme, shared in ((IO, False), (BIO, False), (BIOES, True), (BOUNDARY, False))
    for links in (False, True)
}
# Documents of 4, 0, 6 and 1 tokens; rows of start, end, label and mention.
LENGTHS = [4, 0, 6, 1]
GOLD = [
    [(0, 2, 0, 0), (2, 4, 1, 1)],
    [],
    [(0, 1, 0, 0), (3, 4, 0, 0), (2, 3, 0, 1), (4, 6, 1, 2), (0, 1, 1, 3), (5, 6, 1, 3)],
    [(0, 1, 1, 0)],
]


def setting(layout, lengths=LENGTHS, gold=GOLD):
    tables = [np.asarray(rows, dtype="i").reshape(-1, 4) for rows in gold]
    mentions = [GoldMentions(own[:, :2], own[:, 2], own[:, 3], [], [], 0) for own in tables]
    batch = make_batch(lengths)
    return batch, encode(layout, mentions, batch, MAX_GAP)


def random_scores(layout, n_tokens, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(n_tokens, layout.n_scores)), random.normal(size=layout.n_edges)


def loss_of(layout, scores, edges, batch, targets, crf=True, weight=1.0):
    return tag_loss(layout, scores, edges, batch, targets, crf=crf, outside_weight=weight)


# Tags


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(("crf", "weight"), [(True, 1.0), (True, 0.3), (False, 1.0), (False, 0.3)])
def test_gradients_match_finite_differences(layout, crf, weight):
    batch, targets = setting(layout)
    scores, edges = random_scores(layout, sum(LENGTHS))
    loss, d_scores, d_edges = loss_of(layout, scores, edges, batch, targets, crf, weight)
    assert isinstance(loss, float)
    np.testing.assert_allclose(
        d_scores,
        slow.slopes(lambda x: loss_of(layout, x, edges, batch, targets, crf, weight)[0], scores),
        atol=1e-6,
    )
    np.testing.assert_allclose(
        d_edges,
        slow.slopes(lambda x: loss_of(layout, scores, x, batch, targets, crf, weight)[0], edges),
        atol=1e-6,
    )
    # Every score counts; sequences do with a crf, and always for fragments.
    assert np.all(np.abs(d_scores).sum(axis=0) > 0)
    own, fragments = d_edges[layout.n_fragment_edges :], d_edges[: layout.n_fragment_edges]
    assert own.any() == (crf and layout.table is not None)
    assert fragments.any() == layout.links


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_losses_of_even_scores_by_hand(layout):
    batch, targets = setting(layout)
    n_tokens = sum(LENGTHS)
    scores, edges = np.zeros((n_tokens, layout.n_scores)), np.zeros(layout.n_edges)
    # A layer of fragments counts all bio paths: of n tokens F(2n + 1), every second of Fibonacci's.
    fragments = layout.links * math.log(34 * 233 * 2)
    loss, _, _ = loss_of(layout, scores, edges, batch, targets, crf=False)
    n_choices = n_tokens * layout.n_layers * (2 if layout.table is None else 1)
    per_choice = math.log(2 if layout.table is None else layout.n_tags)
    assert loss == pytest.approx(n_choices * per_choice + fragments)
    # What is outside of spans counts half.
    loss, _, _ = loss_of(layout, scores, edges, batch, targets, crf=False, weight=0.5)
    n_outside = (targets.tags == 0).sum()
    assert loss == pytest.approx((n_choices - n_outside / 2) * per_choice + fragments)
    if layout is LAYOUTS["bio"]:
        loss, _, _ = loss_of(layout, scores, edges, batch, targets, crf=True)
        assert loss == pytest.approx(2 * math.log(34 * 233 * 2))


def test_in_training_paths_count_more_for_each_token_outside_with_a_low_weight():
    layout = TagLayout(BIO, 1, shared=False, links=False)
    zeros = np.zeros((3, 3)), np.zeros(layout.n_edges)
    # All bio paths of three tokens.
    paths = "OOO OOB OBO OBB OBI BOO BOB BBO BIO BBB BBI BIB BII".split()
    for weight in (0.25, 1.0, 4.0):
        total = sum(weight ** -path.count("O") for path in paths)
        for gold, n_outside in (([(1, 3, 0, 0)], 1), ([], 3)):
            batch, targets = setting(layout, [3], [gold])
            loss, _, _ = loss_of(layout, *zeros, batch, targets, crf=True, weight=weight)
            assert loss == pytest.approx(math.log(total / weight**-n_outside))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("crf", [True, False])
def test_sure_of_the_targets_there_is_no_loss(layout, crf):
    batch, targets = setting(layout)
    if layout.table is None:
        own = np.where(targets.tags, 30.0, -30.0)
    else:
        own = 30.0 * (targets.tags[..., None] == np.arange(layout.n_tags))
    scores = own.reshape(len(own), -1)
    if layout.links:
        fragments = 30.0 * (targets.fragment_tags == np.arange(FRAGMENT_TABLE.n_tags))
        scores = np.concatenate([fragments, scores], axis=1)
    loss, d_scores, d_edges = loss_of(
        layout, scores, np.zeros(layout.n_edges), batch, targets, crf=crf
    )
    assert loss == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(d_scores, 0, atol=1e-9)
    np.testing.assert_allclose(d_edges, 0, atol=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("crf", [True, False])
@pytest.mark.parametrize("lengths", [[], [0], [0, 0]], ids=str)
def test_no_tokens_have_no_loss(layout, crf, lengths):
    batch, targets = setting(layout, lengths, [[]] * len(lengths))
    scores, edges = random_scores(layout, 0)
    loss, d_scores, d_edges = loss_of(layout, scores, edges, batch, targets, crf=crf)
    assert loss == 0
    assert d_scores.shape == (0, layout.n_scores)
    assert d_edges.shape == (layout.n_edges,)
    assert not d_edges.any()


# Links

LINKED = LAYOUTS["bio-links"]


def make_links(seed=0):
    """Add up a linear map of the four tokens; keeps the gradients that it gets."""
    random = np.random.default_rng(seed)
    weights = random.normal(size=(4, LINKED.n_links, N_LABELS))

    def forward(model, inputs, is_train):
        features, pairs = inputs
        rows = pairs + np.asarray([0, -1, 0, -1])
        logits = np.einsum("prf,rfl->pl", features[rows], weights)

        def backprop(gradient):
            model.attrs["seen"] = gradient
            d_features = np.zeros_like(features)
            np.add.at(d_features, rows, np.einsum("pl,rfl->prf", gradient, weights))
            return d_features

        return logits, backprop

    return Model("links", forward, attrs={"weights": weights})


def link_rows(n_tokens, seed=1):
    width = LINKED.n_scores + LINKED.n_links
    return np.random.default_rng(seed).normal(size=(n_tokens, width)) * 0.1


def link_loss_of(model, rows, batch, targets, found, n_tokens=3):
    found = np.asarray(found, dtype=np.int64).reshape(-1, 2)
    return link_loss(LINKED, model, rows, batch, targets, found, MAX_GAP, n_tokens)


# Found now: one of the gold fragments, some that are not, one of them over a gold fragment.
FOUND = [(0, 1), (2, 4), (7, 8), (6, 8), (10, 11)]


@pytest.mark.parametrize("found", [FOUND, []], ids=["found", "gold alone"])
def test_link_loss_matches_a_loop_over_pairs_and_its_slope(found):
    batch, targets = setting(LINKED)
    model, rows = make_links(), link_rows(sum(LENGTHS))
    loss, gradient = link_loss_of(model, rows, batch, targets, found)
    # Gold: (0, 1) … (3, 4) of label 0, and (0, 1) … (5, 6) of label 1, of a document from 4 on.
    gold = {((4, 5), (7, 8), 0), ((4, 5), (9, 10), 1)}
    fragments = sorted({*found, (4, 5), (7, 8), (9, 10)})
    docs = [int(batch.doc_of[start]) for start, _ in fragments]
    weights, expected, n_pairs = model.attrs["weights"], 0.0, 0
    for i, j in slow.pairs_within(fragments, docs, MAX_GAP):
        one, other = fragments[i], fragments[j]
        tokens = (one[0], one[1] - 1, other[0], other[1] - 1)
        n_pairs += 1
        for label in range(N_LABELS):
            logit = sum(
                float(rows[token, LINKED.n_scores :] @ weights[role, :, label])
                for role, token in enumerate(tokens)
            )
            expected += reference.sigmoid_loss_of(logit, float((one, other, label) in gold))
    assert n_pairs > 2 * bool(found)
    assert loss == pytest.approx(expected)
    slopes = slow.slopes(lambda x: link_loss_of(model, x, batch, targets, found)[0], rows)
    np.testing.assert_allclose(gradient, slopes[:, LINKED.n_scores :], atol=1e-6)
    assert not slopes[:, : LINKED.n_scores].any()


def test_the_links_learn_per_token():
    batch, targets = setting(LINKED)
    model, rows = make_links(), np.zeros((sum(LENGTHS), LINKED.n_scores + LINKED.n_links))
    link_loss_of(model, rows, batch, targets, [], n_tokens=20)
    # Pairs (0, 1), (0, 2) and (1, 2) of the three gold fragments at logit 0.
    signs = np.asarray([[-1, 1], [1, -1], [1, 1]])
    np.testing.assert_allclose(model.attrs["seen"], 0.5 * signs / 20)


@pytest.mark.parametrize(
    ("lengths", "found"),
    [([], []), ([0], []), ([3], []), ([3], [(0, 1)]), ([1, 1], [(0, 1), (1, 2)])],
    ids=str,
)
def test_no_pairs_have_no_link_loss(lengths, found):
    batch, targets = setting(LINKED, lengths, [[]] * len(lengths))
    loss, gradient = link_loss_of(make_links(), link_rows(sum(lengths)), batch, targets, found)
    assert loss == 0
    assert gradient.shape == (sum(lengths), LINKED.n_links)
    assert not gradient.any()
