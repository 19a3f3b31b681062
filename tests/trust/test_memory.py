"""Documents streamed through every component: memory stays flat, and so do strings in zones.

20,000 documents for the two components that write spans on their own, 5,000 for the others, whose
encoder and zones are the same code and take longer.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from . import save_encoder

pytestmark = pytest.mark.slow

N_DOCS = {
    "span_enumerator": 20_000,
    "multispan_tagger": 20_000,
    "token_pruner": 5_000,
    "pruned_transformer": 5_000,
}
# A process of its own: what other tests leave behind does not count. Half of the documents are in a
# memory zone and have words that no other document has.
SCRIPT = """
import json, random, sys, warnings
from pathlib import Path
from tests.trust import make_examples, make_pipeline, make_texts

PAGE = 4096
name, folder, n_docs = sys.argv[1], sys.argv[2], int(sys.argv[3])
warnings.simplefilter("ignore")
nlp = make_pipeline(name, Path(folder))
examples = make_examples(nlp, make_texts(30))
nlp.initialize(lambda: examples)
nlp.update(examples)
if "threshold" in nlp.get_pipe(nlp.pipe_names[-1]).cfg:
    # So that many spans are made and given back.
    nlp.get_pipe(nlp.pipe_names[-1]).cfg["threshold"] = 0.0


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def count_lexemes():
    # len(vocab) counts those that a zone has given back.
    return sum(1 for _ in nlp.vocab)


def run(words, n):
    draw = random.Random(0)
    texts = (" ".join(draw.choices(words, k=6)) for _ in range(n))
    docs = nlp.pipe(texts, batch_size=250)
    return sum(len(group) for doc in docs for group in doc.spans.values())


same = [f"word{i}" for i in range(50)]
# A fifth to warm up: what is held once is held then.
n_spans = run(same, n_docs // 10)
with nlp.memory_zone():
    run([f"first{i}" for i in range(2000)], n_docs // 10)
before, strings, lexemes = resident(), len(nlp.vocab.strings), count_lexemes()
for number in range(4):
    run(same, n_docs // 10)
    with nlp.memory_zone():
        run([f"new{number}x{i}" for i in range(2000)], n_docs // 10)
words = len(nlp.vocab.strings), count_lexemes()
print(json.dumps([before, resident(), [strings, lexemes], words, n_spans]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")
@pytest.mark.parametrize("name", N_DOCS)
def test_memory_and_strings_stay_as_they_are(name, repository, tmp_path):
    folder = save_encoder(tmp_path) if name == "pruned_transformer" else tmp_path
    command = [sys.executable, "-c", SCRIPT, name, str(folder), str(N_DOCS[name])]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, after, words_before, words_after, n_spans = json.loads(done.stdout.splitlines()[-1])
    # Not a stream of documents that nothing is found in.
    assert n_spans > 0
    assert words_after == words_before
    assert after <= 1.05 * before, f"{before / 2**20:.0f} MiB grew to {after / 2**20:.0f} MiB"
