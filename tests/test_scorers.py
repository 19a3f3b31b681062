"""Metrics of `doc.spans`, by hand and against slow loops."""

import json
from fractions import Fraction
from itertools import pairwise

import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from spacy.vocab import Vocab

from spacy_spans.keys import CHARACTERS_KEY

from . import reference

VOCAB = Vocab()
WORDS = ["zero", "one", "two", "three", "four"]


def score(examples, key="sc"):
    scorer = spacy.registry.scorers.get("spacy-spans.spans_scorer.v1")()
    return scorer(examples, spans_key=key)


def make_doc(spans, key="sc", words=WORDS):
    """Spans are (start, end, label); None leaves the key out."""
    doc = Doc(VOCAB, words=words)
    if spans is not None:
        doc.spans[key] = [Span(doc, start, end, label=label) for start, end, label in spans]
    return doc


def make_example(predicted, gold, key="sc"):
    return Example(make_doc(predicted, key), make_doc(gold, key))


# One hit, one wrong label, one wrong end, one missed and one invented span.
PREDICTED = [(0, 2, "A"), (1, 3, "A"), (3, 4, "B"), (4, 5, "A")]
GOLD = [(0, 2, "A"), (1, 3, "B"), (3, 5, "B"), (0, 1, "A"), (2, 3, "C")]


def prf(n_right, n_predicted, n_gold):
    p, r = n_right / n_predicted, n_right / n_gold
    return {
        "p": pytest.approx(p),
        "r": pytest.approx(r),
        "f": pytest.approx(2 * p * r / (p + r) if p + r else 0.0),
    }


def assert_scores(scores, key, expected, boundary_f):
    for name, value in expected.items():
        assert scores[f"spans_{key}_{name}"] == value
    assert scores[f"spans_{key}_boundary_f"] == boundary_f


def test_spans_count_with_their_label_and_per_type_and_without_it():
    scores = score([make_example(PREDICTED, GOLD)])
    # Without labels (1, 3) is right as well: 2 of 4 predicted, 2 of 5 gold.
    assert_scores(scores, "sc", prf(1, 4, 5), prf(2, 4, 5)["f"])
    assert scores["spans_sc_per_type"] == {
        "A": prf(1, 3, 2),
        "B": {"p": 0.0, "r": 0.0, "f": 0.0},
        "C": {"p": 0.0, "r": 0.0, "f": 0.0},
    }


def test_documents_are_counted_together():
    examples = [
        make_example(PREDICTED, GOLD),
        make_example([(0, 1, "A")], [(0, 1, "A")]),
        make_example([], [(0, 1, "B")]),
        make_example([(0, 1, "B")], []),
    ]
    scores = score(examples)
    assert_scores(scores, "sc", prf(2, 6, 7), prf(3, 6, 7)["f"])
    assert scores["spans_sc_per_type"]["A"] == prf(2, 4, 3)


def test_nested_spans_and_two_labels_of_one_span_each_count():
    spans = [(0, 5, "A"), (0, 2, "A"), (1, 3, "B"), (1, 3, "A")]
    scores = score([make_example(spans, spans)])
    assert_scores(scores, "sc", {"p": 1.0, "r": 1.0, "f": 1.0}, 1.0)
    # Without labels the two at (1, 3) are one: predicting either finds it.
    scores = score([make_example(spans[:3], spans)])
    assert_scores(scores, "sc", prf(3, 3, 4), 1.0)


def test_the_asked_key_is_scored_and_names_the_scores():
    example = make_example([(0, 1, "A")], [(0, 1, "A")], key="other")
    example.predicted.spans["sc"] = []
    example.reference.spans["sc"] = [Span(example.reference, 0, 2, label="A")]
    scores = score([example], key="other")
    assert_scores(scores, "other", {"p": 1.0, "r": 1.0, "f": 1.0}, 1.0)
    assert set(scores) == {name.replace("_sc_", "_other_") for name in NO_SCORES}


def test_reference_documents_without_the_key_count_neither_way():
    annotated = make_example([(0, 1, "A")], [(0, 1, "A")])
    scores = score([annotated, make_example([(0, 2, "A")], None)])
    assert_scores(scores, "sc", {"p": 1.0, "r": 1.0, "f": 1.0}, 1.0)


