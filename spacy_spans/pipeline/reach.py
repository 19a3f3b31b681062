"""Count which gold spans the candidates reach, and say what is lost."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from spacy.tokens import Doc
from spacy.training import Example

from spacy_spans.alignment import GoldSpans, annotation_of
from spacy_spans.kernels.decoding import select_spans
from spacy_spans.kernels.losses import rarity_bias
from spacy_spans.kernels.schemes import BoolArray
from spacy_spans.kernels.targets import find_spans
from spacy_spans.pipeline.gold_report import MISALIGNED, GoldReport, format_counts, shorten
from spacy_spans.types import IntArray

# Why gold is no candidate where the candidate function does not tell.
NO_CANDIDATE = "no candidate"
# How a reason begins that a larger max_length would remove.
TOO_LONG = "longer than"
EXCLUDED = "excluded by a span that it overlaps"
Explain: TypeAlias = Callable[[IntArray, Doc], Sequence[str]]


class Reach(GoldReport):
    """Running counts over examples.

    softmax (bool): Whether a span has one label.
    overlap (str): The policy, which may exclude gold spans that overlap.
    explain (Callable): Why spans of a document are no candidates, a reason for each.
    excluded_advice (str): Which settings exclude spans, and how not to.
    """

    excluded_advice = (
        'loss = "softmax" gives a span one label, overlap = "flat" keeps no two that share a '
        'token, "nested" none that cross: use loss = "sigmoid" and overlap = "any" to predict all '
        "of them."
    )

    def __init__(
        self,
        labels: Sequence[str],
        *,
        softmax: bool = False,
        overlap: str = "any",
        explain: Explain = lambda offsets, doc: [NO_CANDIDATE] * len(offsets),
    ) -> None:
        super().__init__(labels)
        self.softmax = softmax
        self.overlap = overlap
        self.explain = explain
        self.n_candidates = 0
        self.n_unreached = 0
        self.longest_unreached = 0
        self.unreached_example = ""
        self.notes: list[str] = []

    def add(
        self,
        example: Example,
        gold: GoldSpans,
        candidates: IntArray | None,
        *,
        band: int | None = None,
    ) -> None:
        """Count one document.

        candidates (ndarray | None): Offsets (n, 2); None when they cannot be known yet.
        band (int | None): The longest that candidates which are not known can be.
        """
        doc = example.predicted
        self.add_gold(len(doc), gold.labels.tolist(), gold.misaligned)
        lengths = gold.offsets[:, 1] - gold.offsets[:, 0]
        if candidates is not None:
            self.n_candidates += len(candidates)
            missing = find_spans(gold.offsets, candidates) < 0
        else:
            missing = lengths > (band if band is not None else lengths.max(initial=0))
        self.n_unreached += int(missing.sum())
        reasons = self.explain(gold.offsets[missing], doc) if missing.any() else ()
        for reason, row in zip(reasons, np.flatnonzero(missing).tolist(), strict=True):
            self._lose(reason, gold, row, doc)
            length = int(lengths[row])
            if length > self.longest_unreached:
                self.longest_unreached = length
                start, end = gold.offsets[row].tolist()
                self.unreached_example = doc[start:end].text
        for row in self._excluded(gold, ~missing):
            self._lose(EXCLUDED, gold, row, doc)

    def _lose(self, reason: str, gold: GoldSpans, row: int, doc: Doc) -> None:
        span = gold.offsets[row].tolist()
        self.lose(reason, annotation_of(doc, [span], self.labels[gold.labels[row]]))

    def _excluded(self, gold: GoldSpans, reached: BoolArray) -> list[int]:
        """Rows that the settings cannot give together with the others."""
        if not self.softmax and self.overlap == "any":
            return []
        kept = rows = np.flatnonzero(reached)
        if self.softmax:
            kept = rows[np.unique(gold.offsets[rows], axis=0, return_index=True)[1]]
        if self.overlap != "any":
            offsets = gold.offsets[kept]
            kept = kept[select_spans(offsets, np.ones(len(kept), dtype="f"), self.overlap)]
        return sorted({*rows.tolist()} - {*kept.tolist()})

    def forget_candidates(self) -> None:
        """Drop what was counted of candidates: those of some documents say nothing of the rest."""
        self.n_candidates = self.n_unreached = self.longest_unreached = 0
        self.unreached_example = ""
        for reason in {*self.losses} - {MISALIGNED, EXCLUDED}:
            del self.losses[reason]

    def add_note(self, note: str) -> None:
        """Say something else, among the messages."""
        self.notes.append(note)

    def recall(self) -> float | None:
        """Share of gold spans among the candidates; misaligned ones are missed. None without."""
        if not self.n_gold:
            return None
        return 1.0 - (self.n_unreached + self.n_misaligned) / self.n_gold

    def rarity_bias(self) -> list[float]:
        """The logit of each label's share of candidates (of 10 a token, where unknown)."""
        n_candidates = self.n_candidates or 10 * self.n_tokens
        counts = [self.gold_of_label[i] for i in range(len(self.labels))]
        return [rarity_bias(count, max(count, n_candidates)) for count in counts]

    def lost_messages(self, name: str, key: str) -> list[str]:
        """See `GoldReport.lost_messages`."""
        messages = [f"{name}: {note}" for note in self.notes]
        if self.n_unreached:
            messages.append(self._unreached_message(name, key))
        if EXCLUDED in self.losses:
            lost = self.losses[EXCLUDED]
            messages.append(
                f"{name}: up to {lost.total()} of {self.n_gold} gold spans in {key!r} overlap "
                f"others in a way that the settings exclude, and will be missed ({lost}). "
                f"{self.excluded_advice}"
            )
        return messages + super().lost_messages(name, key)

    def _unreached_message(self, name: str, key: str) -> str:
        losses = {r: own for r, own in self.losses.items() if r not in (MISALIGNED, EXCLUDED)}
        of_label = sum((own.of_label for own in losses.values()), Counter[str]())
        reasons = ", ".join(f"{own.total()} {reason}" for reason, own in losses.items())
        unknown = NO_CANDIDATE in losses
        raising = unknown or any(reason.startswith(TOO_LONG) for reason in losses)
        return (
            f"{name}: {self.n_unreached} of {self.n_gold} gold spans in {key!r} are no "
            f"candidates and can never be predicted ({format_counts(of_label)}; the longest "
            f"has {self.longest_unreached} tokens: {shorten(self.unreached_example)!r})"
            f"{'' if unknown else f': {reasons}'}. "
            f"{'Raise max_length, or see' if raising else 'Change that, or see'} "
            "`spacy spans coverage` for what each choice reaches and costs."
        )
