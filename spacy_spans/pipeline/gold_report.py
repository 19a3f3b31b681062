"""Count gold in training data, and say what of it cannot be learned."""

from collections import Counter
from collections.abc import Iterable, Sequence


class GoldReport:
    """Running counts over examples. Keeps one example of each loss, as text.

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
        self.misaligned_of_label: Counter[str] = Counter()
        self.misaligned_example = ""

    def add_gold(
        self, n_tokens: int, labels: Iterable[int], misaligned: Iterable[tuple[str, str]]
    ) -> None:
        """Count one document: label indices of its gold, text and label of what is misaligned."""
        self.n_docs += 1
        self.n_tokens += n_tokens
        before = self.gold_of_label.total()
        self.gold_of_label.update(labels)
        self.n_gold += self.gold_of_label.total() - before
        for text, label in misaligned:
            self.n_gold += 1
            self.misaligned_of_label[label] += 1
            self.misaligned_example = self.misaligned_example or text

    def add_without_key(self) -> None:
        """Count a document that is not annotated under the key, hence with no gold to count."""
        self.n_docs += 1
        self.n_docs_without_key += 1

    @property
    def n_misaligned(self) -> int:
        return self.misaligned_of_label.total()

    def gold_messages(self, name: str, key: str) -> list[str]:
        """What is lost whatever the component does with the gold."""
        messages = []
        if self.n_docs_without_key:
            messages.append(
                f"{name}: {self.n_docs_without_key} of {self.n_docs} training documents have no "
                f"doc.spans[{key!r}]; nothing is learned from them. "
                "Those that are annotated and have no span need an empty group."
            )
        if self.misaligned_of_label:
            messages.append(
                f"{name}: {self.n_misaligned} of {self.n_gold} gold spans in {key!r} begin or end "
                "inside a token, or hold none, and are not learned "
                f"({format_counts(self.misaligned_of_label)}; e.g. "
                f"{shorten(self.misaligned_example)!r}). {self.advice}, or convert the data with "
                "this pipeline's tokenizer."
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