def test_predicted_documents_without_the_key_found_nothing():
    scores = score([make_example([(0, 1, "A")], [(0, 1, "A")]), make_example(None, [(0, 2, "A")])])
    assert_scores(scores, "sc", prf(1, 1, 2), prf(1, 1, 2)["f"])


NO_SCORES = {
    "spans_sc_p": None,
    "spans_sc_r": None,
    "spans_sc_f": None,
    "spans_sc_per_type": None,
    "spans_sc_boundary_f": None,
    "spans_sc_partial_p": None,
    "spans_sc_partial_r": None,
    "spans_sc_partial_f": None,
    "spans_sc_partial_per_type": None,
    "spans_sc_char_f": None,
    "spans_sc_char_f_per_type": None,
    "spans_sc_mention_p": None,
    "spans_sc_mention_r": None,
    "spans_sc_mention_f": None,
    "spans_sc_discontinuous_p": None,
    "spans_sc_discontinuous_r": None,
    "spans_sc_discontinuous_f": None,
    "spans_sc_ece": None,
}
# As in SemEval-2021 Task 5, nothing found where there is nothing is right.
NOTHING_TO_FIND = {**NO_SCORES, "spans_sc_char_f": 1.0}


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        pytest.param([], NO_SCORES, id="no documents"),
        pytest.param([([], [])], NOTHING_TO_FIND, id="no span on either side"),
        pytest.param([(None, [])], NOTHING_TO_FIND, id="no span and no predicted key"),
        pytest.param([(None, None)], NO_SCORES, id="no key on either side"),
        pytest.param([([(0, 1, "A")], None)], NO_SCORES, id="nothing annotated"),
    ],
)
def test_without_spans_to_compare_scores_are_none(pairs, expected):
    assert score([make_example(*pair) for pair in pairs]) == expected


def test_empty_documents_do_not_matter():
    empty = Example(make_doc([], words=[]), make_doc([], words=[]))
    assert score([empty]) == NOTHING_TO_FIND
    scores = score([empty, make_example([(0, 1, "A")], [(0, 1, "A")])])
    assert_scores(scores, "sc", {"p": 1.0, "r": 1.0, "f": 1.0}, 1.0)


@pytest.mark.parametrize(("predicted", "gold"), [([(0, 1, "A")], []), ([], [(0, 1, "A")])])
def test_spans_on_one_side_only_score_zero(predicted, gold):
    scores = score([make_example(predicted, gold)])
    assert_scores(scores, "sc", {"p": 0.0, "r": 0.0, "f": 0.0}, 0.0)


def test_predicted_spans_are_compared_on_the_tokens_of_the_reference():
    predicted = make_doc([(0, 2, "A"), (2, 3, "B")], words=["ze", "ro", "one"])
    reference = make_doc([(0, 1, "A"), (1, 2, "B")], words=["zero", "one"])
    scores = score([Example(predicted, reference)])
    assert_scores(scores, "sc", {"p": 1.0, "r": 1.0, "f": 1.0}, 1.0)


def test_examples_may_come_from_a_generator():
    examples = [make_example(PREDICTED, GOLD)]
    assert score(example for example in examples) == score(examples)


# Overlap, characters, mentions


def part(scores, *names):
    return [scores[f"spans_sc_{name}"] for name in names]


PARTIAL = ("partial_p", "partial_r", "partial_f")
MENTION = ("mention_p", "mention_r", "mention_f")
DISCONTINUOUS = ("discontinuous_p", "discontinuous_r", "discontinuous_f")
TEN = [f"word{i}" for i in range(10)]


def make_long(predicted, gold, words=TEN):
    return Example(make_doc(predicted, words=words), make_doc(gold, words=words))


