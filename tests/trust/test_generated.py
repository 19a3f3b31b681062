"""Two thousand odd documents through every component: no crash, and no span lost in silence."""

import json
import math
import re
import unicodedata
import warnings
from functools import cache

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab
from srsly import msgpack_decoders, msgpack_encoders
from thinc.api import Adam

from spacy_spans.errors import SpansWarning
from spacy_spans.pipeline.tagging import encode, make_batch

from .. import reference_tags
from ..pipeline import scored
from . import (
    LABELS,
    MAX_PIECES,
    N_DENSE_SPANS,
    gold_of,
    make_dense_example,
    make_examples,
    make_pipeline,
    make_texts,
    save_encoder,
)

pytestmark = pytest.mark.slow

N_DOCS = 2000
# Documents that are trained on, and that a threshold is chosen by; the dense one comes on top.
N_LEARNED, N_SAMPLE_DOCS = 320, 200
# Of each component: what it writes, and labels it may give.
KEYS = {
    "span_enumerator": {"sc": LABELS},
    "multispan_tagger": {"sc": LABELS},
    "token_pruner": {"kept_tokens": ("",)},
    "pruned_transformer": {"sc": LABELS, "kept_tokens": ("",)},
}
# Sums of other lengths are taken in another order when a batch has other sizes, so scores of one
# document alone and in a batch differ by rounding: the matrix library decides. Spans this close to
# a threshold may come and go.
ROUNDING = 1e-5


class Trained:
    """A component after a training on all documents, with all that was said meanwhile."""

    def __init__(self, name, folder):
        self.name = name
        self.nlp = make_pipeline(name, folder)
        self.texts = make_texts(N_DOCS)
        self.examples = make_examples(self.nlp, self.texts)
        self.examples.append(make_dense_example(self.nlp))
        self.texts.append(self.examples[-1].text)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.nlp.initialize(lambda: self.examples)
            self.losses = self._train()
            self.threshold, self.n_sample = self._lower_threshold()
            self.docs = list(self.nlp.pipe(self.texts, batch_size=64))
        self.said = [str(own.message) for own in said if own.category is SpansWarning]
        self.other = [str(own.message) for own in said if own.category is not SpansWarning]

    def _train(self):
        """A few steps on documents of every kind: that it goes, not what it learns."""
        optimizer = Adam(0.01)
        for first in [*range(0, N_LEARNED, 64)] * 4:
            losses = self.nlp.update(self.examples[first : first + 64], sgd=optimizer)
        return self.nlp.update(self.examples[-1:], sgd=optimizer, losses=losses)

    def _lower_threshold(self):
        """To where hundreds of spans pass: gold is random, so nothing is likely.

        RETURNS (tuple): The threshold, and the number of spans that pass in the first documents.
        """
        if self.name == "token_pruner":
            return 0.5, 0
        pipe = self.nlp.get_pipe(self.nlp.pipe_names[-1])
        pipe.cfg["threshold"] = 0.0
        docs = self.nlp.pipe(self.texts[:N_SAMPLE_DOCS], batch_size=64)
        scores = [score for doc in docs for score in doc.spans["sc"].attrs["scores"]]
        n_sample = min(len(scores), 1000)
        pipe.cfg["threshold"] = float(np.sort(scores)[-n_sample])
        return pipe.cfg["threshold"], n_sample

    def reported(self, pattern):
        """The numbers of the one message with a pattern; zeros where there is none."""
        found = [match.groups() for said in self.said if (match := re.search(pattern, said))]
        assert len(found) <= 1, found
        return tuple(map(int, found[0])) if found else (0,) * re.compile(pattern).groups


@pytest.fixture(scope="module", params=KEYS)
def trained(request, tmp_path_factory):
    folder = None
    if request.param == "pruned_transformer":
        folder = save_encoder(tmp_path_factory.mktemp("encoder"))
    return Trained(request.param, folder)


@pytest.fixture
def learns_spans(trained):
    if trained.name == "token_pruner":
        pytest.skip("it learns tokens")
    return trained


