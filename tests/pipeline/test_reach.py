"""Counts of gold that candidates cannot reach, and what is said about them."""

import math
import warnings

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Example

from spacy_spans.alignment import Annotation, GoldSpans
from spacy_spans.errors import SpansWarning
from spacy_spans.pipeline.reach import EXCLUDED, Reach
from spacy_spans.torch_layer import layer_shim

from . import CANDIDATES, make_example, make_examples, make_nlp, make_pipe, write_spans

NLP = spacy.blank("en")


def offsets_of(spans):
    return np.asarray(spans, dtype="i").reshape(-1, 2)


def gold_of(rows, misaligned=()):
    table = np.asarray(rows, dtype="i").reshape(-1, 3)
    lost = [Annotation(text, label, 0, len(text)) for text, label in misaligned]
    return GoldSpans(table[:, :2], table[:, 2], lost)


def add(reach, n_tokens, gold, candidates, misaligned=()):
    words = [f"w{i}" for i in range(n_tokens)]
    example = Example(Doc(NLP.vocab, words=words), Doc(NLP.vocab, words=words))
    gold = gold_of(gold, misaligned)
    reach.add(example, gold, None if candidates is None else offsets_of(candidates))


def test_nothing_counted_says_nothing():
    reach = Reach([])
    assert reach.recall() is None
    assert reach.rarity_bias() == []
    assert reach.messages("pipe", "sc") == []


def test_gold_that_is_all_reached_says_nothing():
    reach = Reach(["A", "B"])
    add(reach, 2, [(0, 1, 0), (0, 2, 1)], [(0, 1), (0, 2), (1, 2)])
    add(reach, 0, [], [])
    assert reach.recall() == 1.0
    assert reach.messages("pipe", "sc") == []
    assert (reach.n_tokens, reach.n_candidates, reach.n_gold) == (2, 3, 2)


def test_gold_that_is_no_candidate_is_counted_by_label_with_the_longest():
    reach = Reach(["A", "B"])
    add(reach, 4, [(0, 4, 0), (1, 3, 1), (0, 1, 0)], [(0, 1)])
    add(reach, 3, [(0, 3, 0)], [])
    assert reach.recall() == 0.25
    (message,) = reach.messages("pipe", "sc")
    assert "pipe: 3 of 4 gold spans in 'sc' are no candidates" in message
    assert "A 2, B 1; the longest has 4 tokens: 'w0 w1 w2 w3'" in message
    assert "max_length" in message


def test_long_texts_are_shortened():
    reach = Reach(["A"])
    add(reach, 50, [(0, 50, 0)], [])
    (message,) = reach.messages("pipe", "sc")
    assert "'w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12 w13 w14 w15 w16 w…'" in message


def test_misaligned_gold_is_counted_and_missed():
    reach = Reach(["A", "B"])
    add(reach, 2, [(0, 1, 0), (0, 2, 1)], [(0, 1), (0, 2)], [("x", "B"), ("y", "A"), ("z", "B")])
    assert reach.recall() == pytest.approx(0.4)
    (message,) = reach.messages("pipe", "sc")
    assert "pipe: 3 of 5 gold spans in 'sc' begin or end inside a token" in message
    assert "A 1, B 2; e.g. 'x'" in message


def test_labels_without_examples_are_named():
    reach = Reach(["A", "B", "C"])
    add(reach, 1, [(0, 1, 1)], [(0, 1)])
    (message,) = reach.messages("pipe", "key")
    assert "pipe: no training example for A, C in 'key'" in message


def test_candidates_that_are_not_known_yet_count_as_reaching_everything():
    reach = Reach(["A"])
    add(reach, 3, [(0, 3, 0)], None)
    assert reach.recall() == 1.0
    assert reach.messages("pipe", "sc") == []
    # Ten candidates a token are assumed.
    rate = (1 + 1) / (30 + 2)
    assert reach.rarity_bias() == [pytest.approx(math.log(rate / (1 - rate)))]


