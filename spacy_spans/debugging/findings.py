"""What checks find, and how it is shown."""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Level: TypeAlias = Literal["error", "warning", "info", "good"]


@dataclass
class Section:
    """The findings of one family of checks, in order.

    table (list): Rows of text, the first of them the header; empty for none.
    """

    title: str
    findings: list[tuple[Level, str]] = field(default_factory=list)
    table: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, level: Level, message: str) -> None:
        """Add one finding. An error is what would make training silently fail."""
        self.findings.append((level, message))

    def as_json(self) -> dict[str, Any]:
        """Plain values: "title", "findings" and, where there is one, "table"."""
        found: dict[str, Any] = {
            "title": self.title,
            "findings": [{"level": level, "message": message} for level, message in self.findings],
        }
        return found | ({"table": [list(row) for row in self.table]} if self.table else {})


def count(sections: list[Section], level: Level) -> int:
    """How many findings of a level there are."""
    return sum(own == level for section in sections for own, _ in section.findings)
