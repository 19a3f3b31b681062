"""Gold spans on predicted tokens, whatever the two tokenisations."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.vocab import Vocab

from spacy_spans.alignment import (
    count_keys,
    gold_mentions,
    gold_ranges,
    gold_spans,
    is_annotated,
    join_gold,
)
from spacy_spans.errors import SpansError

from . import reference

pytestmark = pytest.mark.installed

VOCAB = Vocab()
LABEL_IDS = {"A": 0, "B": 1}


def make_doc(words):
    """Words end with a space where white space follows them."""
    return Doc(
        VOCAB,
        words=[word if word.isspace() else word.rstrip(" ") for word in words],
        spaces=[not word.isspace() and word.endswith(" ") for word in words],
    )


def make_example(predicted, annotated, spans=None, key="sc"):
    """Spans are (start, end, label) on the annotated tokens, with an id where there is one; None
    leaves the key out.
    """
    example = Example(make_doc(predicted), make_doc(annotated))
    if spans is not None:
        gold = example.reference
        gold.spans[key] = [
            Span(gold, start, end, label=label, span_id=name[0] if name else "")
            for start, end, label, *name in spans
        ]
    return example


def aligned(gold):
    names = list(LABEL_IDS)
    assert gold.offsets.dtype == gold.labels.dtype == np.int32
    assert gold.offsets.shape == (len(gold.labels), 2)
    return [
        (start, end, names[label])
        for (start, end), label in zip(gold.offsets.tolist(), gold.labels.tolist(), strict=True)
    ]


def named(annotations, example):
    """Text and label of each, which stand where they say."""
    for text, _, start, end in annotations:
        fragments = text.split(" … ")
        covered = example.reference.text[start:end]
        assert covered.startswith(fragments[0])
        assert covered.endswith(tuple(fragments))
        assert len(fragments) > 1 or covered == text
    return [(own.text, own.label) for own in annotations]


def read(predicted, annotated, spans):
    example = make_example(predicted, annotated, spans)
    gold = gold_spans(example, "sc", LABEL_IDS)
    return aligned(gold), named(gold.misaligned, example)


WORDS = ["one ", "two ", "three ", "four"]


def test_same_tokens_keep_their_offsets():
    assert read(WORDS, WORDS, [(1, 3, "A"), (0, 1, "B")]) == ([(0, 1, "B"), (1, 3, "A")], [])


def test_nested_crossing_and_doubly_labelled_spans_survive():
    spans = [(0, 4, "A"), (0, 2, "A"), (0, 2, "B"), (1, 3, "A"), (1, 2, "A")]
    assert read(WORDS, WORDS, spans) == (sorted(spans), [])


@pytest.mark.parametrize("predicted", [WORDS, ["one ", "two ", "th", "ree ", "four"]])
def test_spans_given_twice_count_once(predicted):
    found, misaligned = read(predicted, WORDS, [(0, 2, "A"), (0, 2, "A"), (0, 2, "B")])
    assert found == [(0, 2, "A"), (0, 2, "B")]
    assert misaligned == []


@pytest.mark.parametrize("spans", [None, []])
def test_documents_without_spans_or_without_the_key_give_empty_arrays(spans):
    for predicted, annotated in ((WORDS, WORDS), (["on", "e"], ["one"]), ([], [])):
        gold = gold_spans(make_example(predicted, annotated, spans), "sc", LABEL_IDS)
        assert aligned(gold) == []
        assert gold.misaligned == []


def test_only_the_asked_key_is_read():
    example = make_example(WORDS, WORDS, [(0, 1, "A")], key="other")
    assert aligned(gold_spans(example, "sc", LABEL_IDS)) == []
    assert aligned(gold_spans(example, "other", LABEL_IDS)) == [(0, 1, "A")]


# Annotated tokens, with one span each, on other predicted tokens.
DIFFERENT_TOKENS = [
    pytest.param(["one ", "two"], ["on", "e ", "two"], (0, 2), (0, 1), None, id="merged"),
    pytest.param(["on", "e ", "two"], ["one ", "two"], (0, 1), (0, 2), None, id="split"),
    pytest.param(["on", "e ", "two"], ["one ", "two"], (1, 2), (2, 3), None, id="after a split"),
    pytest.param(["a", "bc"], ["ab", "c"], (0, 2), (0, 2), None, id="inside differs, ends agree"),
    pytest.param(["one ", "two"], ["on", "e ", "two"], (0, 1), None, "on", id="ends in a token"),
    pytest.param(["one ", "two"], ["on", "e ", "two"], (1, 3), None, "e two", id="starts in one"),
    pytest.param(["one"], ["o", "n", "e"], (1, 2), None, "n", id="within one token"),
    pytest.param(["a", "bc"], ["ab", "c"], (0, 1), None, "ab", id="end cut across"),
    pytest.param(["a", "bc"], ["ab", "c"], (1, 2), None, "c", id="start cut across"),
    pytest.param(["one ", "two"], ["one ", "t", "wo"], (0, 1), (0, 1), None, id="before it all"),
    pytest.param(["one ", " ", "two"], ["one ", "two"], (0, 2), (0, 3), None, id="extra space in"),
    pytest.param(["one ", " ", "two"], ["one ", "two"], (1, 2), (2, 3), None, id="extra space"),
    pytest.param(["\n", "one"], ["one"], (0, 1), (1, 2), None, id="leading white space"),
    pytest.param(["one", "\n"], ["one"], (0, 1), (0, 1), None, id="trailing white space"),
    pytest.param(["one ", "two"], ["one ", " ", "two"], (0, 3), (0, 2), None, id="fewer spaces"),
    pytest.param(["one two"], ["one ", "two"], (0, 2), (0, 1), None, id="token with a space"),
    pytest.param(["one two"], ["one ", "two"], (0, 1), None, "one", id="within such a token"),
    pytest.param(["a", "\n", "b", "c"], ["a", "\n", "bc"], (1, 3), (1, 4), None, id="same newline"),
]


@pytest.mark.parametrize(("predicted", "annotated", "span", "expected", "lost"), DIFFERENT_TOKENS)
def test_spans_on_different_tokens(predicted, annotated, span, expected, lost):
    found, misaligned = read(predicted, annotated, [(*span, "B")])
    assert found == ([] if expected is None else [(*expected, "B")])
    assert misaligned == ([] if lost is None else [(lost, "B")])


def test_misaligned_spans_are_counted_each_beside_aligned_ones():
    # Predicted: "one" "twothree" "four".
    annotated = ["one ", "two", "three ", "four"]
    predicted = ["one ", "twothree ", "four"]
    spans = [(0, 4, "A"), (1, 3, "B"), (1, 2, "A"), (1, 2, "B"), (1, 2, "B"), (2, 4, "A")]
    found, misaligned = read(predicted, annotated, spans)
    assert found == [(0, 3, "A"), (1, 2, "B")]
    assert sorted(misaligned) == [("three four", "A"), ("two", "A"), ("two", "B")]


def test_a_span_of_white_space_alone_that_has_no_token_is_misaligned():
    assert read(["one ", "two"], ["one ", " ", "two"], [(1, 2, "A")]) == ([], [(" ", "A")])


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("predicted", [WORDS, ["one ", "two ", "th", "ree ", "four"]])
def test_spans_that_hold_no_token_are_counted_with_the_misaligned(predicted, position):
    spans = [(position, position, "A"), (0, 2, "B")]
    assert read(predicted, WORDS, spans) == ([(0, 2, "B")], [("", "A")])


def test_a_span_that_holds_no_token_of_an_empty_document_is_misaligned():
    assert read([], [], [(0, 0, "A")]) == ([], [("", "A")])


def test_differences_in_case_do_not_matter():
    assert read(["ONE ", "Two"], ["one ", "two"], [(1, 2, "A")]) == ([(1, 2, "A")], [])


def test_unknown_labels_are_an_error_that_names_span_key_and_labels():
    example = make_example(WORDS, WORDS, [(0, 2, "A"), (1, 3, "C")])
    message = r"'two three' labelled 'C' in 'sc'.*only \['A', 'B'\].*labels file"
    with pytest.raises(SpansError, match=message):
        gold_spans(example, "sc", LABEL_IDS)


def test_a_predicted_document_without_tokens_loses_nothing_silently():
    with pytest.raises(ValueError, match="E949"):
        read([], ["one"], [(0, 1, "A")])


# One text, cut in two ways, never into white space alone.
TEXT = "Ab c def gh iijk"


def cut(positions):
    """Cut the text before the given positions, leaving white space at the end of words."""
    bounds = sorted({0, len(TEXT), *(p for p in positions if TEXT[p] != " ")})
    return [TEXT[low:high] for low, high in pairwise(bounds)]


segmentation = st.sets(st.integers(1, len(TEXT) - 1)).map(cut)


@settings(max_examples=150, deadline=None)
@given(segmentation, segmentation, st.data())
def test_random_segmentations_match_offsets_in_characters_and_spacy(predicted, annotated, data):
    span = st.tuples(
        st.integers(0, len(annotated) - 1),
        st.integers(1, len(annotated)),
        st.sampled_from(sorted(LABEL_IDS)),
    ).map(lambda x: (x[0], min(len(annotated), x[0] + x[1]), x[2]))
    spans = data.draw(st.lists(span, max_size=5, unique=True))
    example = make_example(predicted, annotated, spans)
    gold = gold_spans(example, "sc", LABEL_IDS)

    expected, lost = [], []
    for start, end, label in sorted(spans):
        moved = reference.align_by_characters(predicted, annotated, (start, end))
        if moved is None:
            lost.append((example.reference[start:end].text, label))
        else:
            expected.append((*moved, label))
    assert sorted(aligned(gold)) == sorted(expected)
    assert sorted(named(gold.misaligned, example)) == sorted(lost)

    by_spacy = example.get_aligned_spans_y2x(example.reference.spans["sc"], allow_overlap=True)
    spacy_spans = [(span.start, span.end, span.label_) for span in by_spacy]
    assert sorted(aligned(gold)) == sorted(spacy_spans)


def test_gold_of_documents_laid_end_to_end():
    gold = [
        gold_spans(make_example(WORDS, WORDS, spans), "sc", LABEL_IDS)
        for spans in ([(1, 3, "B")], [], [(0, 1, "A"), (3, 4, "B")])
    ]
    offsets, labels = join_gold(gold, [4, 4, 4])
    assert offsets.tolist() == [[1, 3], [8, 9], [11, 12]]
    assert labels.tolist() == [1, 0, 1]
    offsets, labels = join_gold([], [])
    assert offsets.shape == (0, 2)
    assert labels.shape == (0,)


# Mentions


def mentions_of(gold):
    """Label and fragments of each mention, in order."""
    for column in (gold.offsets, gold.labels, gold.mentions):
        assert column.dtype == np.int32
    assert gold.offsets.shape == (len(gold.labels), 2)
    # Counted from 0, ascending, without gaps.
    assert gold.mentions.tolist() == np.unique(gold.mentions, return_inverse=True)[1].tolist()
    found = {}
    for span, label, mention in zip(*(column.tolist() for column in gold[:3]), strict=True):
        found.setdefault((mention, "AB"[label]), []).append(tuple(span))
    return [(label, *spans) for (_, label), spans in found.items()]


def read_mentions(predicted, annotated, spans, mode="strict"):
    example = make_example(predicted, annotated, spans)
    gold = gold_mentions(example, "sc", LABEL_IDS, mode)
    return mentions_of(gold), named(gold.misaligned, example), named(gold.moved, example)


LETTERS = [f"{letter} " for letter in "abcdefgh"]


def test_spans_that_share_id_and_label_are_one_mention():
    spans = [
        (6, 7, "A", "m1"),
        (2, 3, "A"),
        (0, 1, "A", "m1"),
        (4, 5, "B", "m1"),
        (0, 1, "B", "m1"),
        (2, 3, "B"),
        (0, 1, "A"),
        (1, 2, "B", "alone"),
    ]
    assert read_mentions(LETTERS, LETTERS, spans) == (
        [
            ("A", (0, 1)),
            ("A", (0, 1), (6, 7)),
            ("B", (0, 1), (4, 5)),
            ("B", (1, 2)),
            ("A", (2, 3)),
            ("B", (2, 3)),
        ],
        [],
        [],
    )


def test_mentions_given_twice_count_once():
    spans = [(0, 1, "A"), (0, 1, "A"), (2, 3, "A", "x"), (4, 5, "A", "x")]
    spans += [(4, 5, "A", "y"), (2, 3, "A", "y"), (2, 3, "A", "y")]
    expected = [("A", (0, 1)), ("A", (2, 3), (4, 5))]
    assert read_mentions(LETTERS, LETTERS, spans) == (expected, [], [])


@pytest.mark.parametrize("mode", ["strict", "contract", "expand"])
@pytest.mark.parametrize("spans", [None, []])
def test_documents_without_mentions_give_empty_arrays(spans, mode):
    for predicted, annotated in ((WORDS, WORDS), (["on", "e"], ["one"]), ([], [])):
        assert read_mentions(predicted, annotated, spans, mode) == ([], [], [])


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 1), (1, 3)], (0, 3)),
        ([(0, 4), (1, 2)], (0, 4)),
        ([(0, 3), (2, 5)], (0, 5)),
        ([(2, 3), (0, 1), (1, 2)], (0, 3)),
    ],
)
def test_fragments_that_touch_or_overlap_are_joined_and_said_to_be(spans, expected):
    found, misaligned, moved = read_mentions(LETTERS, LETTERS, [(*s, "A", "m") for s in spans])
    assert (found, misaligned) == ([("A", expected)], [])
    assert [label for _, label in moved] == ["A"]
    # The same as one that is there already.
    both, _, moved = read_mentions(
        LETTERS, LETTERS, [*((*s, "A", "m") for s in spans), (*expected, "A")]
    )
    assert both == found
    assert len(moved) == 1


# Annotated: "one two - three four". Predicted: "one two-three four", of three tokens.
HYPHEN = ["one ", "two", "-", "three ", "four"]
MERGED = ["one ", "two-three ", "four"]
MODES = [
    # Spans on HYPHEN; where they are on MERGED when strict, contracted, expanded.
    pytest.param([(0, 1)], [(0, 1)], [(0, 1)], [(0, 1)], id="fits"),
    pytest.param([(1, 4)], [(1, 2)], [(1, 2)], [(1, 2)], id="whole token"),
    pytest.param([(0, 5)], [(0, 3)], [(0, 3)], [(0, 3)], id="all"),
    pytest.param([(0, 2)], None, [(0, 1)], [(0, 2)], id="end inside"),
    pytest.param([(3, 5)], None, [(2, 3)], [(1, 3)], id="start inside"),
    pytest.param([(2, 3)], None, None, [(1, 2)], id="inside altogether"),
    pytest.param([(0, 2), (4, 5)], None, [(0, 1), (2, 3)], [(0, 3)], id="touch when expanded"),
    pytest.param([(0, 1), (3, 5)], None, [(0, 1), (2, 3)], [(0, 3)], id="touch as well"),
    pytest.param([(0, 1), (2, 3)], None, None, [(0, 2)], id="a fragment inside"),
    pytest.param([(1, 2), (3, 4)], None, None, [(1, 2)], id="both in one token"),
    pytest.param([(0, 1), (4, 5)], [(0, 1), (2, 3)], [(0, 1), (2, 3)], [(0, 1), (2, 3)], id="both"),
]


@pytest.mark.parametrize(("spans", "strict", "contracted", "expanded"), MODES)
def test_mentions_on_other_tokens_by_mode(spans, strict, contracted, expanded):
    text = " … ".join(make_doc(HYPHEN)[start:end].text for start, end in spans)
    given_spans = [(*span, "B", "m") for span in spans]
    modes = {"strict": strict, "contract": contracted, "expand": expanded}
    for mode, expected in modes.items():
        found, misaligned, moved = read_mentions(MERGED, HYPHEN, given_spans, mode)
        assert found == ([] if expected is None else [("B", *expected)])
        assert misaligned == ([(text, "B")] if expected is None else [])
        assert moved == ([(text, "B")] if strict is None is not expected else [])


BLANKS = ["one", " ", "two", " ", "three"]


@pytest.mark.parametrize(
    ("span", "expected"),
    [((1, 3), (1, 2)), ((2, 4), (1, 2)), ((1, 4), (1, 2)), ((0, 2), (0, 1)), ((3, 5), (2, 3))],
)
def test_white_space_without_a_token_at_an_end_does_not_lose_the_words(span, expected):
    predicted = ["one ", "two ", "three"]
    text = "".join(BLANKS[slice(*span)])
    assert read_mentions(predicted, BLANKS, [(*span, "A")]) == ([], [(text, "A")], [])
    for mode in ("contract", "expand"):
        found = read_mentions(predicted, BLANKS, [(*span, "A"), (1, 2, "B"), (2, 3, "B")], mode)
        mentions = sorted([("A", expected), ("B", (1, 2))], key=lambda own: own[1])
        assert found == (mentions, [(" ", "B")], [(text, "A")])
    # The end that is left is inside of a token.
    found = read_mentions(["one ", "twoo"], ["one", " ", "two", "o"], [(1, 3, "A")], "expand")
    assert found == ([("A", (1, 2))], [], [(" two", "A")])
    found = read_mentions(["one ", "twoo"], ["one", " ", "two", "o"], [(1, 3, "A")], "contract")
    assert found == ([], [(" two", "A")], [])


def test_mentions_that_become_the_same_count_once_and_all_as_moved():
    spans = [(1, 2, "A"), (3, 4, "A"), (3, 4, "B")]
    found, misaligned, moved = read_mentions(MERGED, HYPHEN, spans, "expand")
    assert found == [("A", (1, 2)), ("B", (1, 2))]
    assert misaligned == []
    assert sorted(moved) == [("three", "A"), ("three", "B"), ("two", "A")]


@pytest.mark.parametrize("mode", ["strict", "contract", "expand"])
def test_a_fragment_without_a_token_loses_the_mention(mode):
    spans = [(0, 1, "A", "m"), (3, 3, "A", "m"), (0, 2, "B"), (2, 2, "B")]
    found, misaligned, moved = read_mentions(WORDS, WORDS, spans, mode)
    assert (found, moved) == ([("B", (0, 2))], [])
    assert sorted(misaligned) == [("", "B"), ("one … ", "A")]
    # Only white space, of which the predicted document has none.
    spans = [(1, 2, "A")]
    assert read_mentions(["one ", "two"], ["one ", " ", "two"], spans, mode)[1] == [(" ", "A")]


def test_unknown_labels_of_mentions_are_an_error():
    example = make_example(WORDS, WORDS, [(0, 2, "A"), (1, 3, "C")])
    with pytest.raises(SpansError, match=r"'two three' labelled 'C' in 'sc'.*only \['A', 'B'\]"):
        gold_mentions(example, "sc", LABEL_IDS)


@settings(max_examples=100, deadline=None)
@given(segmentation, segmentation, st.data())
def test_mentions_of_random_segmentations_match_offsets_in_characters(predicted, annotated, data):
    span = st.tuples(st.integers(0, len(annotated) - 1), st.integers(1, len(annotated))).map(
        lambda x: (x[0], min(len(annotated), x[0] + x[1]), "A")
    )
    spans = data.draw(st.lists(span, max_size=5, unique=True))
    example = make_example(predicted, annotated, spans)
    strict = gold_mentions(example, "sc", LABEL_IDS)
    same = gold_spans(example, "sc", LABEL_IDS)
    assert mentions_of(strict) == [("A", (a, b)) for a, b, _ in sorted(aligned(same))]
    assert sorted(strict.misaligned) == sorted(same.misaligned)
    assert strict.moved == []
    doc = example.predicted
    for mode in ("contract", "expand"):
        gold = gold_mentions(example, "sc", LABEL_IDS, mode)
        expected = set()
        for start, end, _ in spans:
            own = example.reference[start:end]
            moved = doc.char_span(own.start_char, own.end_char, alignment_mode=mode)
            if moved is not None and len(moved):
                expected.add(("A", (moved.start, moved.end)))
        assert set(mentions_of(gold)) == expected


def test_keys_are_counted_by_reference_documents():
    examples = [
        make_example(WORDS, WORDS, [(0, 1, "A")]),
        make_example(WORDS, WORDS, []),
        make_example(WORDS, WORDS, [(0, 1, "A")], key="other"),
        make_example(WORDS, WORDS),
    ]
    examples[3].predicted.spans["sc"] = []
    assert count_keys(examples) == {"sc": 2, "other": 1}
    assert count_keys([]) == {}


def test_ranges_of_entities_are_those_of_spans_at_the_same_place():
    words = ["don't ", "pay ", "too ", "well"]
    predicted = ["do", "n't ", "pay ", "too well"]
    example = make_example(predicted, words, [(0, 1, "A"), (2, 3, "B")])
    gold = example.reference
    assert not is_annotated(example, ["doc.ents"])
    gold.ents = [Span(gold, 0, 1, label="A"), Span(gold, 2, 3, label="B")]
    assert gold_ranges(example, ["doc.ents"]).tolist() == [[0, 2], [3, 4]]
    assert gold_ranges(example, ["sc"]).tolist() == [[0, 2], [3, 4]]
    assert gold_ranges(example, ["doc.ents", "sc", "none"]).tolist() == [[0, 2], [3, 4]]
    assert is_annotated(example, ["none", "doc.ents"])
    gold.spans.clear()
    assert not is_annotated(example, ["sc"])
    # Annotated, with nothing in it.
    gold.ents = []
    assert is_annotated(example, ["doc.ents"])
    assert gold_ranges(example, ["doc.ents"]).tolist() == []
