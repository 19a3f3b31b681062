"""Count which gold spans the candidates reach, and say what is lost."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from spacy.training import Example

from spacy_spans.alignment import GoldSpans
from spacy_spans.kernels.decoding import select_spans
from spacy_spans.kernels.losses import rarity_bias
from spacy_spans.kernels.targets import find_spans
from spacy_spans.pipeline.gold_report import GoldReport, format_counts, shorten
from spacy_spans.types import IntArray


class Reach(GoldReport):
    """Running counts over examples. Keeps one example of each loss, as text."""

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__(labels)
        self.n_candidates = 0
        self.n_unreached = 0
        self.unreached_of_label: Counter[int] = Counter()
        self.longest_unreached = 0
        self.unreached_example = ""
        self.notes: list[str] = []
        self.n_excluded = 0

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
        self.unreached_of_label.update(gold.labels[missing].tolist())
        for start, end in gold.offsets[missing].tolist():
            if end - start > self.longest_unreached:
                self.longest_unreached = end - start
                self.unreached_example = doc[start:end].text

    def add_excluded(self, gold: GoldSpans, *, softmax: bool, overlap: str) -> None:
        """Count gold spans of a document that the settings cannot give together with the others.

        softmax (bool): Whether a span has one label. overlap (str): The policy.
        """
        offsets = np.unique(gold.offsets, axis=0) if softmax else gold.offsets
        equal = np.ones(len(offsets), dtype="f")
        self.n_excluded += len(gold.offsets) - len(select_spans(offsets, equal, overlap))

    def forget_candidates(self) -> None:
        """Drop what was counted of candidates: those of some documents say nothing of the rest."""
        self.n_candidates = self.n_unreached = self.longest_unreached = 0
        self.unreached_of_label.clear()
        self.unreached_example = ""

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

    def messages(self, name: str, key: str) -> list[str]:
        """One sentence or two for each kind of loss; none when nothing is lost."""
        messages = [f"{name}: {note}" for note in self.notes]
        if self.n_unreached:
            by_label = {self.labels[i]: n for i, n in sorted(self.unreached_of_label.items())}
            messages.append(
                f"{name}: {self.n_unreached} of {self.n_gold} gold spans in {key!r} are no "
                f"candidates and can never be predicted ({format_counts(by_label)}; the longest "
                f"has {self.longest_unreached} tokens: {shorten(self.unreached_example)!r}). Raise "
                "max_length, or see `spacy spans coverage` for what each choice reaches and costs."
            )
        if self.n_excluded:
            messages.append(
                f"{name}: up to {self.n_excluded} of {self.n_gold} gold spans in {key!r} overlap "
                "others in a way that the settings exclude, and will be missed. "
                'loss = "softmax" gives a span one label, overlap = "flat" keeps no two that share '
                'a token, "nested" none that cross: use loss = "sigmoid" and overlap = "any" to '
                "predict all of them."
            )
        return messages + self.gold_messages(name, key)