@pytest.mark.parametrize(
    ("predicted", "gold", "p", "r"),
    [
        pytest.param([(0, 10)], [(0, 10)], 1, 1, id="exact"),
        pytest.param([(0, 5)], [(5, 10)], 0, 0, id="no overlap"),
        pytest.param([(0, 5)], [(0, 10)], 2 / 3, 2 / 3, id="half"),
        pytest.param([(0, 5), (5, 10)], [(0, 10)], 1 / 2, 2 / 3, id="two halves"),
        pytest.param([(0, 10)], [(0, 5), (5, 10)], 2 / 3, 1 / 2, id="two joined"),
        # Dice 1 with the gold span itself, and 18 / 19, 16 / 18 and so on.
        pytest.param([(i, 10) for i in range(5)], [(0, 10)], 1 / 5, 1, id="near duplicates"),
        # Both predictions are worth 8 / 9 to the first gold span, the other finds no prediction.
        pytest.param([(0, 4), (1, 5)], [(0, 5), (8, 9)], 1 / 2, (8 / 9) / 2, id="one of two"),
        # A gold span within one that is found exactly keeps what it gets from there.
        pytest.param([(0, 4)], [(0, 4), (0, 2)], 1, 1 / 2, id="shared by two gold spans"),
        pytest.param([(0, 4)], [(0, 6), (0, 2)], 8 / 10, 8 / 10 / 2 + 1 / 10, id="at most one"),
    ],
)
def test_overlap_is_credited_by_dice_and_shared(predicted, gold, p, r):
    def labelled(spans):
        return [(*span, "A") for span in spans]

    found = part(score([make_long(labelled(predicted), labelled(gold))]), *PARTIAL)
    f = 2 * p * r / (p + r) if p + r else 0.0
    assert found == [pytest.approx(value) for value in (p, r, f)]
    # The other way round, precision and recall change places.
    found = part(score([make_long(labelled(gold), labelled(predicted))]), *PARTIAL)
    assert found == [pytest.approx(value) for value in (r, p, f)]


def test_overlap_counts_within_one_label_and_per_label():
    predicted = [(0, 4, "A"), (4, 8, "B"), (8, 10, "C")]
    gold = [(0, 2, "A"), (4, 8, "A"), (4, 6, "B"), (0, 1, "D")]
    scores = score([make_long(predicted, gold), make_long([], [(0, 1, "D")])])
    assert scores["spans_sc_partial_per_type"] == {
        "A": prf(2 / 3, 1, 1) | {"r": pytest.approx(1 / 3), "f": pytest.approx(4 / 9)},
        "B": {name: pytest.approx(2 / 3) for name in "prf"},
        "C": {"p": 0.0, "r": 0.0, "f": 0.0},
        "D": {"p": 0.0, "r": 0.0, "f": 0.0},
    }
    assert part(scores, *PARTIAL[:2]) == [pytest.approx(4 / 9), pytest.approx(4 / 15)]


def test_gold_spans_that_end_inside_predicted_tokens_count_as_missed():
    predicted = make_doc([(0, 1, "A")], words=["zero-one", "two"])
    gold = make_doc([(0, 1, "A"), (3, 4, "A")], words=["zero", "-", "one", "two"])
    scores = score([Example(predicted, gold)])
    # The prediction touches only the first, which it could never give.
    assert part(scores, "p", "r", *PARTIAL, *MENTION) == [0.0] * 8
    predicted.spans["sc"] = [Span(predicted, 1, 2, label="A")]
    scores = score([Example(predicted, gold)])
    expected = [1.0, 0.5, pytest.approx(2 / 3)]
    assert part(scores, *PARTIAL) == part(scores, *MENTION) == expected