def test_documents_are_of_every_kind():
    nlp = spacy.blank("en")
    docs = [nlp(text) for text in make_texts(N_DOCS)]
    tokens = [token.text for doc in docs for token in doc]
    kinds = {
        "no token": lambda doc: not len(doc),
        "only white space": lambda doc: len(doc) and doc.text.isspace(),
        "combining": lambda doc: any(map(unicodedata.combining, doc.text)),
        "joined emoji": lambda doc: "\u200d" in doc.text and "👩" in doc.text,
        "right to left": lambda doc: any(unicodedata.bidirectional(c) == "R" for c in doc.text),
        "unassigned": lambda doc: any(unicodedata.category(c) == "Cn" for c in doc.text),
    }
    for name, is_kind in kinds.items():
        assert sum(map(bool, map(is_kind, docs))) >= N_DOCS / 40, name
    assert {ord(c) >> 16 for doc in docs for c in doc.text} == {*range(17)}
    assert max(map(len, tokens)) >= 3000
    assert sum(token.isdigit() and len(token) > MAX_PIECES for token in tokens) >= N_DOCS / 20
    gold = make_dense_example(nlp).reference
    assert len({(s.start, s.end, s.label) for s in gold.spans["sc"]}) == N_DENSE_SPANS > 2000
    # Every token is in many of them.
    assert len(gold) <= 150


def test_training_goes_well(trained):
    assert trained.losses
    assert all(math.isfinite(loss) for loss in trained.losses.values())
    assert trained.other == []


def test_what_is_written_is_sound(trained):
    n_spans = 0
    for text, doc in zip(trained.texts, trained.docs, strict=True):
        assert doc.text == text
        assert set(doc.spans) == set(KEYS[trained.name])
        for key, labels in KEYS[trained.name].items():
            group = doc.spans[key]
            assert group.name == key
            assert len(group.attrs["scores"]) == len(group)
            for start, end, label, score in scored(doc, key):
                assert 0 <= start < end <= len(doc)
                assert label in labels
                assert 0 <= score <= 1
            n_spans += len(group)
    # Scores that are the threshold itself, all of one value at worst, may round to below it.
    assert n_spans > 0.9 * trained.n_sample
    if "kept_tokens" in KEYS[trained.name]:
        n_kept = sum(len(span) for doc in trained.docs for span in doc.spans["kept_tokens"])
        assert 0.1 < n_kept / sum(map(len, trained.docs)) < 0.9
    # What pipe and single calls are compared by: one of ten documents has a span to differ in.
    assert trained.n_sample > N_SAMPLE_DOCS / 10 or trained.name == "token_pruner"


def test_pipe_finds_what_single_calls_find(trained):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*more than one window", SpansWarning)
        for doc in trained.docs:
            other = trained.nlp(doc.text)
            for key in KEYS[trained.name]:
                assert_same(doc, other, key, trained.threshold)


def assert_same(doc, other, key, threshold):
    one, two = ({span[:3]: span[3] for span in scored(own, key)} for own in (doc, other))
    for span in set(one) | set(two):
        # A score of its own, or that of nothing right below the threshold.
        here, there = one.get(span, threshold), two.get(span, threshold)
        assert here == pytest.approx(there, abs=ROUNDING), (doc.text, span)


@pytest.fixture
def looked_up_once(monkeypatch):
    """srsly looks its functions up anew for every group of spans, among those of all packages that
    are installed: that takes longer than all else.
    """
    for registry in (msgpack_encoders, msgpack_decoders):
        monkeypatch.setattr(registry, "get_all", cache(registry.get_all))


@pytest.mark.usefixtures("looked_up_once")
def test_documents_survive_docbin(trained):
    stored = DocBin(docs=trained.docs).to_bytes()
    vocab = Vocab()
    copies = list(DocBin().from_bytes(stored).get_docs(vocab))
    for doc, copy in zip(trained.docs, copies, strict=True):
        assert copy.text == doc.text
        assert set(copy.spans) == set(doc.spans)
        for key in KEYS[trained.name]:
            assert copy.spans[key].name == key
            assert scored(copy, key) == scored(doc, key)


def test_documents_survive_json(trained):
    """spaCy's JSON has no place for scores, which is stock's limit; all else comes back."""
    for doc in trained.docs:
        copy = Doc(Vocab()).from_json(json.loads(json.dumps(doc.to_json())))
        assert copy.text == doc.text
        for key in KEYS[trained.name]:
            spans = [(s.start, s.end, s.label_) for s in copy.spans[key]]
            assert spans == [span[:3] for span in scored(doc, key)]


