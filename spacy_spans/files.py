"""Write files so that a reader never meets half of one."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spacy_spans.errors import SettingsError


def check_writable(path: str | os.PathLike[str], *, suffix: str = "") -> Path:
    """Check, before any work is done, that a file can be put at a path.

    path (str | PathLike): Where the file is to go.
    suffix (str): The ending its name must have; "" for any.
    RETURNS (Path): The path.

    Raises SettingsError when the ending differs, the path is a folder, or its folder is missing.
    """
    path = Path(path)
    if suffix and path.suffix != suffix:
        raise SettingsError(
            f"The output is {str(path)!r}, expected a name that ends in {suffix!r}: spaCy finds "
            f"no others. Try {str(path.with_suffix(suffix))!r}."
        )
    if path.is_dir():
        raise SettingsError(f"The output {str(path)!r} is a folder, expected a file name.")
    if not path.parent.is_dir():
        raise SettingsError(
            f"The output {str(path)!r} lies in a folder that does not exist. "
            f"Create {str(path.parent)!r} first."
        )
    return path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path` to write to; it takes the place of `path` at the end.

    When the block raises anything, KeyboardInterrupt included, the temporary file is removed and
    whatever stood at `path` stays as it was. A block that writes nothing raises FileNotFoundError.

    path (str | PathLike): The file to create or replace.
    YIELDS (Path): A path in the same folder, so that the last step is one rename.
    """
    # A link is followed: its target is replaced, not the link.
    target = Path(os.path.realpath(path))
    # Hidden, so that spaCy does not read it as data; with the ending that some writers go by.
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(4)}.tmp{target.suffix}")
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Write JSON as UTF-8, whole or not at all.

    path (str | PathLike): The file to create or replace.
    data (Any): Something `json` can serialise. NaN and infinity raise ValueError.
    """
    text = json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf8")
