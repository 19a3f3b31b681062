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


@pytest.fixture(params=NAMES)
def trained(request, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (tmp_path / "encoder").mkdir()
        yield make_trained(request.param, save_encoder(tmp_path / "encoder"))


def test_two_processes_find_what_one_finds(trained):
    texts = make_texts(60, seed=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=SpansWarning)
        # Batches are the same, so that sums are taken in the same order.
        one = results(trained.pipe(texts, batch_size=10))
        two = results(trained.pipe(texts, batch_size=10, n_process=2))
    assert any(spans for own in one for spans in own.values())
    assert len(one) == len(two) == len(texts)
    for own, other in zip(one, two, strict=True):
        assert own.keys() == other.keys()
        for key in own:
            assert [span[:3] for span in own[key]] == [span[:3] for span in other[key]]
            # A forked process has one thread, which may round otherwise.
            scores = [span[3] for span in other[key]]
            assert [span[3] for span in own[key]] == pytest.approx(scores, abs=1e-6)


LOAD = """
import json, sys, warnings
import spacy
from tests.pipeline import scored

warnings.simplefilter("ignore")
nlp = spacy.load(sys.argv[1])
docs = list(nlp.pipe(json.load(open(sys.argv[2], encoding="utf8")), batch_size=10))
print(json.dumps([{key: scored(doc, key) for key in sorted(doc.spans)} for doc in docs]))
"""


def test_a_pipeline_that_was_moved_gives_bitwise_the_same(trained, repository, tmp_path):
    texts = make_texts(60, seed=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=SpansWarning)
        expected = results(trained.pipe(texts, batch_size=10))
    trained.to_disk(tmp_path / "pipeline")
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "pipeline").rename(tmp_path / "elsewhere" / "other name")
    (tmp_path / "encoder").rename(tmp_path / "gone")
    (tmp_path / "texts.json").write_text(json.dumps(texts), encoding="utf8")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "empty")}
    command = [sys.executable, "-c", LOAD, str(moved), str(tmp_path / "texts.json")]
    done = subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # JSON has lists for tuples; floats come back as they were.
    assert json.loads(done.stdout.splitlines()[-1]) == json.loads(json.dumps(expected))