def test_predicted_spans_that_end_inside_gold_tokens_are_left_out_as_spacy_does():
    gold = make_doc([(1, 2, "A")], words=["zero-one", "two"])
    predicted = make_doc([(0, 1, "A"), (3, 4, "A")], words=["zero", "-", "one", "two"])
    scores = score([Example(predicted, gold)])
    assert part(scores, "p", "r", "f") == part(scores, *MENTION) == [1.0, 1.0, 1.0]
    assert part(scores, *PARTIAL[:2]) == [0.5, 1.0]
    # A mention that goes on elsewhere is not right, even where the rest of it is.
    predicted.spans["sc"] = [
        Span(predicted, start, end, label="A", span_id="m1") for start, end in ((0, 1), (3, 4))
    ]
    scores = score([Example(predicted, gold)])
    assert part(scores, *MENTION, *DISCONTINUOUS) == [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_characters_are_averaged_over_documents():
    # "zero one two three four": found 0 to 8, wanted 5 to 12, of which 5 to 8 are shared.
    examples = [
        make_example([(0, 2, "A")], [(1, 3, "A")]),
        make_example([(0, 1, "A")], [(0, 1, "A")]),
        make_example([], []),
        make_example([(0, 1, "A")], []),
        make_example([], [(0, 1, "B")]),
        make_example([(0, 1, "A")], None),
    ]
    half = 2 * 3 / (8 + 7)
    scores = score(examples)
    assert scores["spans_sc_char_f"] == pytest.approx((half + 1 + 1 + 0 + 0) / 5)
    assert scores["spans_sc_char_f_per_type"] == {
        "A": pytest.approx((half + 1 + 1 + 0 + 1) / 5),
        "B": pytest.approx((1 + 1 + 1 + 1 + 0) / 5),
    }


def test_characters_ignore_labels_and_count_once():
    spans = [(0, 3, "A"), (1, 2, "A"), (2, 4, "B")]
    scores = score([make_example(spans, [(0, 4, "C")])])
    assert scores["spans_sc_char_f"] == 1.0
    assert scores["spans_sc_char_f_per_type"] == {"A": 0.0, "B": 0.0, "C": 0.0}


def through_doc_bin(doc):
    data = DocBin(docs=[doc], store_user_data=True).to_bytes()
    return next(iter(DocBin().from_bytes(data).get_docs(VOCAB)))


@pytest.mark.parametrize("load", [lambda doc: doc, through_doc_bin])
def test_original_characters_are_gold_where_they_are_kept(load):
    example = make_example([(0, 1, "A")], [(0, 1, "A")])
    # One mention of two fragments was moved, another one lost.
    example.reference.user_data[CHARACTERS_KEY] = {
        "sc": [["A", ((0, 2), (5, 6))], ["B", ((6, 8),)]],
        "other": [["A", ((0, 4),)]],
    }
    example.reference = load(example.reference)
    scores = score([example])
    assert scores["spans_sc_char_f"] == pytest.approx(2 * 2 / (4 + 5))
    assert scores["spans_sc_char_f_per_type"] == {"A": pytest.approx(2 * 2 / (4 + 3)), "B": 0.0}
    assert part(scores, "f", "partial_f", "mention_f") == [1.0, 1.0, 1.0]


def test_original_characters_parted_by_white_space_are_one_stretch():
    """A mention over a line break, as brat has it, beside one that tokens cannot hold."""
    words, spaces = ["one", "two", "\n", "three"], [True, False, False, False]
    docs = [Doc(VOCAB, words=words, spaces=spaces) for _ in range(2)]
    for doc in docs:
        doc.spans["sc"] = [Span(doc, 1, 4, label="A")]
    example = Example(*docs)
    assert example.reference.text == "one two\nthree"
    original = [["A", ((4, 7), (8, 13))], ["B", ((0, 2),)]]
    example.reference.user_data[CHARACTERS_KEY] = {"sc": original}
    assert score([example])["spans_sc_char_f_per_type"] == {"A": 1.0, "B": 0.0}


def test_characters_are_found_again_where_white_space_differs():
    predicted = make_doc([(0, 2, "A"), (2, 3, "B")], words=["ze", "ro", "one"])
    gold = make_doc([(0, 1, "A"), (1, 2, "B")], words=["zero", "one"])
    assert predicted.text != gold.text
    assert score([Example(predicted, gold)])["spans_sc_char_f"] == 1.0


def make_mentions(mentions, words=WORDS):
    """Mentions are a label and fragments."""
    doc = Doc(VOCAB, words=words)
    doc.spans["sc"] = [
        Span(doc, *offsets, label=label, span_id=f"m{i}" if len(parts) > 1 else "")
        for i, (label, *parts) in enumerate(mentions)
        for offsets in parts
    ]
    return doc


def test_mentions_are_right_when_all_fragments_are():
    gold = [("A", (0, 1), (2, 3)), ("A", (0, 1), (4, 5)), ("B", (1, 2)), ("B", (0, 1), (3, 4))]
    predicted = [
        ("A", (0, 1), (2, 3)),  # right
        ("A", (4, 5)),  # a part
        ("B", (1, 2)),  # right
        ("A", (0, 1), (3, 4)),  # wrong label
        ("B", (0, 1), (2, 3), (4, 5)),  # too much
    ]
    scores = score([Example(make_mentions(predicted), make_mentions(gold))])
    assert part(scores, *MENTION) == list(prf(2, 5, 4).values())
    assert part(scores, *DISCONTINUOUS) == list(prf(1, 3, 3).values())


def test_mentions_of_one_fragment_score_as_strict_spans():
    scores = score([make_example(PREDICTED, GOLD)])
    assert part(scores, *MENTION) == part(scores, "p", "r", "f")
    assert part(scores, *DISCONTINUOUS) == [None, None, None]
    gold = make_mentions([("A", (0, 1), (2, 3))])
    scores = score([Example(make_doc([(0, 1, "A"), (2, 3, "A")]), gold)])
    # All spans are there, but not the mention.
    assert part(scores, "p", "r", "f") == [1.0, 1.0, 1.0]
    assert part(scores, *MENTION, *DISCONTINUOUS) == [0.0] * 6


def test_fragments_are_compared_on_the_tokens_of_the_reference():
    predicted = make_mentions([("A", (0, 2), (3, 4))], words=["ze", "ro", "one", "two"])
    gold = make_mentions([("A", (0, 1), (2, 3))], words=["zero", "one", "two"])
    scores = score([Example(predicted, gold)])
    assert part(scores, *MENTION, *DISCONTINUOUS) == [1.0] * 6


spans_strategy = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 4), st.sampled_from("ABC")).map(
        lambda x: (x[0], min(x[0] + x[1], 9), x[2])
    ),
    max_size=6,
)
NINE = [f"w{i}" for i in range(9)]


