"""Fetch the files of one dataset, as listed under `assets` in project.yml, and verify them.

`weasel assets` fetches all datasets, and goes on when a checksum differs; this fetches one, takes
a folder in place of the web, and stops.
"""

import hashlib
import shutil
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.request import urlopen

import srsly
import typer

from spacy_spans.cli._shared import exit_on_error
from spacy_spans.errors import DataError, SettingsError
from spacy_spans.files import replacing

BASE_VARIABLE = "${vars.download_base}"
FOLDER = "downloads"
TIMEOUT = 60  # seconds without a byte


def main(
    dataset: Annotated[str, typer.Argument(help="Folder under downloads/ in the list of assets")],
    base: Annotated[str, typer.Option(help="Web address, or a folder that stands in for it")],
    project: Annotated[Path, typer.Option(help="Where the list of assets is")] = Path(
        "project.yml"
    ),
) -> None:
    """Fetch one dataset and verify its checksums. Files that are there and right stay."""
    with exit_on_error("Cannot download") as msg:
        for asset in list_assets(project, dataset):
            target = project.parent / asset["dest"]
            if target.exists() and checksum(target) == asset["checksum"]:
                msg.good(f"{asset['dest']} is there, with the right checksum")
                continue
            source = fetch(asset, base, target)
            msg.good(f"{asset['dest']} from {source}, with the right checksum")


def list_assets(project: Path, dataset: str) -> list[dict[str, str]]:
    """The assets of one dataset.

    project (Path): A project.yml.
    dataset (str): Name of a folder under downloads/.
    RETURNS (list): Each with "dest", "url" and "checksum"; at least one.
    RAISES (SettingsError): There is no such dataset, or an asset without checksum.
    """
    assets = [
        (PurePosixPath(asset["dest"]).parts, asset)
        for asset in srsly.read_yaml(project).get("assets", [])
    ]
    names = sorted({parts[1] for parts, _ in assets if parts[0] == FOLDER})
    chosen = [asset for parts, asset in assets if parts[:2] == (FOLDER, dataset)]
    if not chosen:
        raise SettingsError(f"No dataset {dataset!r} in {project}. Use one of {', '.join(names)}.")
    for asset in chosen:
        if not asset.get("checksum"):
            raise SettingsError(f"{asset['dest']} has no checksum in {project}. Add its MD5 sum.")
    return chosen


def fetch(asset: dict[str, str], base: str, target: Path) -> str:
    """Put one file in its place, if its checksum is right; else leave the place as it was.

    asset (dict): "dest", "url" and "checksum".
    base (str): What to put in the place of the variable in "url", or a folder that has the file
        either as DATASET/FILE or under the path it has on the web.
    target (Path): Where the file goes.
    RETURNS (str): Where it was found.
    RAISES (DataError): The file is not there or does not arrive, or it is another one: names it,
        its checksum and the expected one.
    """
    source = locate(asset, base)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as temporary:
        if isinstance(source, Path):
            shutil.copyfile(source, temporary)
        else:
            try:
                with urlopen(source, timeout=TIMEOUT) as response, temporary.open("wb") as file:
                    shutil.copyfileobj(response, file)
            except (OSError, HTTPException) as error:
                raise DataError(
                    f"{source} did not arrive ({error}). Look at the connection, or get the "
                    "files another way and pass their folder as vars.download_base"
                ) from error
        found = checksum(temporary)
        if found != asset["checksum"]:
            raise DataError(
                f"{source} has checksum {found}, expected {asset['checksum']}: it is not the "
                "pinned version, or arrived damaged. Try again, or look at the file"
            )
    return str(source)


def locate(asset: dict[str, str], base: str) -> Path | str:
    """Address of an asset: a path when the base is a folder, else a URL."""
    if "://" in base:
        return asset["url"].replace(BASE_VARIABLE, base.rstrip("/"))
    dest = PurePosixPath(asset["dest"])
    # Without the split between: downloads/DATASET/train/FILE.
    places = [Path(base, dest.parts[1], dest.name), Path(asset["url"].replace(BASE_VARIABLE, base))]
    for place in places:
        if place.is_file():
            return place
    raise DataError(
        f"{dest.name} is not in {base}: looked for {places[0]} and {places[1]}. "
        "Pass a folder that has it, or a web address, as vars.download_base"
    )


def checksum(path: Path) -> str:
    """MD5 of a file, which is what weasel checks: against damage, not against malice."""
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


if __name__ == "__main__":
    typer.run(main)
