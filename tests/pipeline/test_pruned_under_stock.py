"""`pruned_transformer` under stock components: trained through their config, dropping words."""

import pytest
import spacy
from spacy.tokens import Span
from spacy.training import Example
from thinc.api import Adam

from spacy_spans.errors import SpansError

from ..encoder import TRANSFORMER_LISTENER
from . import found, write_spans
from .pruned import model_of

pytestmark = pytest.mark.slow

TEXT = "we want cooks who know law"
NER = {
    "model": {
        "@architectures": "spacy.TransitionBasedParser.v2",
        "state_type": "ner",
        "extra_state_tokens": False,
        "hidden_width": 8,
        "maxout_pieces": 1,
        "use_upper": False,
        "tok2vec": TRANSFORMER_LISTENER,
    }
}
SPANCAT = {
    "model": {
        "@architectures": "spacy.SpanCategorizer.v1",
        "reducer": {"@layers": "spacy.mean_max_reducer.v1", "hidden_size": 8},
        "scorer": {"@layers": "spacy.LinearLogistic.v1", "nO": None, "nI": None},
        "tok2vec": TRANSFORMER_LISTENER,
    }
}
TEXTCAT = {
    "model": {
        "@architectures": "spacy.TextCatReduce.v1",
        "exclusive_classes": True,
        "use_reduce_first": False,
        "use_reduce_last": False,
        "use_reduce_max": False,
        "use_reduce_mean": True,
        "tok2vec": TRANSFORMER_LISTENER,
    }
}


def make_nlp(bert, stock, config, criterion="gate", **settings):
    nlp = spacy.blank("en")
    settings["model"] = model_of(bert, criterion=criterion)
    nlp.add_pipe("pruned_transformer", name="transformer", config=settings)
    nlp.add_pipe(stock, config=config)
    return nlp


def make_examples(nlp):
    examples = []
    for text, good in ((TEXT, True), ("we know", False), ("", False)):
        gold = nlp.make_doc(text)
        gold.ents = [Span(gold, 2, 3, label="WHO")] if good else []
        write_spans(gold, "sc", [(2, 3, "WHO")] if good else [])
        gold.cats = {"GOOD": float(good), "BAD": float(not good)}
        examples.append(Example(nlp.make_doc(text), gold))
    return examples


@pytest.mark.parametrize(
    ("stock", "config", "settings"),
    [
        ("ner", NER, {"spans_keys": ["doc.ents"]}),
        ("spancat", SPANCAT, {}),
        ("textcat", TEXTCAT, {"criterion": "norm"}),
    ],
)
def test_stock_components_are_trained_on_what_is_kept(bert, stock, config, settings, tmp_path):
    nlp = make_nlp(bert, stock, config, **settings)
    nlp.initialize(lambda: make_examples(nlp))
    encoder = nlp.get_pipe("transformer").model
    before = encoder.transformer.embeddings.word_embeddings.weight.detach().clone()
    # The first steps of `textcat` send back nothing.
    for _ in range(4):
        losses = nlp.update(make_examples(nlp), sgd=Adam(0.01))
    assert losses[stock] > 0
    assert not before.equal(encoder.transformer.embeddings.word_embeddings.weight)
    assert encoder.attrs["gates_trained"] == (stock != "textcat")
    doc = nlp(TEXT)
    assert sum(end - start for start, end, *_ in found(doc, "kept_tokens")) == 3
    scores = nlp.evaluate(make_examples(nlp))
    assert scores["kept_tokens_keep_ratio"] == 4 / 8
    assert scores["kept_tokens_token_recall"] in (0.0, 1.0)
    nlp.to_disk(tmp_path)
    assert found(spacy.load(tmp_path)(doc.text), "kept_tokens") == found(doc, "kept_tokens")


def test_where_only_entities_are_annotated_the_error_says_how_to_learn_from_them(bert):
    nlp = make_nlp(bert, "ner", NER)
    examples = make_examples(nlp)
    for example in examples:
        example.reference.spans.clear()
    with pytest.raises(SpansError, match=r'spans_keys = \["doc.ents"\]'):
        nlp.initialize(lambda: examples)
    nlp = make_nlp(bert, "ner", NER, spans_keys=["doc.ents"])
    bare = [Example(nlp.make_doc("we"), nlp.make_doc("we"))]
    with pytest.raises(SpansError, match=r"No training document has doc\.ents"):
        nlp.get_pipe("transformer").initialize(lambda: bare)
