"""How `span_enumerator` uses its candidate function. Candidates stay in numpy until scored."""

from collections.abc import Sequence
from typing import Any

from spacy.tokens import Doc
from thinc.types import Ragged

from spacy_spans.alignment import GoldSpans
from spacy_spans.candidates import (
    HOST,
    add_candidates,
    check_candidates,
    is_own,
    keep_within_runs,
    needs_boundary_scores,
    read_boundary_scores,
    sample_candidates,
    split_offsets,
    to_ragged,
)
from spacy_spans.kept import KeptRuns
from spacy_spans.kernels.enumeration import run_limits
from spacy_spans.kernels.pruning import BoolArray
from spacy_spans.pipeline.reach import NO_CANDIDATE, TOO_LONG
from spacy_spans.types import CandidateFunction, FloatArray, IntArray


class Listing:
    """A candidate function, with what the component adds to it.

    kept_key (str | None): List only candidates inside runs of this key, where there are runs.
    """

    def __init__(self, function: CandidateFunction, kept_key: str | None) -> None:
        self.function = function
        self.kept_key = kept_key
        self._kept = KeptRuns(kept_key, "their candidates are not restricted") if kept_key else None

    @property
    def is_learned(self) -> bool:
        """Whether candidates come from start and end scores that the component learns."""
        return needs_boundary_scores(self.function)

    @property
    def read_key(self) -> str | None:
        """The spans key that candidates are read from, if they are."""
        key: str | None = getattr(self.function, "keywords", {}).get("spans_key")
        return key

    def __call__(self, docs: Sequence[Doc], boundary_scores: list[FloatArray] | None) -> Any:
        """List the candidates of a batch.

        boundary_scores (list | None): Start and end scores (n_tokens, 2) of each document, if
            candidates are learned.
        RETURNS (Ragged): In numpy; offsets (n, 2), (0, 2) for none.
        """
        runs = self._kept.read(docs) if self._kept is not None else None
        return self._list(docs, boundary_scores, runs)

    def within_kept(self, candidates: Ragged, docs: Sequence[Doc]) -> Ragged:
        """Leave out candidates outside of kept runs. Warns once if no document has any."""
        if self._kept is None:
            return candidates
        return keep_within_runs(candidates, self._kept.read(docs), docs)

    def in_training(
        self,
        docs: Sequence[Doc],
        gold: Sequence[IntArray],
        boundary_scores: list[FloatArray] | None,
        annotated: Sequence[bool],
        *,
        add_gold: bool,
        negative_ratio: float | None,
    ) -> tuple[Ragged, FloatArray | None]:
        """List candidates of annotated documents, add gold, drop negatives.

        gold (Sequence[ndarray]): Offsets of gold spans of each document. Shapes (n, 2).
        annotated (Sequence[bool]): Which documents to list candidates of.
        RETURNS (tuple): Candidates, and the weight of each; None when all count alike.
        """
        candidates = self(docs, boundary_scores)
        if not all(annotated):
            listed = zip(split_offsets(candidates), annotated, strict=True)
            candidates = to_ragged([own if counts else own[:0] for own, counts in listed], HOST)
        if add_gold:
            candidates = add_candidates(candidates, gold)
            # Outside of kept runs the encoder may have nothing to say.
            candidates = self.within_kept(candidates, docs)
        if negative_ratio is None:
            return candidates, None
        return sample_candidates(candidates, gold, ratio=negative_ratio)

    def kept_gold(
        self, gold: Sequence[GoldSpans], docs: Sequence[Doc], name: str, key: str
    ) -> list[IntArray]:
        """Offsets of gold that candidates may be; warns once of what is outside of kept runs."""
        offsets = [spans.offsets for spans in gold]
        if self._kept is None:
            return offsets
        kept = split_offsets(self.within_kept(to_ragged(offsets, HOST), docs))
        n_gold, n_kept = (sum(len(own) for own in some) for some in (offsets, kept))
        self._kept.warn_of_lost(docs, name, key, n_gold - n_kept, n_gold)
        return kept

    def kept_tokens(self, docs: Sequence[Doc]) -> BoolArray | None:
        """Which tokens of the documents, end to end, candidates may have; None for all."""
        return self._kept.mask(docs) if self._kept is not None else None

    def _list(
        self,
        docs: Sequence[Doc],
        boundary_scores: list[FloatArray] | None,
        runs: Sequence[IntArray | None] | None,
    ) -> Any:
        """runs (Sequence | None): Kept runs of each document, None for one without; None: of none
        is to be asked.
        """
        if self.is_learned:
            function: Any = self.function
            # By scores of tokens outside of runs nothing may be chosen: nothing taught them.
            limits = [
                None if own is None else run_limits(own, len(doc))
                for doc, own in zip(docs, runs or [None] * len(docs), strict=True)
            ]
            return function(docs, ops=HOST, boundary_scores=boundary_scores, limits=limits)
        candidates: Ragged = self.function(docs, ops=HOST)
        if not is_own(self.function):
            candidates = check_candidates(candidates, docs)
        return candidates if runs is None else keep_within_runs(candidates, runs, docs)

    def before_training(self, doc: Doc) -> IntArray | None:
        """Candidates of a document that nothing has been predicted for; None if they are learned.

        RAISES: What the candidate function raises where it reads what another component writes.
        """
        if self._kept is not None and self._kept.key in doc.spans and not self.is_learned:
            # What is lost is counted by label.
            self._kept.has_warned_of_lost = True
        return None if self.is_learned else self._of_one(doc, None)

    def explain(self, offsets: IntArray, doc: Doc) -> list[str]:
        """Why spans of a document are no candidates before training, as far as that can be told.

        offsets (ndarray): Shape (n, 2). RETURNS (list): A reason for each.
        """
        settings = getattr(self.function, "keywords", {})
        longest, shortest = settings.get("max_length"), settings.get("min_length", 1)
        kept = offsets
        if self._kept is not None and self._kept.key in doc.spans:
            kept = split_offsets(self.within_kept(to_ragged([offsets], HOST), [doc]))[0]
        inside = {*map(tuple, kept.tolist())}
        reasons = []
        for start, end in offsets.tolist():
            if longest is not None and end - start > longest:
                reasons.append(f"{TOO_LONG} max_length = {longest}")
            elif end - start < shortest:
                reasons.append(f"shorter than min_length = {shortest}")
            elif (start, end) not in inside:
                reasons.append("outside of kept runs")
            elif settings.get("within_sentences"):
                reasons.append("across a sentence boundary")
            elif self.read_key is not None:
                reasons.append(f"not in doc.spans[{self.read_key!r}]")
            else:
                reasons.append(NO_CANDIDATE)
        return reasons

    @property
    def band(self) -> int | None:
        """The longest span that learned candidates can be, if they have a limit."""
        limit: int | None = getattr(self.function, "keywords", {}).get("max_length")
        return limit if self.is_learned else None

    def of_predicted(self, doc: Doc, key: str) -> IntArray:
        """Candidates of a document that the component with this spans key has processed."""
        return self._of_one(doc, [read_boundary_scores(doc, key)] if self.is_learned else None)

    def _of_one(self, doc: Doc, boundary_scores: list[FloatArray] | None) -> IntArray:
        # A single document may well have no runs, without a warning.
        has_runs = self._kept is not None and self._kept.key in doc.spans
        runs = self._kept.read([doc]) if self._kept is not None and has_runs else None
        return split_offsets(self._list([doc], boundary_scores, runs))[0]
