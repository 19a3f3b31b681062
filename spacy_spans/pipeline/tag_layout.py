"""The layers of a tagger: which there are, and where their scores stand in its model's output."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from spacy_spans.alignment import GoldMentions
from spacy_spans.kernels.schemes import (
    BIO,
    BoundaryScheme,
    TagScheme,
    TagTable,
    overlap_across,
    tag_table,
)
from spacy_spans.modules.fragment_linker import N_ROLES

# Writes where spaCy does. Without `spacy train --verbose` spaCy's own logger passes on warnings
# only, and what "auto" came to should be heard.
logger = logging.getLogger("spacy.multispan_tagger")
logger.setLevel(logger.level or logging.INFO)
# Features of a token for each of its roles in a pair of fragments.
LINK_WIDTH = 64
# Tags up to which labels share a layer by themselves: a step costs n_tags ** 3.
MAX_SHARED_TAGS = 16
FRAGMENT_TABLE = tag_table(BIO, 1)


@dataclass(frozen=True)
class TagLayout:
    """Layers, and the columns of their scores.

    First, where there are discontinuous mentions, one layer for their fragments, whatever the
    label (bio); then a layer per label, or one that labels share. Each has `n_tags` scores a
    token, and unless the scheme is `boundary` a row of sequence scores for each tag before, for
    document starts and for document ends. New labels only add at the end of each part.
    """

    scheme: TagScheme
    n_labels: int
    shared: bool
    links: bool

    @cached_property
    def table(self) -> TagTable | None:
        """What the tags of a layer are; None for `boundary`, which has a start and an end bit."""
        if isinstance(self.scheme, BoundaryScheme):
            return None
        return tag_table(self.scheme, self.n_labels if self.shared else 1)

    @property
    def n_layers(self) -> int:
        return 1 if self.shared else self.n_labels

    @property
    def n_tags(self) -> int:
        return self.table.n_tags if self.table is not None else 2

    @property
    def n_fragment_scores(self) -> int:
        return FRAGMENT_TABLE.n_tags if self.links else 0

    @property
    def n_scores(self) -> int:
        return self.n_fragment_scores + self.n_layers * self.n_tags

    @property
    def n_fragment_edges(self) -> int:
        return _n_edges(1, FRAGMENT_TABLE.n_tags) if self.links else 0

    @property
    def n_edges(self) -> int:
        own = _n_edges(self.n_layers, self.n_tags) if self.table is not None else 0
        return self.n_fragment_edges + own

    @property
    def n_links(self) -> int:
        """Features per token for linking fragments."""
        return N_ROLES * LINK_WIDTH if self.links else 0

    def layer_of(self, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The layer of each label index."""
        return np.zeros_like(labels) if self.shared else labels

    def label_within(self, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Each label index as the layer's own."""
        return labels if self.shared else np.zeros_like(labels)

    def label_at(self, layers: npt.NDArray[Any], within: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The label index of a layer's own labels."""
        return within if self.shared else layers

    def scores(self, rows: Any) -> Any:
        """Columns of the span layers as (n_tokens, n_layers, n_tags)."""
        own = rows[:, self.n_fragment_scores : self.n_scores]
        return own.reshape(len(rows), self.n_layers, self.n_tags)

    def edges(self, values: Any) -> Any:
        """Sequence scores of the span layers as (n_layers, n_tags + 2, n_tags)."""
        return values[self.n_fragment_edges :].reshape(self.n_layers, self.n_tags + 2, self.n_tags)

    def fragment_scores(self, rows: Any) -> Any:
        """Columns of the fragment layer as (n_tokens, 1, n_tags)."""
        return rows[:, : self.n_fragment_scores][:, None]

    def fragment_edges(self, values: Any) -> Any:
        """Sequence scores of the fragment layer as (1, n_tags + 2, n_tags)."""
        n_tags = FRAGMENT_TABLE.n_tags
        return values[: self.n_fragment_edges].reshape(1, n_tags + 2, n_tags)

    def link_features(self, rows: Any) -> Any:
        """Columns for linking fragments. Shape (n_tokens, n_links)."""
        return rows[:, self.n_scores :]

    def places_in(self, new: "TagLayout") -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Where each present score and sequence score stands in a layout with more labels."""
        columns = np.arange(new.n_scores)
        scores = new.scores(columns[None])[0, : self.n_layers, : self.n_tags]
        places = np.concatenate([columns[: self.n_fragment_scores], scores.reshape(-1)])
        values = np.arange(new.n_edges)
        if self.table is None:
            return places, values[: self.n_edges]
        edges = new.edges(values)[: self.n_layers]
        # A row per tag before, then the two of starts and ends, which stay last.
        kept = np.concatenate([edges[:, : self.n_tags], edges[:, -2:]], axis=1)[:, :, : self.n_tags]
        return places, np.concatenate([values[: self.n_fragment_edges], kept.reshape(-1)])


def choose_layout(
    gold: Iterable[GoldMentions],
    scheme: TagScheme,
    n_labels: int,
    *,
    layers: str,
    discontinuous: bool | str,
    name: str,
) -> TagLayout:
    """Decide on "auto" by the gold of the training data, and log what was chosen.

    layers, discontinuous: As of `multispan_tagger`. name (str): Who decides, for the log.
    """
    overlap = fragments_overlap = several = False
    for own in gold:
        whole = np.bincount(own.mentions)[own.mentions] == 1
        several |= not whole.all()
        overlap |= overlap_across(own.offsets[whole], own.labels[whole])
        fragments_overlap |= overlap_across(own.offsets, own.labels)
    links = several if discontinuous == "auto" else bool(discontinuous)
    if links and discontinuous == "auto":
        logger.info(
            f"{name}: discontinuous mentions, spans that share a Span.id, are learned, as there "
            "are some"
        )
    shared = TagLayout(scheme, n_labels, shared=True, links=links)
    separate = TagLayout(scheme, n_labels, shared=False, links=links)
    if layers != "auto":
        return shared if layers == "shared" else separate
    # With links, fragments have a layer of their own.
    reason = _why_separate(shared, overlap or (fragments_overlap and not links))
    if reason:
        logger.info(f"{name}: a layer per label ({reason})")
        return separate
    logger.info(f"{name}: one layer for all labels (no two labels overlap in the training data)")
    return shared


def _why_separate(shared: TagLayout, overlap: bool) -> str:
    """Why labels cannot share a layer; empty where they can.

    overlap (bool): Whether spans of different labels overlap.
    """
    if shared.table is None:
        return f"the scheme {shared.scheme.name!r} has no other way"
    if shared.n_labels == 1:
        return "there is only one"
    if overlap:
        return "labels overlap in the training data"
    if shared.n_tags > MAX_SHARED_TAGS:
        return f"one for all would need {shared.n_tags} tags"
    return ""


def _n_edges(n_layers: int, n_tags: int) -> int:
    return n_layers * (n_tags + 2) * n_tags