@pytest.mark.parametrize(("overlap", "lost"), [("flat", ["w0 w1 w2", "w1 w2"]), ("any", [])])
def test_gold_that_the_settings_exclude_is_counted(overlap, lost):
    reach = Reach(["A", "B"], overlap=overlap)
    add(reach, 3, [(0, 2, 0), (1, 3, 0), (0, 3, 1)], [(0, 2), (0, 3), (1, 3)])
    # What is no candidate excludes nothing, and is not counted twice.
    add(reach, 3, [(0, 2, 0), (1, 3, 0)], [(0, 2)])
    assert reach.n_lost == len(lost) + 1
    losses = reach.losses.get(EXCLUDED)
    found = losses.first_of_label.values() if losses else ()
    assert sorted(own.text for _, own in found) == lost
    assert all(number == 0 for number, _ in found)
    # They are candidates all the same.
    assert reach.recall() == 0.8
    messages = reach.messages("pipe", "key")
    assert len(messages) == 1 + bool(lost)
    if lost:
        assert messages[1].startswith("pipe: up to 2 of 5 gold spans in 'key' overlap others")
        for setting in ("softmax", "flat", "nested", "sigmoid", "any"):
            assert f'"{setting}"' in messages[1]


def test_spans_that_cross_are_excluded_and_nested_ones_not():
    reach = Reach(["A"], overlap="nested")
    add(reach, 3, [(0, 2, 0), (1, 3, 0), (0, 3, 0)], [(0, 2), (0, 3), (1, 3)])
    assert reach.losses[EXCLUDED].of_label == {"A": 1}


def test_one_label_a_span_excludes_further_labels():
    reach = Reach(["A", "B"], softmax=True)
    add(reach, 3, [(0, 2, 0), (0, 2, 1), (1, 3, 0)], [(0, 2), (1, 3)])
    assert reach.losses[EXCLUDED].of_label == {"B": 1}
    add(reach, 3, [], [(0, 2)])
    assert reach.n_lost == 1


def test_reasons_are_counted_each_with_its_first_span_of_each_label():
    def explain(offsets, doc):
        return [f"longer than {len(doc)}" if end > 1 else "unlucky" for _, end in offsets]

    reach = Reach(["A", "B"], explain=explain)
    add(reach, 1, [], [])
    add(reach, 3, [(0, 2, 0), (0, 3, 0), (1, 3, 1), (0, 1, 1)], [])
    assert {reason: dict(own.of_label) for reason, own in reach.losses.items()} == {
        "longer than 3": {"A": 2, "B": 1},
        "unlucky": {"B": 1},
    }
    assert reach.losses["longer than 3"].first_of_label == {
        "A": (1, Annotation("w0 w1", "A", 0, 5)),
        "B": (1, Annotation("w1 w2", "B", 3, 8)),
    }
    (message,) = reach.messages("pipe", "sc")
    assert "'w0 w1 w2'): 3 longer than 3, 1 unlucky. Raise max_length, or see" in message
    reach.forget_candidates()
    assert reach.messages("pipe", "sc") == []
    assert reach.n_lost == 0
    add(reach, 1, [(0, 1, 1)], [])
    (message,) = reach.messages("pipe", "sc")
    assert "'w0'): 1 unlucky. Change that, or see" in message


def test_documents_without_the_key_are_counted():
    reach = Reach(["A"])
    for gold in ([(0, 1, 0)], [], []):
        add(reach, 1, gold, [(0, 1)])
    reach.add_without_key()
    (message,) = reach.messages("pipe", "key")
    assert message.startswith("pipe: 1 of 4 training documents have no doc.spans['key']")
    assert reach.recall() == 1.0


def test_rarity_bias_is_the_logit_of_each_labels_share_of_candidates():
    reach = Reach(["A", "B"])
    add(reach, 20, [(0, 1, 0), (0, 2, 0), (0, 3, 0)], [(0, n) for n in range(1, 19)])
    assert reach.rarity_bias() == [
        pytest.approx(math.log(4 / 16)),
        pytest.approx(math.log(1 / 19)),
    ]


def test_rarity_bias_is_finite_where_gold_outnumbers_candidates():
    reach = Reach(["A"])
    add(reach, 9, [(0, 4, 0), (0, 5, 0), (0, 6, 0)], [(0, 1)])
    assert reach.rarity_bias() == [pytest.approx(math.log(4 / 1))]


# At initialize


