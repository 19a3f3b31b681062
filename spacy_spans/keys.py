"""The rule that names of span groups keep."""

from spacy_spans.errors import SettingsError


def check_spans_key(key: str) -> None:
    """Check that a key of `doc.spans` works everywhere in spaCy, its config files included.

    key (str): The key.
    RAISES (SettingsError): It is empty, or has "=", ":" or a line break.
    """
    # str.splitlines knows every line break.
    if not key or len(key.splitlines()) != 1 or key.splitlines() != [key] or set("=:") & set(key):
        raise SettingsError(
            f"Got spans_key = {key!r}; expected a name that is not empty and has no '=', ':' or "
            "line break, since spaCy writes it into config files as part of an option's name"
        )
