"""What a conversion did: counts, and the first examples of everything that went wrong."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

N_EXAMPLES = 3


@dataclass
class Cases:
    """How often something happened, with its first examples."""

    count: int = 0
    examples: list[Any] = field(default_factory=list)

    def add(self, example: Any) -> None:
        """Count one more; keep its example when it is among the first."""
        self.count += 1
        if len(self.examples) < N_EXAMPLES:
            self.examples.append(example)

    def merge(self, other: "Cases") -> None:
        """Add the count of other cases, and their examples as far as there is room."""
        self.count += other.count
        self.examples = (self.examples + other.examples)[:N_EXAMPLES]


@dataclass
class FileReport:
    """Counts of one file, or their total.

    Every annotation that was read has one fate:
    `annotations == mentions + duplicates + merged + n_lost`.

    documents (int): Documents written.
    annotations (int): Annotations read.
    mentions (int): Annotations that were kept; a discontinuous one counts once.
    spans (int): Spans written: fragments are counted one by one.
    labels (Counter): Mentions by label.
    discontinuous (int): Mentions of several fragments.
    joined (int): Mentions whose fragments, in tokens, are one stretch.
    moved (int): Mentions whose boundaries are not those of the annotation.
    duplicates (int): Annotations with the offsets and the label of an earlier one.
    merged (int): Annotations that are the same as another only after alignment.
    lost (dict): Annotations that no tokens could be found for, by reason.
    skipped (Counter): Documents left out, by reason.
    ignored (Counter): Lines of the source that hold no spans, by kind.
    repaired (Cases): Tags inside of a span that nothing had started.
    """

    path: str
    documents: int = 0
    annotations: int = 0
    mentions: int = 0
    spans: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    discontinuous: int = 0
    joined: int = 0
    moved: int = 0
    duplicates: int = 0
    merged: int = 0
    lost: dict[str, Cases] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    repaired: Cases = field(default_factory=Cases)

    @property
    def n_lost(self) -> int:
        """Annotations lost for any reason."""
        return sum(cases.count for cases in self.lost.values())

    def lose(self, reason: str, example: dict[str, Any]) -> None:
        """Count an annotation that could not be aligned."""
        self.lost.setdefault(reason, Cases()).add(example)

    def merge(self, other: "FileReport") -> None:
        """Add the counts of another file."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, cases in other.lost.items():
            self.lost.setdefault(reason, Cases()).merge(cases)
        self.repaired.merge(other.repaired)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, counters sorted by name."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        plain = {
            name: dict(sorted(value.items())) if isinstance(value, Counter) else value
            for name, value in counts.items()
        }
        lost = {reason: vars(cases) for reason, cases in sorted(self.lost.items())}
        return {"path": self.path, **plain, "lost": lost, "repaired": vars(self.repaired)}


_COUNTS = (
    "documents",
    "annotations",
    "mentions",
    "spans",
    "labels",
    "discontinuous",
    "joined",
    "moved",
    "duplicates",
    "merged",
    "skipped",
    "ignored",
)


@dataclass
class ConversionReport:
    """A whole conversion.

    format (str): The format that was read.
    guessed (str): Why this format, when it was guessed; "" when it was given.
    files (list): One report a file; for brat, one for each pair of files.
    left_out (list): Files of an input folder that do not look like the format.
    """

    input: str
    output: str
    format: str
    guessed: str
    spans_key: str
    lang: str
    alignment_mode: str
    files: list[FileReport] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def total(self) -> FileReport:
        """The counts of all files together; all zero without files."""
        total = FileReport("total")
        for file in self.files:
            total.merge(file)
        return total

    def to_dict(self) -> dict[str, Any]:
        """As plain data, ready for JSON."""
        plain = {name: value for name, value in vars(self).items() if name != "files"}
        files = [file.to_dict() for file in self.files]
        return {**plain, "files": files, "total": self.total().to_dict()}