def warnings_at_initialize(nlp, examples):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nlp.initialize(lambda: examples)
    assert all(issubclass(warning.category, SpansWarning) for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("candidates", ["length", "boundary"])
def test_initialize_warns_of_nothing_when_nothing_is_lost(candidates):
    nlp = make_nlp(candidates=CANDIDATES[candidates])
    assert warnings_at_initialize(nlp, make_examples(nlp)) == []


def test_initialize_warns_once_of_gold_that_is_too_long():
    nlp = make_nlp(candidates={**CANDIDATES["length"], "max_length": 5})
    (message,) = warnings_at_initialize(nlp, make_examples(nlp))
    assert message.startswith("span_enumerator: 2 of 7 gold spans in 'sc' are no candidates")
    assert "DUTY 1, SKILL 1; the longest has 6 tokens: 'write clean Python" in message


def test_initialize_warns_once_of_gold_that_is_misaligned():
    nlp = make_nlp()
    reference = Doc(nlp.vocab, words=["one", "two", "-", "three"], spaces=[True, False, False, 0])
    write_spans(reference, "sc", [(1, 2, "A"), (0, 1, "A"), (0, 4, "A")])
    predicted = Doc(nlp.vocab, words=["one", "two-three"], spaces=[True, False])
    (message,) = warnings_at_initialize(nlp, [Example(predicted, reference)])
    assert "1 of 3 gold spans in 'sc' begin or end inside a token" in message
    assert "A 1; e.g. 'two'" in message


def test_initialize_warns_once_of_labels_without_examples():
    nlp, pipe = make_pipe()
    for label in ("NEVER", "SKILL", "NOR"):
        pipe.add_label(label)
    (message,) = warnings_at_initialize(nlp, make_examples(nlp))
    assert "no training example for NEVER, NOR in 'sc'" in message


def test_initialize_warns_once_of_each_loss():
    nlp, pipe = make_pipe(candidates={**CANDIDATES["length"], "max_length": 1})
    pipe.add_label("NEVER")
    reference = Doc(nlp.vocab, words=["a", "b", "c"], spaces=[False, False, False])
    write_spans(reference, "sc", [(0, 1, "A"), (0, 3, "A")])
    predicted = Doc(nlp.vocab, words=["ab", "c"], spaces=[False, False])
    messages = warnings_at_initialize(nlp, [Example(predicted, reference)] * 3)
    assert [message.split(" in 'sc'")[0] for message in messages] == [
        "span_enumerator: 3 of 6 gold spans",
        "span_enumerator: 3 of 6 gold spans",
        "span_enumerator: no training example for NEVER",
    ]
    assert "are no candidates" in messages[0]
    assert "inside a token" in messages[1]


# Crossing: (0, 3), (1, 4). Inside others: four. Two labels at (2, 3).
CASES = [
    ({"loss": "softmax"}, 1),
    ({"overlap": "nested"}, 1),
    ({"loss": "softmax", "overlap": "nested"}, 2),
    # One of five, and one of two.
    ({"overlap": "flat"}, 5),
    ({"loss": "softmax", "overlap": "flat"}, 5),
]


@pytest.mark.parametrize(("config", "n_excluded"), CASES, ids=str)
def test_initialize_warns_once_of_gold_that_the_settings_exclude(config, n_excluded):
    nlp = make_nlp(**config)
    (message,) = warnings_at_initialize(nlp, make_examples(nlp))
    assert message.startswith(
        f"span_enumerator: up to {n_excluded} of 7 gold spans in 'sc' overlap others"
    )


def test_initialize_warns_once_of_documents_without_the_key():
    nlp = make_nlp()
    bare = Example(nlp.make_doc("We pay well"), nlp.make_doc("We pay well"))
    (message,) = warnings_at_initialize(nlp, [*make_examples(nlp), bare, bare])
    assert message.startswith("span_enumerator: 2 of 6 training documents have no doc.spans['sc']")


def test_initialize_warns_once_of_gold_that_holds_no_token():
    nlp = make_nlp()
    examples = make_examples(nlp, [("a b", [(0, 1, "A"), (1, 1, "A")])])
    (message,) = warnings_at_initialize(nlp, examples)
    assert "1 of 2 gold spans in 'sc' begin or end inside a token, or hold none" in message
    assert "A 1; e.g. ''" in message


def test_initialize_counts_gold_beyond_the_band_of_learned_candidates():
    nlp = make_nlp(candidates={**CANDIDATES["boundary"], "max_length": 5})
    (message,) = warnings_at_initialize(nlp, make_examples(nlp))
    assert message.startswith("span_enumerator: 2 of 7 gold spans in 'sc' are no candidates")
    assert "DUTY 1, SKILL 1; the longest has 6 tokens: 'write clean Python" in message


@pytest.mark.parametrize("max_length", [None, 6])
def test_the_bias_of_learned_candidates_assumes_their_number(max_length):
    nlp = make_nlp(candidates={**CANDIDATES["boundary"], "max_length": max_length})
    assert warnings_at_initialize(nlp, make_examples(nlp)) == []
    classifier = layer_shim(nlp.get_pipe("span_enumerator").model.get_ref("classifier")).module
    n_candidates = 10 * (6 + 6 + 3)
    rates = [(count + 1) / (n_candidates + 2) for count in (1, 2, 4)]
    expected = [math.log(rate / (1 - rate)) for rate in rates]
    np.testing.assert_allclose(classifier.classify.bias.detach().numpy(), expected, rtol=1e-5)


def test_initialize_counts_all_examples_not_only_the_sample_for_sizes():
    nlp = make_nlp(candidates={**CANDIDATES["length"], "max_length": 2})
    examples = [make_example(nlp, "a b c", [(0, 1, "A")]) for _ in range(15)]
    examples += [make_example(nlp, "a b c", [(0, 3, "A")]) for _ in range(5)]
    (message,) = warnings_at_initialize(nlp, examples)
    assert "5 of 20 gold spans" in message


def test_training_after_initialize_does_not_warn_again():
    nlp = make_nlp(candidates={**CANDIDATES["length"], "max_length": 5})
    examples = make_examples(nlp)
    warnings_at_initialize(nlp, examples)
    nlp.update(examples)
    nlp.evaluate(examples)


@pytest.mark.parametrize("first", ["", "one", "one two"])
def test_candidates_that_need_another_component_warn_once_and_assume_their_number(first):
    nlp = make_nlp(
        candidates={**CANDIDATES["length"], "within_sentences": True}, upstream=("sentencizer",)
    )
    data = [(first, []), *[("We pay well", [(1, 2, "A")])] * 3]
    (message,) = warnings_at_initialize(nlp, make_examples(nlp, data))
    assert "not known before training" in message
    assert "spans_sc_candidate_recall" in message
    classifier = layer_shim(nlp.get_pipe("span_enumerator").model.get_ref("classifier")).module
    n_candidates = 10 * (len(first.split()) + 9)
    rate = (3 + 1) / (n_candidates + 2)
    assert classifier.classify.bias.item() == pytest.approx(math.log(rate / (1 - rate)), rel=1e-5)


# As a score


@pytest.mark.parametrize(
    ("max_length", "expected"),
    # Six spans, labels aside: two of six tokens, one of four, two of three, one of one.
    [(1, 1 / 6), (3, 3 / 6), (5, 4 / 6), (6, 1.0)],
)
def test_candidate_recall_is_the_share_of_gold_that_was_listed(max_length, expected):
    _, pipe = make_pipe(candidates={**CANDIDATES["length"], "max_length": max_length})
    for label in ("DUTY", "KNOWLEDGE", "SKILL"):
        pipe.add_label(label)
    score = pipe.score(make_examples(NLP))["spans_sc_candidate_recall"]
    assert score == pytest.approx(expected)


def test_candidate_recall_counts_labels_that_were_never_learned():
    _, pipe = make_pipe()
    pipe.add_label("KNOWN")
    scores = pipe.score([make_example(NLP, "a b", [(0, 2, "UNKNOWN")])])
    assert scores["spans_sc_candidate_recall"] == 1.0


def test_candidate_recall_without_gold_is_none():
    _, pipe = make_pipe()
    for data in ([], [("", [])], [("We pay well", [])]):
        assert pipe.score(make_examples(NLP, data))["spans_sc_candidate_recall"] is None