def test_scores_are_numbers(trained):
    scores = trained.nlp.evaluate(trained.examples[-100:])
    prefixes = [f"spans_{key}_" if key == "sc" else f"{key}_" for key in KEYS[trained.name]]
    own = {name: value for name, value in scores.items() if name.startswith(tuple(prefixes))}
    if trained.name != "pruned_transformer":
        assert all(any(name.startswith(prefix) for name in own) for prefix in prefixes)
    assert any(isinstance(value, float) for value in own.values())
    for name, value in own.items():
        assert not isinstance(value, float) or 0 <= value <= 1, name


# No lost span without a count


def aligned(example):
    """Offsets and label of each gold span that ends where tokens end; how many others there are."""
    doc = example.predicted
    starts = {token.idx: token.i for token in doc}
    ends = {token.idx + len(token): token.i + 1 for token in doc}
    spans, n_lost = set(), 0
    for start, end, label in gold_of(example):
        if start in starts and end in ends:
            spans.add((starts[start], ends[end], label))
        else:
            n_lost += 1
    return spans, n_lost


def test_gold_that_does_not_fit_the_tokens_is_counted(learns_spans):
    expected = [aligned(example) for example in learns_spans.examples]
    n_lost = sum(lost for _, lost in expected)
    n_gold = sum(len(spans) for spans, _ in expected) + n_lost
    assert n_lost > 100
    pattern = r"(\d+) of (\d+) gold spans in 'sc' begin or end inside a token"
    assert learns_spans.reported(pattern) == (n_lost, n_gold)


def test_gold_that_is_learned_and_gold_that_is_reported_lost_are_all_gold(learns_spans):
    pipe = learns_spans.nlp.get_pipe(learns_spans.nlp.pipe_names[-1])
    n_fitting = sum(len(aligned(example)[0]) for example in learns_spans.examples)
    if learns_spans.name == "multispan_tagger":
        pattern = r"(\d+) of \d+ gold spans in 'sc' cannot be expressed"
        n_learned = sum(n_expressed(pipe, example) for example in learns_spans.examples)
    else:
        pattern = r"(\d+) of \d+ gold spans in 'sc' are no candidates"
        learned = (
            end - start <= 8
            for example in learns_spans.examples
            for start, end, _ in aligned(example)[0]
        )
        n_learned = sum(learned)
    (n_lost,) = learns_spans.reported(pattern)
    assert n_lost > 30
    assert n_learned > 1000
    assert n_learned + n_lost == n_fitting


def n_expressed(pipe, example):
    """Gold spans that the tags to be learned give back, read by a slow walk."""
    gold = pipe._gold(example)
    n_tokens = len(example.predicted)
    targets = encode(pipe.layout, [gold], make_batch([n_tokens]), pipe.max_gap)
    is_first = [i == 0 for i in range(n_tokens)]
    names = reference_tags.tag_names("BI", 1)
    found = set()
    for label, tags in enumerate(targets.tags.T.tolist()):
        spans = reference_tags.spans_of_tags("bio", [names[tag] for tag in tags], is_first)
        found |= {(start, end, pipe.labels[label]) for start, end, _ in spans}
    # What is learned is gold.
    assert found <= aligned(example)[0]
    return len(found)


def test_every_character_of_gold_is_in_a_token_to_keep(trained):
    if trained.name != "token_pruner":
        pytest.skip("of the pruner")
    pruner = trained.nlp.get_pipe("token_pruner")
    for example in trained.examples:
        to_keep = pruner._is_gold(example)
        gold = np.zeros(len(example.text), dtype=bool)
        for start, end, _ in gold_of(example):
            gold[start:end] = True
        for token in example.predicted:
            assert to_keep[token.i] == gold[token.idx : token.idx + len(token)].any()


def test_every_word_has_pieces(trained):
    if trained.name != "pruned_transformer":
        pytest.skip("of the encoder")
    assert any("have pieces in more than one window" in said for said in trained.said)
    for doc in trained.docs:
        align = doc._.trf_data.align
        assert len(align.lengths) == len(doc)
        rows = align.dataXd.ravel()
        # An unknown word is one piece, which all tokens of that word share; no token has one twice.
        for own in np.split(rows, np.cumsum(align.lengths)[:-1] if len(doc) else []):
            assert len(np.unique(own)) == len(own)
        hidden = doc._.trf_data.model_output.get("last_hidden_state")
        if len(doc):
            assert np.isfinite(hidden).all()
            assert rows.max(initial=-1) < hidden.shape[0] * hidden.shape[1]
        for token, n_pieces in zip(doc, align.lengths.tolist(), strict=True):
            assert n_pieces > 0 or not token.text.isalnum(), token.text
