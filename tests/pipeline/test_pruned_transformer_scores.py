"""What `pruned_transformer` says of its gates at every evaluation."""

import pytest
import spacy
from spacy.training import Example

from ..encoder import TRANSFORMER_LISTENER
from . import found, write_spans
from .pruned import model_of

pytestmark = pytest.mark.slow

WORDS = "we want cooks who know law".split()
NAMES = ("token_recall", "keep_ratio", "span_recall")


def make_nlp(bert, **settings):
    nlp = spacy.blank("en")
    # By chance, so that no training is needed.
    settings |= {"model": model_of(bert, criterion="random"), "max_span_share": None}
    nlp.add_pipe("pruned_transformer", name="transformer", config=settings)
    nlp.initialize(lambda: make_examples(nlp))
    return nlp


def make_examples(nlp, key="sc"):
    texts = [" ".join(WORDS), " ".join(reversed(WORDS)), "", "we know"]
    golds = [nlp.make_doc(text) for text in texts]
    for gold in golds[:3]:
        spans = [(2, 3, "A"), (0, 3, "B"), (5, 6, "A")] if len(gold) else []
        write_spans(gold, key, spans)
    # The last one is not annotated.
    return [Example(nlp.make_doc(text), gold) for text, gold in zip(texts, golds, strict=True)]


def test_scores_are_those_of_the_kept_runs(bert):
    nlp = make_nlp(bert)
    examples = make_examples(nlp)
    scores = nlp.evaluate(examples)
    kept = [
        {i for start, end, *_ in found(doc, "kept_tokens") for i in range(start, end)}
        for doc in nlp.pipe(example.text for example in examples)
    ]
    spans = [[(s.start, s.end) for s in e.reference.spans.get("sc", ())] for e in examples]
    gold = [{i for start, end in own for i in range(start, end)} for own in spans]
    n_both = sum(len(a & b) for a, b in zip(kept, gold, strict=True))
    n_whole = sum(
        set(range(*span)) <= own for own, some in zip(kept, spans, strict=True) for span in some
    )
    assert 0 < n_both < 8
    assert scores["kept_tokens_token_recall"] == n_both / 8
    assert scores["kept_tokens_keep_ratio"] == sum(map(len, kept)) / 14
    assert scores["kept_tokens_span_recall"] == n_whole / 6


def test_where_nothing_is_dropped_all_is_found(bert):
    nlp = make_nlp(bert)
    nlp.get_pipe("transformer").model.attrs["keep_ratio"] = 1.0
    scores = nlp.evaluate(make_examples(nlp))
    assert [scores[f"kept_tokens_{name}"] for name in NAMES] == [1.0, 1.0, 1.0]


def test_they_are_shown_in_training_and_have_no_say_in_it(bert):
    nlp = make_nlp(bert)
    weights = nlp.config["training"]["score_weights"]
    assert weights == {f"kept_tokens_{name}": 0.0 for name in NAMES}


@pytest.mark.parametrize("kept_key", ["mine", None])
def test_weights_follow_the_key(bert, kept_key):
    setter = {"@annotation_setters": "spacy-spans.kept_tokens.v1", "kept_key": kept_key}
    if kept_key is None:
        setter = {"@annotation_setters": "spacy-transformers.null_annotation_setter.v1"}
    nlp = make_nlp(bert, set_extra_annotations=setter)
    weights = nlp.config["training"]["score_weights"]
    in_use = {f"mine_{name}" for name in NAMES} if kept_key else set()
    assert {name for name, weight in weights.items() if weight is not None} == in_use
    scores = nlp.evaluate(make_examples(nlp))
    assert {name for name in scores if name.endswith(NAMES)} == in_use


def test_other_components_keep_their_weights(bert):
    nlp = spacy.blank("en")
    nlp.add_pipe("token_pruner")
    setter = {"@annotation_setters": "spacy-spans.kept_tokens.v1", "kept_key": "by_gates"}
    settings = {"model": model_of(bert), "set_extra_annotations": setter, "max_span_share": None}
    nlp.add_pipe("pruned_transformer", name="transformer", config=settings)
    nlp.add_pipe("span_enumerator", config={"model": {"tok2vec": TRANSFORMER_LISTENER}})
    nlp.initialize(lambda: make_examples(nlp)[:3])
    weights = nlp.config["training"]["score_weights"]
    assert weights["kept_tokens_f"] == weights["spans_sc_f"] == 0.5
    assert weights["kept_tokens_keep_ratio"] == weights["by_gates_keep_ratio"] == 0.0
