"""What `token_pruner` learns, from which documents, and when it begins to drop."""

import numpy as np
import pytest
from thinc.api import Adam

from spacy_spans.errors import SpansError, SpansWarning
from spacy_spans.torch_layer import layer_shim

from . import make_examples, write_spans
from .pruner import LEXICAL, SPARSE, kept, make_nlp


def test_nothing_is_dropped_before_the_first_step_of_training():
    nlp, pipe = make_nlp()
    examples = make_examples(nlp, SPARSE)
    nlp.initialize(lambda: examples)
    with pytest.warns(SpansWarning, match="keeps every token: it is not trained yet"):
        assert kept(nlp("a b c")) == [(0, 3)]
    with pytest.raises(SpansError, match="not trained yet"):
        pipe.trade_off(examples, [0.9])
    # Documents of other components teach it nothing.
    nlp.update(make_examples(nlp, SPARSE, "other"), sgd=Adam(0.01))
    assert kept(nlp("a b c")) == [(0, 3)]
    nlp.update(examples, sgd=Adam(0.01))
    assert kept(nlp("a b c")) == []
    nlp.initialize(lambda: examples)
    assert kept(nlp("a b c")) == [(0, 3)]


def test_scores_start_at_the_share_of_tokens_in_spans():
    nlp, pipe = make_nlp(positive_weight=3.0)
    nlp.initialize(lambda: make_examples(nlp, SPARSE))
    bias = layer_shim(pipe.model.get_ref("scorer")).module.project.bias.item()
    rate = (3 * 4 + 1) / (3 * 4 + 12 + 2)
    assert bias == pytest.approx(np.log(rate / (1 - rate)))


def test_a_key_that_is_nowhere_is_an_error_and_one_that_is_missing_somewhere_a_warning():
    nlp, _ = make_nlp(spans_keys=["a", "b"])
    examples = make_examples(nlp, SPARSE)
    with pytest.raises(SpansError, match=r"'a'\] or doc.spans\['b'\].*'sc' \(4 documents\)"):
        nlp.initialize(lambda: examples)
    write_spans(examples[0].reference, "b", [(0, 1)])
    with pytest.warns(SpansWarning, match="3 of 4 training documents have none of"):
        nlp.initialize(lambda: examples)


def test_documents_without_any_of_the_keys_teach_nothing():
    nlp, pipe = make_nlp(positive_weight=2.0)
    examples = make_examples(nlp, SPARSE)
    other = make_examples(nlp, SPARSE[:1], "other")
    logits = np.linspace(-1, 1, 16, dtype="f").reshape(-1, 1)
    alone, gradient = pipe.get_loss(examples, logits)
    more, padded = pipe.get_loss(other + examples, np.append(logits[:9], logits, axis=0))
    # Both are per token of annotated documents.
    assert more == pytest.approx(alone)
    assert padded[:9].tolist() == [[0.0]] * 9
    np.testing.assert_allclose(padded[9:], gradient, rtol=1e-6)
    with pytest.warns(SpansWarning, match="1 of 5 training documents"):
        nlp.initialize(lambda: other + examples)
    bias = layer_shim(pipe.model.get_ref("scorer")).module.project.bias.item()
    assert bias == pytest.approx(np.log((2 * 4 + 1) / (12 + 1)))


def test_the_gradient_is_that_of_the_weighted_loss():
    nlp, pipe = make_nlp(positive_weight=2.0)
    examples = make_examples(nlp, SPARSE)
    logits = np.linspace(-1, 1, 16, dtype="f").reshape(-1, 1)
    loss, gradient = pipe.get_loss(examples, logits)
    for row in (2, 5):
        moved = logits.copy()
        moved[row] += 1e-2
        change = (pipe.get_loss(examples, moved)[0] - loss) / 1e-2
        assert gradient[row, 0] == pytest.approx(change, abs=1e-3)
    assert gradient[2, 0] < 0 < gradient[5, 0]


@pytest.mark.parametrize("data", [[], [("", [])]])
def test_updates_of_nothing(trained_pruner, data):
    losses = trained_pruner.update(make_examples(trained_pruner, data), sgd=Adam(0.1))
    assert losses.get("token_pruner", 0) == 0


def test_without_anything_to_learn_it_is_scored_and_not_trained():
    nlp, _ = make_nlp(model=LEXICAL)
    examples = make_examples(nlp, SPARSE)
    nlp.initialize(lambda: examples)
    assert nlp.update(examples, sgd=Adam(0.1)) == {"token_pruner": 0.0}
    assert 0 < nlp.evaluate(examples)["kept_tokens_keep_ratio"] < 1
    nlp.initialize(lambda: make_examples(nlp, SPARSE, "other"))
