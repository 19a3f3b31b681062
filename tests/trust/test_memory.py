"""20,000 documents streamed through every component: memory stays flat, and so do strings in zones.

A process of its own, forked for each component, so that what other tests leave behind does not
count. The documents are short: a stream is to be long.
"""

import json
import random
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from ..forked import fork, join
from . import make_examples, make_pipeline, make_texts, save_encoder

pytestmark = pytest.mark.slow

NAMES = ["span_enumerator", "multispan_tagger", "token_pruner", "pruned_transformer"]
# Half of each round is in a memory zone, and has words that no other document has.
N_DOCS, N_ROUNDS = 20_000, 5
SAME = [f"word{i}" for i in range(50)]
PROGRAM = "import sys; from tests.trust.test_memory import measure_all; measure_all(sys.argv[1])"


def measure_all(folder):
    """Write a line of JSON for each component to standard output."""
    warnings.simplefilter("ignore")
    for name in NAMES:
        assert join(fork(lambda name=name: measure(name, Path(folder)))) == 0, name


def measure(name, folder):
    nlp = make_pipeline(name, folder)
    examples = make_examples(nlp, make_texts(30))
    nlp.initialize(lambda: examples)
    nlp.update(examples)
    if "threshold" in nlp.get_pipe(nlp.pipe_names[-1]).cfg:
        # So that many spans are made and given back.
        nlp.get_pipe(nlp.pipe_names[-1]).cfg["threshold"] = 0.0
    found = []
    for number in range(N_ROUNDS):
        n_spans = stream(nlp, SAME)
        with nlp.memory_zone():
            n_spans += stream(nlp, [f"new{number}x{i}" for i in range(2000)])
        # len(vocab) counts lexemes that a zone has given back.
        n_lexemes = sum(1 for _ in nlp.vocab)
        found.append([anonymous_memory(), [len(nlp.vocab.strings), n_lexemes], n_spans])
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def stream(nlp, words):
    """Run on documents of some words. RETURNS (int): The number of spans that were found."""
    draw = random.Random(0)
    texts = (" ".join(draw.choices(words, k=6)) for _ in range(N_DOCS // N_ROUNDS // 2))
    docs = nlp.pipe(texts, batch_size=250)
    return sum(len(group) for doc in docs for group in doc.spans.values())


def anonymous_memory():
    """KiB that this process holds, without what is only mapped from files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


@pytest.fixture(scope="module")
def measured(repository, tmp_path_factory):
    """What each round of a component left: KiB, numbers of strings and lexemes, and its spans."""
    folder = save_encoder(tmp_path_factory.mktemp("encoder"))
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(NAMES, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
@pytest.mark.parametrize("name", NAMES)
def test_memory_and_strings_stay_as_they_are(measured, name):
    # The first round warms up: what is held once is held then.
    (before, words_before, n_spans), *_, (after, words_after, _) = measured[name]
    # Not a stream of documents that nothing is found in.
    assert n_spans > 0
    assert words_after == words_before
    # Two per cent are 450 bytes a document, less than the smallest Doc.
    assert after <= 1.02 * before, f"{before >> 10} MiB grew to {after >> 10} MiB"
