"""Two processes, and a fresh one without network or encoder folder, give what one gives."""

import json
import os
import subprocess
import sys
import warnings

import pytest
from thinc.api import Adam

from spacy_spans.errors import SpansWarning

from ..pipeline import scored
from . import make_examples, make_pipeline, make_texts, save_encoder

pytestmark = pytest.mark.slow

NAMES = [
    "span_enumerator",
    "multispan_tagger",
    "token_pruner",
    "pruned_transformer",
    "transformer",
    "stock",
    "kept_spans",
]


def make_trained(name, folder):
    """Trained for a few steps, and unsure: there is much that could come out otherwise."""
    nlp = make_pipeline(name, folder)
    examples = make_examples(nlp, make_texts(40))
    annotates = [own for own in ("token_pruner", "transformer") if own in nlp.pipe_names]
    nlp.initialize(lambda: examples)
    optimizer = Adam(0.003)
    for _ in range(6):
        nlp.update(examples, sgd=optimizer, annotates=annotates)
    last = nlp.get_pipe(nlp.pipe_names[-1])
    if "threshold" in last.cfg:
        last.cfg["threshold"] = 0.001
    return nlp


def results(docs):
    return [{key: scored(doc, key) for key in sorted(doc.spans)} for doc in docs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def trained(folder):
    """All pipelines by name; the encoder's folder is gone afterwards."""
    (folder / "encoder").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipelines = {name: make_trained(name, save_encoder(folder / "encoder")) for name in NAMES}
    (folder / "encoder").rename(folder / "gone")
    return pipelines


def run(nlp, n_process=1):
    """Batches are always the same, so that sums are taken in the same order."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=SpansWarning)
        return results(nlp.pipe(make_texts(60, seed=1), batch_size=10, n_process=n_process))


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_find_what_one_finds(trained, name):
    one, two = run(trained[name]), run(trained[name], n_process=2)
    assert any(spans for own in one for spans in own.values())
    assert len(one) == len(two) == 60
    for own, other in zip(one, two, strict=True):
        assert own.keys() == other.keys()
        for key in own:
            assert [span[:3] for span in own[key]] == [span[:3] for span in other[key]]
            # A forked process has one thread, which may round otherwise.
            scores = [span[3] for span in other[key]]
            assert [span[3] for span in own[key]] == pytest.approx(scores, abs=1e-6)


PROGRAM = """
import json, sys, warnings
from pathlib import Path
import spacy
from tests.trust.test_processes import run

warnings.simplefilter("ignore")
folders = sorted(Path(sys.argv[1]).iterdir())
print(json.dumps({folder.name: run(spacy.load(folder)) for folder in folders}))
"""


@pytest.fixture(scope="module")
def moved(trained, folder, repository):
    """What pipelines find that were moved, in a fresh process without network."""
    (folder / "pipelines").mkdir()
    for name, nlp in trained.items():
        nlp.to_disk(folder / "pipelines" / name)
    (folder / "pipelines").rename(folder / "other place")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "empty")}
    command = [sys.executable, "-c", PROGRAM, str(folder / "other place")]
    done = subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_that_was_moved_gives_bitwise_the_same(trained, moved, name):
    # JSON has lists for tuples; floats come back as they were.
    assert moved[name] == json.loads(json.dumps(run(trained[name])))
