"""Pruner, transformer on kept runs, spans within them: one pipeline, on anything."""

import random
import re
import warnings

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from thinc.api import Adam

from spacy_spans.errors import SpansError, SpansWarning
from spacy_spans.policies import build_threshold_policy_v1

from ..encoder import TRANSFORMER_LISTENER
from . import DATA, SMALL_TOK2VEC, found, make_example, make_examples
from .pruned import model_of
from .pruner import LEXICAL

pytestmark = pytest.mark.slow

WORDS = [
    *"a of cooks Python clean law , . ! - café 日本 🙂 \n".split(" "),
    "x" * 150,
    "#" * 90,
    "  ",
]


def make_pipeline(encoder, finder="span_enumerator", **settings):
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    nlp.add_pipe("token_pruner", config={"model": {"tok2vec": SMALL_TOK2VEC}})
    model = {
        "@architectures": "spacy-spans.PrunedTransformerModel.v1",
        "name": str(encoder),
        "get_spans": {"@span_getters": "spacy-spans.kept_spans.v1", "max_pieces": 32},
    }
    nlp.add_pipe("transformer", config={"model": model})
    config = {"model": {"tok2vec": TRANSFORMER_LISTENER}, "within_kept": True, **settings}
    nlp.add_pipe(finder, config=config)
    return nlp


@pytest.fixture(scope="module")
def trained(encoder):
    """Trained together for a few steps. Not to the end: it makes mistakes, and is unsure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        nlp = make_pipeline(encoder)
        examples = make_examples(nlp)
        nlp.initialize(lambda: examples)
        optimizer = Adam(0.001)
        losses = [
            nlp.update(make_examples(nlp), sgd=optimizer, annotates=["token_pruner"])
            for _ in range(12)
        ]
        assert losses[-1]["token_pruner"] < losses[0]["token_pruner"]
        nlp.get_pipe("span_enumerator").cfg["threshold"] = 0.01
        yield nlp


def random_texts(n):
    draw = random.Random(0)
    lengths = [draw.choice([0, 1, 2, 10, 30]) for _ in range(n)]
    return [" ".join(draw.choices(WORDS, k=length)) for length in lengths]


def check(doc):
    runs = [(span.start, span.end) for span in doc.spans["kept_tokens"]]
    for start, end, _ in found(doc):
        assert any(low <= start < end <= high for low, high in runs)
    return len(runs), len(doc.spans["sc"])


def test_a_hundred_random_documents(trained, monkeypatch):
    pruner = trained.get_pipe("token_pruner")
    texts = random_texts(100)
    scores = np.concatenate(pruner.score_tokens([trained.make_doc(text) for text in texts]))
    # So that some documents are left whole, and others without a token.
    policy = build_threshold_policy_v1(float(np.quantile(scores, 0.8)))
    monkeypatch.setattr(pruner, "policy", policy)
    with warnings.catch_warnings():
        # Said once, of the tokens with more pieces than a window.
        warnings.filterwarnings("ignore", ".*more than one window", SpansWarning)
        docs = list(trained.pipe(texts, batch_size=32))
    counts = [check(doc) for doc in docs]
    assert any(n_runs == 0 and len(doc) for (n_runs, _), doc in zip(counts, docs, strict=True))
    assert sum(n_spans for _, n_spans in counts) > 0


def test_whole_batches_of_which_nothing_or_everything_is_kept(trained):
    pruner = trained.get_pipe("token_pruner")
    for scale, n_runs in ((0.0, 0), (1.0, 1)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pruner, "policy", lambda scores, scale=scale: scores * 0 + scale > 0.5)
            docs = list(trained.pipe(["a b c", "d", "", "e f " * 40]))
        assert [check(doc)[0] for doc in docs] == [n_runs, n_runs, 0, n_runs]


def test_training_where_nothing_is_kept_is_harmless(trained):
    nlp = spacy.blank("en").from_config(trained.config).from_bytes(trained.to_bytes())
    patched = nlp.get_pipe("token_pruner")
    patched.policy = lambda scores: scores > 2
    with pytest.warns(SpansWarning, match=r"span_enumerator: 7 of the 7 gold spans in 'sc'"):
        losses = nlp.update(make_examples(nlp), sgd=Adam(0.001), annotates=["token_pruner"])
    assert losses["span_enumerator"] == 0.0
    check(nlp(DATA[0][0]))


@pytest.mark.parametrize("settings", [{"within_kept": False}, {"kept_key": "other"}])
@pytest.mark.parametrize("finder", ["span_enumerator", "multispan_tagger"])
def test_spans_in_tokens_that_are_not_encoded_are_warned_of(bert, finder, settings):
    nlp = make_pipeline(bert, finder, **settings)
    message = rf"{finder} looks .* encodes the runs of doc.spans\['kept_tokens'\] only"
    with pytest.warns(SpansWarning) as caught:
        nlp.initialize(lambda: make_examples(nlp))
    # The tagger also counts the gold spans that its tags cannot express.
    said = [str(warning.message) for warning in caught]
    assert sum(bool(re.match(message, text)) for text in said) == 1
    assert all("kept_tokens" in text or "cannot be expressed" in text for text in said)


def test_a_transformer_that_was_left_out_is_an_error(bert):
    nlp = make_pipeline(bert)
    nlp.initialize(lambda: make_examples(nlp))
    doc = nlp.make_doc("a b")
    # As in a process that has made no transformer.
    default, *_ = Doc.remove_extension("trf_data")
    try:
        with pytest.raises(SpansError, match="listens to a tok2vec or transformer component"):
            nlp.get_pipe("span_enumerator")(doc)
    finally:
        Doc.set_extension("trf_data", default=default)


def test_round_trip(trained, tmp_path):
    trained.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    for text, _ in DATA:
        assert found(loaded(text), "kept_tokens") == found(trained(text), "kept_tokens")
        assert found(loaded(text)) == found(trained(text))


def test_gates_narrow_what_the_pruner_kept(bert):
    getter = {"@span_getters": "spacy-spans.kept_spans.v1", "max_pieces": 32}
    model = model_of(bert, criterion="norm", get_spans=getter)
    nlp = spacy.blank("en")
    nlp.add_pipe("token_pruner", config={"model": LEXICAL})
    settings = {"model": model, "max_span_share": None}
    nlp.add_pipe("pruned_transformer", name="transformer", config=settings)
    config = {"model": {"tok2vec": TRANSFORMER_LISTENER}, "within_kept": True}
    nlp.add_pipe("span_enumerator", config=config)
    examples = [make_example(nlp, "we want cooks who know law well", [(2, 3, "WHO")])]
    nlp.initialize(lambda: examples)
    nlp.update(examples, sgd=Adam(0.001), annotates=["token_pruner"])
    doc = nlp("we want cooks who know law , food !")
    # Of these five the gate keeps the better half.
    of_pruner = [doc.text.split().index(word) for word in ("want", "cooks", "know", "law", "food")]
    kept = [i for start, end, *_ in found(doc, "kept_tokens") for i in range(start, end)]
    assert len(kept) == 3
    assert set(kept) < set(of_pruner)
    check(doc)
