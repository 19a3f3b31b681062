"""Training losses of `multispan_tagger`, summed over tokens and pairs."""

from typing import Any

import numpy as np
import numpy.typing as npt
from thinc.api import Model

from spacy_spans.kernels.chains import chain_loss
from spacy_spans.kernels.losses import sigmoid_loss, weighted_bit_loss, weighted_tag_loss
from spacy_spans.pipeline.tag_decoding import link_offsets, list_pairs
from spacy_spans.pipeline.tag_layout import FRAGMENT_TABLE, TagLayout
from spacy_spans.pipeline.tagging import Batch, Targets, link_targets
from spacy_spans.types import FloatArray


def tag_loss(
    layout: TagLayout,
    scores: FloatArray,
    edges: FloatArray,
    batch: Batch,
    targets: Targets,
    *,
    crf: bool,
    outside_weight: float,
) -> tuple[float, Any, Any]:
    """Loss of the span layers, and of the fragment layer where there is one.

    scores (ndarray): Shape (n_tokens, n_scores). edges (ndarray): Shape (n_edges,).
    outside_weight (float): Without `crf`, what O counts where it is gold. A likelihood of whole
        sequences has no terms of single tokens to weigh. There the scores of O are raised by
        -log(outside_weight) in training only (logit adjustment: Menon et al. 2021), so that in
        prediction every path counts outside_weight times for each O on it. Where tags do not
        depend on each other, both come to the same odds.
    RETURNS (tuple): Loss, and its gradients of the shapes of scores and edges.
    """
    d_scores, d_edges = np.zeros(scores.shape), np.zeros(edges.shape)
    own = layout.scores(scores)
    if layout.table is None:
        loss, d_own = weighted_bit_loss(own, targets.tags, outside_weight)
    elif crf:
        adjusted = own.copy()
        adjusted[..., 0] -= np.log(outside_weight)
        loss, d_own, d_edge = chain_loss(
            layout.table, adjusted, layout.edges(edges), batch.is_first, targets.tags
        )
        layout.edges(d_edges)[...] = d_edge
    else:
        loss, d_own = weighted_tag_loss(own, targets.tags, outside_weight)
    n_own = layout.n_layers * layout.n_tags
    d_scores[:, layout.n_fragment_scores :] = d_own.reshape(len(scores), n_own)
    if layout.links:
        more, d_own, d_edge = chain_loss(
            FRAGMENT_TABLE,
            layout.fragment_scores(scores),
            layout.fragment_edges(edges),
            batch.is_first,
            targets.fragment_tags,
        )
        loss += more
        d_scores[:, : layout.n_fragment_scores] = d_own[:, 0]
        layout.fragment_edges(d_edges)[...] = d_edge
    return loss, d_scores, d_edges


def link_loss(
    layout: TagLayout,
    links: Model,
    rows: Any,
    batch: Batch,
    targets: Targets,
    found: npt.NDArray[np.int64],
    max_gap: int,
    n_tokens: int,
) -> tuple[float, Any]:
    """Loss of links between fragments, those of gold and those found now.

    The found ones are what prediction will have to tell apart.

    links (Model): Scores pairs; learns here.
    found (ndarray): Fragments in tokens of the batch. Shape (n, 2).
    n_tokens (int): What `update` divides the tokens' gradient by; this layer's is as well.
    RETURNS (tuple): Loss, and its gradient for the link features of each token.
    """
    features = layout.link_features(rows)
    fragments = np.unique(np.concatenate([targets.fragments, found]), axis=0)
    pairs = list_pairs(fragments, batch, max_gap)
    if not len(pairs):
        return 0.0, 0.0 * features
    gold = targets.links.copy()
    size = int(fragments.max()) + 1
    codes = fragments[:, 0] * size + fragments[:, 1]
    gold_codes = targets.fragments[:, 0] * size + targets.fragments[:, 1]
    gold[:, :2] = np.searchsorted(codes, gold_codes)[gold[:, :2]]
    ops: Any = links.ops
    wanted = ops.asarray(link_targets(pairs, gold, layout.n_labels))
    offsets = ops.asarray(link_offsets(fragments, pairs))
    logits, backprop = links.begin_update((features, offsets))
    loss, gradient = sigmoid_loss(logits, wanted)
    d_features = backprop(gradient / n_tokens) * n_tokens
    return float(loss.sum()), d_features
