"""Write files so that a reader never meets half of one, and list those of a folder."""

import ctypes
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from spacy_spans.errors import DataError, SettingsError

PathLike = str | os.PathLike[str]


def check_writable(
    path: PathLike,
    *,
    suffix: str = "",
    inputs: Iterable[PathLike] = (),
    others: Iterable[PathLike | None] = (),
) -> Path:
    """Check, before any work is done, that a file can be put at a path.

    path (str | PathLike): Where the file is to go.
    suffix (str): The ending its name must have; "" for any.
    inputs (Iterable): Files and folders that are read: the path may neither be one of them nor
        lie inside of one.
    others (Iterable): Other files that are written; None stands for none.
    RETURNS (Path): The path.

    Raises SettingsError when the ending differs, the path is a folder, a device or a pipe, its
    folder is missing, or the file is an input or another output.
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
    if path.exists() and not path.is_file():
        raise SettingsError(
            f"The output {str(path)!r} is a device or a pipe, expected an ordinary file: it would "
            "be replaced by one. Choose another name."
        )
    for source in map(Path, inputs):
        if _is_same(path, source):
            raise SettingsError(
                f"The output {str(path)!r} is also the input, which it would replace. Choose "
                "another name."
            )
        if source.is_dir() and Path(os.path.realpath(source)) in _real_parents(path):
            raise SettingsError(
                f"The output {str(path)!r} lies inside of the input {str(source)!r}, expected a "
                "place outside: there it might replace a part, or be read as one later. Choose "
                "another folder."
            )
    for other in others:
        if other is not None and _is_same(path, other):
            raise SettingsError(
                f"The outputs {str(path)!r} and {str(other)!r} are the same file, expected two. "
                "Choose another name for one."
            )
    return path


def _is_same(first: PathLike, second: PathLike) -> bool:
    """One file under one name, also one that is yet to come; or under two names."""
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


def _real_parents(path: PathLike) -> Iterable[Path]:
    return Path(os.path.realpath(path)).parents


def list_visible(folder: Path) -> list[Path]:
    """List the files in a folder and the folders in it, sorted.

    folder (Path): The folder.
    RETURNS (list): Paths of files. Left out is what is hidden or lies in a hidden folder, as
        spaCy does: there temporary files are.
    RAISES (DataError): A folder cannot be read.
    """

    def stop(error: OSError) -> NoReturn:
        raise DataError(
            f"{error.filename}: the folder cannot be read ({error.strerror}), expected all of "
            f"{folder} to be readable. Change its permissions, or move it elsewhere."
        ) from error

    found: list[Path] = []
    # Not Path.rglob: it passes over folders that it may not read.
    for parent, folders, files in os.walk(folder, onerror=stop):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(parent, name) for name in files if not name.startswith(".")]
    return sorted(path for path in found if path.is_file())


@contextmanager
def replacing(path: PathLike) -> Iterator[Path]:
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


def check_folder_writable(path: PathLike, *, inputs: Iterable[PathLike] = ()) -> Path:
    """Check, before any work is done, that `replacing_folder` may put a pipeline at a path.

    inputs (Iterable): Files and folders that are read: the path may neither be one of them, nor
        lie inside of one, nor hold one.

    Raises SettingsError when it may not, or when a folder is there that is no pipeline.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise SettingsError(
            f"The output {str(path)!r} lies in a folder that does not exist. "
            f"Create {str(path.parent)!r} first."
        )
    if path.exists() and not path.is_dir():
        raise SettingsError(f"The output {str(path)!r} is a file, expected a folder.")
    if path.is_dir() and any(path.iterdir()) and not (path / "config.cfg").is_file():
        raise SettingsError(
            f"The output {str(path)!r} is a folder with other things than a pipeline, which would "
            "be lost. Choose another folder, or empty this one."
        )
    real = Path(os.path.realpath(path))
    for source in map(Path, inputs):
        own = Path(os.path.realpath(source))
        if own == real or own in real.parents or real in own.parents:
            raise SettingsError(
                f"The output {str(path)!r} is, holds or lies inside of the input {str(source)!r}, "
                "which it would replace or change. Choose another folder."
            )
    return path


@contextmanager
def replacing_folder(path: PathLike) -> Iterator[Path]:
    """Give a new folder beside `path` to write to; it takes the place of `path` at the end.

    When the block raises anything, the new folder is removed and `path` stays as it was. On Linux
    two folders are exchanged in one step; elsewhere there is a moment in which the old one lies
    beside `path`, under a hidden name, and nothing in its place.

    path (str | PathLike): The folder to create or replace.
    YIELDS (Path): An empty folder.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        if not target.exists():
            os.rename(temporary, target)
        elif not _exchange(temporary, target):
            old = temporary.with_suffix(".old")
            os.rename(target, old)
            try:
                os.rename(temporary, target)
            except BaseException:
                os.rename(old, target)
                raise
            os.rename(old, temporary)
    finally:
        # What stood there before, or what did not get ready.
        shutil.rmtree(temporary, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Let two folders change places in one step. RETURNS (bool): False where there is no way to."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    done: int = rename(here, os.fsencode(first), here, os.fsencode(second), exchange)
    return done == 0


def write_json(path: PathLike, data: Any) -> None:
    """Write JSON as UTF-8, whole or not at all.

    path (str | PathLike): The file to create or replace.
    data (Any): Something `json` can serialise. NaN and infinity raise ValueError.
    """
    text = json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False)
    with replacing(path) as temporary:
        # Names of files may hold halves of surrogate pairs; JSON has the same escapes for them.
        temporary.write_text(text + "\n", encoding="utf8", errors="backslashreplace")
