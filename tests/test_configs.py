"""Training configs: every file fills, resolves, and trains with the documented overrides."""

import re

import pytest
import spacy
import srsly
from spacy.cli.train import train
from spacy.schemas import ConfigSchemaTraining
from spacy.tokens import DocBin, SpanGroup
from spacy.util import load_config, load_model_from_config, registry

from . import conftest

CONFIGS = sorted((conftest.REPOSITORY / "configs").glob("*.cfg"))
COMPONENTS = {"span_enumerator", "multispan_tagger"}
# Those that need a Hugging Face encoder take seconds to minutes.
WITH_ENCODER = [path for path in CONFIGS if "paths.encoder" in path.read_text(encoding="utf8")]
PARAMETERS = [
    pytest.param(
        path,
        id=path.stem,
        marks=[pytest.mark.slow] if path in WITH_ENCODER else [],
    )
    for path in CONFIGS
]


@pytest.fixture(scope="module")
def data(repository, tmp_path_factory):
    """Four documents of the demo corpus under the key "skills", cut to their first sentences."""
    nlp = spacy.blank("en")
    docs = []
    for line in list(srsly.read_jsonl(repository / "assets" / "demo" / "dev.jsonl"))[:4]:
        doc = nlp(line["text"])
        spans = [
            doc.char_span(span["start"], span["end"], label=span["label"], alignment_mode="expand")
            for span in line["spans"]
        ]
        doc.spans["skills"] = SpanGroup(doc, name="skills", spans=spans)
        docs.append(doc)
    path = tmp_path_factory.mktemp("data") / "demo.spacy"
    DocBin(docs=docs).to_disk(path)
    return path


@pytest.fixture
def overrides(request, data, monkeypatch):
    """What a user gives on the command line, as the comments at the top of the files say."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    values = {
        "paths.train": str(data),
        "paths.dev": str(data),
        "vars.spans_key": "skills",
        "vars.max_length": 30,
        "vars.max_epochs": 1,
    }
    if request.node.callspec.params["config"] in WITH_ENCODER:
        values["paths.encoder"] = str(request.getfixturevalue("encoder"))
    if request.node.callspec.params["config"].stem.startswith("pruned"):
        # More than 40 % of these words are in spans: pruning would be switched off, with a warning.
        values["components.transformer.max_span_share"] = None
    return values


def test_there_is_a_config_with_and_without_an_encoder():
    assert {path.name for path in CONFIGS} >= {
        f"{component}_{encoder}.cfg"
        for component in ("enumerator", "tagger")
        for encoder in ("cpu", "trf")
    } | {"pruned_trf.cfg", "pruner_trf.cfg"}
    assert 0 < len(WITH_ENCODER) < len(CONFIGS)


@pytest.mark.parametrize("config", PARAMETERS)
def test_configs_fill_and_resolve(config, overrides):
    filled = load_config(config, overrides=overrides)
    nlp = load_model_from_config(filled, auto_fill=True)
    resolved = nlp.config.interpolate()
    assert registry.resolve(resolved["training"], schema=ConfigSchemaTraining)
    assert resolved["vars"]["spans_key"] == "skills"
    assert resolved["training"]["max_epochs"] == 1
    (name,) = set(nlp.pipe_names) & COMPONENTS
    component = resolved["components"][name]
    assert component["spans_key"] == nlp.get_pipe(name).key == "skills"
    assert component.get("candidates", component)["max_length"] == 30


@pytest.mark.parametrize("config", PARAMETERS)
def test_configs_train(config, overrides, tmp_path, capsys):
    limits = {"training.max_steps": 2, "training.eval_frequency": 1, "vars.max_epochs": 2}
    train(config, tmp_path / "out", overrides={**overrides, **limits})
    nlp = spacy.load(tmp_path / "out" / "model-last")
    assert "SPANS_S" in capsys.readouterr().out
    assert nlp.config["training"]["score_weights"]["spans_skills_f"] == 1.0
    (name,) = set(nlp.pipe_names) & COMPONENTS
    assert set(nlp.meta["performance"]) >= {"spans_skills_f", f"{name}_loss"}
    assert nlp.meta["labels"][name] == ["DUTY", "EXPERIENCE", "KNOWLEDGE", "SKILL"]
    doc = nlp("You know your cleaning chemicals.")
    assert len(doc.spans["skills"].attrs["scores"]) == len(doc.spans["skills"])
    assert ("kept_tokens" in doc.spans) == config.stem.startswith("prune")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_comments_say_how_to_run_and_name_only_settings_there_are(config):
    text = config.read_text(encoding="utf8")
    head = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    assert f"python -m spacy train configs/{config.name}" in head
    parsed = load_config(config, interpolate=False)
    named = re.findall(r"--((?:paths|vars)\.\w+)", head)
    assert len(named) >= 5
    for name in named:
        section, option = name.split(".")
        assert option in parsed[section], name
