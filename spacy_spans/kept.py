"""Read the runs of tokens that a pruner kept."""

import warnings
from collections.abc import Sequence

import numpy as np
from spacy.tokens import Doc

from spacy_spans.errors import SpansWarning
from spacy_spans.groups import describe_keys, read_offsets
from spacy_spans.kernels.pruning import BoolArray, runs_to_mask
from spacy_spans.types import IntArray

# In `attrs` of a group: its runs are of a training step whose share of kept tokens was drawn by
# chance. What is outside of them may be inside the next time, and in prediction.
DRAWN = "drawn"


class KeptRuns:
    """Reads one key, and warns once of documents that have it nowhere: it may be misspelt."""

    def __init__(self, key: str, consequence: str) -> None:
        """consequence (str): What happens to documents without the key, as a sentence that begins
        with who does it.
        """
        self.key = key
        self.consequence = consequence
        self.has_warned = False
        self.has_warned_of_lost = False

    def read(self, docs: Sequence[Doc]) -> list[IntArray | None]:
        """The runs of each document, (n_runs, 2); None for one without the key."""
        runs = [read_offsets(doc, self.key) if self.key in doc.spans else None for doc in docs]
        if (
            not self.has_warned
            and any(len(doc) for doc in docs)
            and not any(own is not None for own in runs)
        ):
            self.has_warned = True
            message = (
                f"None of the {len(docs)} documents of a batch has doc.spans[{self.key!r}] "
                f"(keys that are there: {describe_keys(docs)}): {self.consequence}. Put "
                "`token_pruner` earlier in the pipeline, for training also list it in [training] "
                "annotating_components, and give both the same kept_key; or let the transformer "
                "write what its gates keep: `pruned_transformer` does."
            )
            warnings.warn(SpansWarning(message), stacklevel=2)
        return runs

    def mask(self, docs: Sequence[Doc]) -> BoolArray:
        """Which tokens of the documents, end to end, are kept: all of one without the key."""
        masks = [
            np.ones(len(doc), dtype=bool) if runs is None else runs_to_mask(runs, len(doc))
            for doc, runs in zip(docs, self.read(docs), strict=True)
        ]
        return np.concatenate([np.zeros(0, dtype=bool), *masks])

    def warn_of_lost(
        self, docs: Sequence[Doc], name: str, key: str, n_lost: int, n_gold: int
    ) -> None:
        """Say once, of the first training batch where there are any, that gold spans are not kept.

        Before training nothing may have been kept yet, and all of it is counted by scores. Of runs
        that are `DRAWN` nothing follows for prediction, so nothing is said.
        """
        groups = [doc.spans[self.key] for doc in docs if self.key in doc.spans]
        if any(group.attrs.get(DRAWN) for group in groups):
            return
        if n_lost and not self.has_warned_of_lost:
            self.has_warned_of_lost = True
            message = (
                f"{name}: {n_lost} of the {n_gold} gold spans in {key!r} of a training batch do "
                f"not lie inside one run of doc.spans[{self.key!r}]. Such spans are not learned "
                "and cannot be predicted: keep more tokens, or set within_kept = false."
            )
            warnings.warn(SpansWarning(message), stacklevel=2)