def slow_scores(pairs, label):
    """Precision and recall of overlap, and the mean of characters; of one label, or of all."""
    found, reached, n_found, n_wanted, characters = Fraction(0), Fraction(0), 0, 0, Fraction(0)
    for pair in pairs:
        predicted, gold = (
            sorted({(s, e, ord(x)) for s, e, x in side if label in (None, x)}) for side in pair
        )
        found += sum(reference.shared_credit(predicted, gold))
        reached += sum(reference.shared_credit(gold, predicted))
        n_found += len(predicted)
        n_wanted += len(gold)
        # All words have two letters and a space.
        characters += reference.character_f_of(
            *([(3 * s, 3 * e - 1) for s, e, _ in side] for side in (predicted, gold))
        )
    p, r = found / max(n_found, 1), reached / max(n_wanted, 1)
    return [pytest.approx(float(x)) for x in (p, r, characters / len(pairs))]


@settings(deadline=None)
@given(st.lists(st.tuples(spans_strategy, spans_strategy), min_size=1, max_size=4))
def test_scores_match_slow_loops(pairs):
    scores = score([make_long(*pair, words=NINE) for pair in pairs])
    json.dumps(scores, allow_nan=False)
    assert part(scores, *MENTION) == part(scores, "p", "r", "f")
    labels = sorted({label for pair in pairs for side in pair for *_, label in side})
    assert list(scores["spans_sc_partial_per_type"] or []) == labels
    assert list(scores["spans_sc_char_f_per_type"] or []) == labels
    if labels:
        assert part(scores, "partial_p", "partial_r", "char_f") == slow_scores(pairs, None)
    for label in labels:
        partial = scores["spans_sc_partial_per_type"][label]
        characters = scores["spans_sc_char_f_per_type"][label]
        assert [partial["p"], partial["r"], characters] == slow_scores(pairs, label)


with_ids = st.lists(
    st.tuples(spans_strategy.filter(bool), st.sampled_from(["", "", "x", "y"])).map(
        lambda x: (*x[0][0], x[1])
    ),
    max_size=7,
)


def slow_mentions(spans):
    """Each mention as its label and its tokens."""
    tokens = {}
    for row, (start, end, label, name) in enumerate(spans):
        tokens.setdefault((label, name or row), set()).update(range(start, end))
    return {(label, frozenset(own)) for (label, _), own in tokens.items()}


def n_runs(tokens):
    return sum(token - 1 not in tokens for token in tokens)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(with_ids, with_ids), min_size=1, max_size=3))
def test_mentions_and_boundaries_match_slow_sets(pairs):
    examples, counts = [], [[0, 0, 0] for _ in range(3)]
    for pair in pairs:
        docs = [Doc(VOCAB, words=NINE) for _ in pair]
        for doc, spans in zip(docs, pair, strict=True):
            doc.spans["sc"] = [Span(doc, s, e, label=x, span_id=name) for s, e, x, name in spans]
        examples.append(Example(*docs))
        mentions = [slow_mentions(spans) for spans in pair]
        several = [{own for own in side if n_runs(own[1]) > 1} for side in mentions]
        edges = [{span[:2] for span in spans} for spans in pair]
        for row, (found, wanted) in zip(counts, (mentions, several, edges), strict=True):
            for i, own in enumerate((found & wanted, found, wanted)):
                row[i] += len(own)
    scores = score(examples)
    expected = [
        list(prf(right, max(n_found, 1), max(n_wanted, 1)).values())
        if n_found or n_wanted
        else [None] * 3
        for right, n_found, n_wanted in counts
    ]
    assert part(scores, *MENTION) == expected[0]
    assert part(scores, *DISCONTINUOUS) == expected[1]
    assert scores["spans_sc_boundary_f"] == expected[2][2]


