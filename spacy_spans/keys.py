"""The rule that keys of `doc.spans` keep, and how names found in data, and scores, are
printed.
"""

from typing import Final

from spacy_spans.errors import SettingsError

# In doc.user_data, by spans key: original characters of annotations that tokens cannot hold.
CHARACTERS_KEY: Final = "spacy_spans.characters"

# Among the keys that gates and pruners learn from: the entities that `ner` learns, no group.
ENTITIES: Final = "doc.ents"


def check_spans_key(key: str) -> None:
    """Check that a key of `doc.spans` works everywhere in spaCy, its config files included.

    key (str): The key.
    RAISES (SettingsError): It is empty, or has "=", ":", "$" or a line break.
    """
    if key.splitlines() != [key] or set("=:$") & set(key):
        raise SettingsError(
            f"Got spans_key = {key!r}; expected a name that is not empty and has no '=', ':', '$' "
            "or line break, since spaCy writes it into config files as part of an option's name"
        )


def printable(text: str, keep: str = "") -> str:
    """Text from files for a terminal: control characters, which could steer it, are escaped.

    text (str): Such as a label or a file name.
    keep (str): Characters to leave as they are.
    RETURNS (str): The text with anything that is not printable written as in Python: "\\x1b".
    """
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def percent(score: float | None) -> str:
    """A score from 0 to 1 in percent, with one decimal; "-" for none."""
    return "-" if score is None else f"{100 * score:.1f}"
