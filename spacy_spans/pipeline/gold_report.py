"""Count gold in training data, and say what of it cannot be learned."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from spacy_spans.alignment import Annotation

# What `spacy debug data` calls few, for stock components.
FEW_EXAMPLES = 10
# Why gold is lost whatever the component does with it.
MISALIGNED = "with an end inside a token, or without any token"


class Losses:
    """Gold spans lost for one reason: how many of each label, and the first of each.

    first_of_label (dict): Number of its document, counted from 0, and the annotation.
    """

    def __init__(self) -> None:
        self.of_label: Counter[str] = Counter()
        self.first_of_label: dict[str, tuple[int, Annotation]] = {}

    def add(self, doc: int, lost: Annotation) -> None:
        self.of_label[lost.label] += 1
        self.first_of_label.setdefault(lost.label, (doc, lost))

    def total(self) -> int:
        return self.of_label.total()

    def __str__(self) -> str:
        """As "A 3, B 1; e.g. 'text'", with the very first."""
        _, first = next(iter(self.first_of_label.values()))
        return f"{format_counts(self.of_label)}; e.g. {shorten(first.text)!r}"


class GoldReport:
    """Running counts over examples.

    losses (dict): By reason, in the order they were met.
    advice (str): What helps against ends inside of tokens.
    """

    advice = "Convert with `spacy spans convert --alignment-mode expand`"

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = labels
        self.n_docs = 0
        self.n_docs_without_key = 0
        self.n_tokens = 0
        self.n_gold = 0
        self.gold_of_label: Counter[int] = Counter()
        self.losses: dict[str, Losses] = defaultdict(Losses)

    def add_gold(
        self, n_tokens: int, labels: Iterable[int], misaligned: Iterable[Annotation]
    ) -> None:
        """Count one document, before what else is lost of it.

        labels (Iterable[int]): Label indices of its gold that is not misaligned.
        """
        self.n_docs += 1
        self.n_tokens += n_tokens
        before = self.gold_of_label.total()
        self.gold_of_label.update(labels)
        self.n_gold += self.gold_of_label.total() - before
        for lost in misaligned:
            self.n_gold += 1
            self.lose(MISALIGNED, lost)

    def lose(self, reason: str, lost: Annotation) -> None:
        """Count a span of the document that was counted last as lost."""
        self.losses[reason].add(self.n_docs - 1, lost)

    def add_without_key(self) -> None:
        """Count a document that is not annotated under the key, hence with no gold to count."""
        self.n_docs += 1
        self.n_docs_without_key += 1

    @property
    def n_misaligned(self) -> int:
        return self.losses[MISALIGNED].total() if MISALIGNED in self.losses else 0

    @property
    def n_lost(self) -> int:
        """Gold spans that cannot be given, for whatever reason; each has one."""
        return sum(losses.total() for losses in self.losses.values())

    def messages(self, name: str, key: str) -> list[str]:
        """One sentence or two for each kind of loss; none when nothing is lost."""
        return self.lost_messages(name, key) + self._data_messages(name, key)

    def lost_messages(self, name: str, key: str) -> list[str]:
        """Of gold that was met and is lost."""
        if not self.n_misaligned:
            return []
        return [
            f"{name}: {self.n_misaligned} of {self.n_gold} gold spans in {key!r} begin or end "
            f"inside a token, or hold none, and are not learned ({self.losses[MISALIGNED]}). "
            f"{self.advice}, or convert the data with this pipeline's tokenizer."
        ]

    def _data_messages(self, name: str, key: str) -> list[str]:
        """Of gold that is not there."""
        messages = []
        if self.n_docs_without_key:
            messages.append(
                f"{name}: {self.n_docs_without_key} of {self.n_docs} training documents have no "
                f"doc.spans[{key!r}]; nothing is learned from them. "
                "Those that are annotated and have no span need an empty group."
            )
        unseen = [label for i, label in enumerate(self.labels) if not self.gold_of_label[i]]
        if unseen:
            messages.append(
                f"{name}: no training example for {', '.join(unseen)} in {key!r}. They will not "
                "be predicted; remove them from the labels or add data."
            )
        return messages


def format_counts(counts: dict[str, int]) -> str:
    """As "A 3, B 1", by name."""
    return ", ".join(f"{label} {n}" for label, n in sorted(counts.items()))


def shorten(text: str, width: int = 60) -> str:
    """At most so many characters, the last an ellipsis where some are left out."""
    return text if len(text) <= width else text[: width - 1] + "…"


def amount(n: int, noun: str) -> str:
    """As "1 span", "2 spans" or "1,000 spans"."""
    return f"{n:,} {noun}" + "s" * (n != 1)
