"""Read the runs of tokens that a pruner kept."""

import warnings
from collections.abc import Sequence

from spacy.tokens import Doc

from spacy_spans.errors import SpansWarning
from spacy_spans.groups import read_offsets
from spacy_spans.types import IntArray


class KeptRuns:
    """Reads one key, and warns once of documents that have it nowhere: it may be misspelt."""

    def __init__(self, key: str, consequence: str) -> None:
        """consequence (str): What happens to documents without the key, as a sentence that begins
        with who does it.
        """
        self.key = key
        self.consequence = consequence
        self.has_warned = False

    def read(self, docs: Sequence[Doc]) -> list[IntArray | None]:
        """The runs of each document, (n_runs, 2); None for one without the key."""
        runs = [read_offsets(doc, self.key) if self.key in doc.spans else None for doc in docs]
        if (
            not self.has_warned
            and any(len(doc) for doc in docs)
            and not any(own is not None for own in runs)
        ):
            self.has_warned = True
            keys = sorted({key for doc in docs for key in doc.spans})
            message = (
                f"None of the {len(docs)} documents of a batch has doc.spans[{self.key!r}] "
                f"(keys that are there: {', '.join(keys) or 'none'}): {self.consequence}. Put "
                "`token_pruner` earlier in the pipeline, for training also list it in [training] "
                "annotating_components, and give both the same kept_key; or let the transformer "
                "write what its gates keep: `pruned_transformer` does."
            )
            warnings.warn(SpansWarning(message), stacklevel=2)
        return runs