def test_fragments_that_touch_or_overlap_are_one():
    gold = make_doc([])
    gold.spans["sc"] = [
        Span(gold, *offsets, label="A", span_id=name)
        for *offsets, name in ((0, 1, "x"), (1, 2, "x"), (3, 4, "x"), (3, 4, "y"), (3, 5, "y"))
    ]
    predicted = make_mentions([("A", (0, 2), (3, 4)), ("A", (3, 5))])
    scores = score([Example(predicted, gold)])
    assert part(scores, *MENTION, *DISCONTINUOUS) == [1.0] * 6


@settings(deadline=None)
@given(st.data(), st.sets(st.integers(1, 11)), st.sets(st.integers(1, 11)))
def test_other_tokens_change_only_what_they_hide(data, cuts_a, cuts_b):
    """Documents of one text, cut into tokens in two ways."""
    text = "abcdefghijkl"

    def draw_doc(cuts):
        edges = [0, *sorted(cuts), 12]
        words = [text[a:b] for a, b in pairwise(edges)]
        spans = data.draw(
            st.lists(
                st.lists(st.integers(0, len(words)), min_size=2, max_size=2, unique=True)
                .map(sorted)
                .flatmap(lambda x: st.tuples(st.just(x[0]), st.just(x[1]), st.sampled_from("AB"))),
                max_size=4,
            )
        )
        doc = Doc(VOCAB, words=words, spaces=[False] * len(words))
        doc.spans["sc"] = [Span(doc, start, end, label=label) for start, end, label in spans]
        return doc, {(edges[start], edges[end], label) for start, end, label in spans}

    (predicted, found), (gold, wanted) = draw_doc(cuts_a), draw_doc(cuts_b)
    scores = score([Example(predicted, gold)])
    assert part(scores, *MENTION) == part(scores, "p", "r", "f")
    expected = reference.character_f_of([span[:2] for span in found], [span[:2] for span in wanted])
    assert scores["spans_sc_char_f"] == pytest.approx(float(expected))
    if found or wanted:
        # Exact matches are right in any tokens, and what overlap adds is no less.
        right = len(found & wanted)
        assert (scores["spans_sc_r"] or 0.0) == pytest.approx(right / len(wanted) if wanted else 0)
        assert scores["spans_sc_partial_r"] >= (scores["spans_sc_r"] or 0.0) - 1e-9
    else:
        assert part(scores, *PARTIAL) == [None] * 3


# Calibration


def with_scores(spans, scores, gold):
    example = make_example(spans, gold)
    if spans is not None:
        example.predicted.spans["sc"].attrs["scores"] = scores
    return example


def test_calibration_error_by_hand():
    """One bin with scores 0.92 and 0.98, half right, and one with 0.3, wrong."""
    first = with_scores([(0, 2, "A"), (1, 3, "A")], [0.92, 0.98], [(0, 2, "A"), (1, 3, "B")])
    second = with_scores([(3, 4, "B")], [0.3], [(3, 5, "B")])
    expected = (2 * abs(0.95 - 0.5) + 0.3) / 3
    assert score([first, second])["spans_sc_ece"] == pytest.approx(expected)


def test_calibration_error_of_sure_and_right_spans_is_zero():
    assert score([with_scores([(0, 2, "A")], [1.0], [(0, 2, "A")])])["spans_sc_ece"] == 0.0


@pytest.mark.parametrize(
    ("spans", "scores", "gold"),
    [
        (None, [], [(0, 2, "A")]),
        ([], [], [(0, 2, "A")]),
        ([(0, 2, "A")], [0.5], None),
        ([(0, 2, "A")], [], [(0, 2, "A")]),
    ],
    ids=["no key", "no spans", "no annotation", "no scores"],
)
def test_without_scored_spans_there_is_no_calibration_error(spans, scores, gold):
    assert score([with_scores(spans, scores, gold)])["spans_sc_ece"] is None
