"""What `multispan_tagger` says at initialize about gold that is lost: counts and examples."""

import warnings

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Corpus, Example

from spacy_spans.converters import CHARACTERS_KEY, ConvertSettings, convert
from spacy_spans.errors import SpansError, SpansWarning

from . import (
    DATA,
    FLAT_DATA,
    SCHEMES,
    TAG_DATA,
    TAGGER,
    found,
    make_example,
    make_examples,
    make_nlp,
    make_pipe,
    train,
    write_spans,
)

pytestmark = pytest.mark.installed

BOUNDARY = {"scheme": SCHEMES["boundary"], "loss": "token"}


def warnings_at_initialize(nlp, examples):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nlp.initialize(lambda: examples)
    assert all(issubclass(warning.category, SpansWarning) for warning in caught)
    return [str(warning.message) for warning in caught]


def said_of(data, **config):
    nlp = make_nlp(**TAGGER, **config)
    return warnings_at_initialize(nlp, make_examples(nlp, data))


# Nothing lost


@pytest.mark.parametrize(
    ("data", "config"),
    [
        (TAG_DATA, {}),
        (TAG_DATA, {"scheme": SCHEMES["io"]}),
        (TAG_DATA, {"scheme": SCHEMES["bioes"], "loss": "token"}),
        (TAG_DATA, BOUNDARY),
        (FLAT_DATA, {"layers": "shared"}),
        (FLAT_DATA, {"layers": "shared", "scheme": SCHEMES["io"]}),
        ([("a b c", [(0, 3, "A"), (1, 3, "A"), (2, 3, "A")])], BOUNDARY),
        ([("a b c", [(0, 1, "A"), (1, 3, "A")])], {}),
        (DATA[1:], {"discontinuous": False}),
    ],
    ids=str,
)
def test_nothing_is_said_when_nothing_is_lost(data, config):
    assert said_of(data, **config) == []


def test_training_after_initialize_does_not_warn_again():
    nlp = make_nlp(**TAGGER)
    examples = make_examples(nlp)
    assert len(warnings_at_initialize(nlp, examples)) == 1
    nlp.update(examples)
    nlp.evaluate(examples)


def test_documents_of_several_batches_count_like_documents_one_by_one():
    nlp, pipe = make_pipe(**TAGGER)
    bare = Example(nlp.make_doc("a b"), nlp.make_doc("a b"))
    lossy, fine = ("a b c", [(0, 2, "A"), (1, 3, "A")]), ("d e f", [(0, 1, "A")])
    some = [bare, *make_examples(nlp, [fine, ("", []), lossy]), bare]
    examples = [bare] * 64 + some * 30
    with pytest.warns(SpansWarning) as caught:
        nlp.initialize(lambda: examples)
    lost, without_key = (str(warning.message) for warning in caught)
    assert "30 of 90 gold spans in 'sc' cannot be expressed" in lost
    assert "(A 30; e.g. 'b c')" in lost
    assert "124 of 214 training documents have no doc.spans['sc']" in without_key
    of_one, of_all = pipe.new_report(), pipe.new_report()
    tags = [own.tags for example in examples for own in pipe.count_gold(of_one, [example])]
    at_once = [own.tags for own in pipe.count_gold(of_all, examples)]
    assert len(at_once) == 4
    np.testing.assert_array_equal(np.concatenate(tags), np.concatenate(at_once))
    assert of_one.messages("pipe", "sc") == of_all.messages("pipe", "sc")
    assert list(pipe.count_gold(pipe.new_report(), [])) == []


# What the scheme cannot express


@pytest.mark.parametrize(
    ("data", "config", "count", "labels", "reason"),
    [
        # SKILL at (0, 3), (1, 4) and (2, 3): the last alone is worth as much as any other.
        (DATA, {}, "2 of 7", "SKILL 2", "'bio' with 3 layers of tags loses spans of one label"),
        (DATA, {"scheme": SCHEMES["bioes"]}, "2 of 7", "SKILL 2", "'bioes' with 3 layers"),
        # (0, 3) and (2, 3) end together.
        (DATA, BOUNDARY, "1 of 7", "SKILL 1", "and do not end together. Use another scheme, or"),
        (
            [("a b c d", [(0, 2, "A"), (2, 3, "A"), (3, 4, "A"), (3, 4, "B")])],
            {"scheme": SCHEMES["io"], "layers": "per_label"},
            "1 of 4",
            "A 1",
            "that touch or overlap. Use another scheme, or span_enumerator for such spans.",
        ),
        (
            [("a b c d", [(0, 3, "A"), (2, 4, "B"), (0, 1, "B")])],
            {"layers": "shared"},
            "1 of 3",
            "A 1",
            "1 layer of tags loses spans that overlap, whatever their labels, and spans of one "
            'label that overlap. Use layers = "per_label" or another scheme.',
        ),
        (
            [("a b c d", [(0, 3, "A"), (3, 4, "A"), (3, 4, "B")])],
            {"layers": "shared", "scheme": SCHEMES["io"]},
            "1 of 3",
            None,
            "and spans of one label that touch or overlap. Use layers",
        ),
    ],
    ids=str,
)
def test_what_the_scheme_cannot_express_is_counted_by_label(data, config, count, labels, reason):
    (message,) = said_of(data, **config)
    assert message.startswith(
        f"multispan_tagger: {count} gold spans in 'sc' cannot be expressed and are not learned ("
    )
    assert labels is None or f"({labels}; e.g. " in message
    assert reason in message


def test_the_example_is_one_of_those_lost_and_shortened():
    words = [f"w{i}" for i in range(60)]
    data = [(" ".join(words), [(0, 60, "A"), (0, 2, "A"), (30, 31, "A")])]
    (message,) = said_of(data, layers="per_label")
    assert "1 of 3 gold spans" in message
    assert f"e.g. {' '.join(words)[:59] + '…'!r}" in message


def test_the_rest_is_learned_and_what_is_said_to_be_lost_is_not():
    nlp = make_nlp(**TAGGER)
    with pytest.warns(SpansWarning, match="SKILL 2"):
        train(nlp, make_examples(nlp))
    (doc, *others) = nlp.pipe(text for text, _ in DATA)
    lost = {*DATA[0][1]} - {*found(doc)}
    assert len(lost) == 2
    assert {label for *_, label in lost} == {"SKILL"}
    assert [found(other) for other in others] == [spans for _, spans in DATA[1:]]


# Discontinuous mentions


def test_discontinuous_mentions_without_links_are_counted():
    (message,) = said_of(TAG_DATA, discontinuous=False)
    assert message == (
        "multispan_tagger: 1 of 6 gold spans in 'sc' are discontinuous and learned as a span for "
        "each fragment, so they will not be found as mentions (DUTY 1; e.g. 'We … well'). Set "
        "discontinuous = true."
    )


@pytest.mark.parametrize(
    ("spans", "max_gap", "labels"),
    [
        # Further apart than max_gap, on the whole.
        ([(0, 1, "A", "m"), (4, 5, "A", "m")], 2, "A 1; e.g. 'a … e'"),
        ([(0, 1, "A", "m"), (2, 3, "A", "m"), (4, 5, "A", "m")], 2, "A 1; e.g. 'a … c … e'"),
        # Fragments overlap those of another.
        ([(0, 2, "A", "m"), (4, 5, "A", "m"), (1, 2, "B", "n"), (3, 4, "B", "n")], 9, "1; e.g."),
        # Part of a larger mention.
        (
            [(i, i + 1, "A", "m") for i in (0, 2, 4)] + [(i, i + 1, "A", "n") for i in (0, 2)],
            9,
            "A 1; e.g. 'a … c'",
        ),
    ],
    ids=["gap", "whole gap", "overlap", "part"],
)
def test_mentions_that_links_cannot_hold_are_counted(spans, max_gap, labels):
    (message,) = said_of([("a b c d e f", spans)], max_gap=max_gap)
    assert message.startswith("multispan_tagger: 1 of ")
    assert "are discontinuous, cannot be put together again from links and are not " in message
    assert labels in message
    assert f"max_gap = {max_gap} tokens apart" in message


def test_the_largest_gap_and_the_one_after_it():
    data = [("a b c d e f", [(0, 1, "A", "m"), (4, 5, "A", "m")])]
    assert said_of(data, max_gap=3) == []
    assert len(said_of(data, max_gap=2)) == 1


# Limits, tokens, conversion


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_length": 3}, "3 of 6 gold spans in 'sc' are shorter than min_length = 1 or longer"),
        ({"min_length": 2}, "1 of 6 gold spans in 'sc' are shorter than min_length = 2 or longer"),
        ({"min_length": 3, "max_length": 5}, "4 of 6 gold spans"),
    ],
)
def test_mentions_outside_of_the_limits_are_counted(limits, message):
    # Lengths of 6, 6, 4 and 3 tokens, of 1, and of two fragments together.
    (said,) = said_of(TAG_DATA, **limits)
    assert message in said
    assert "the longest has 6 tokens" in said


def make_misaligned(nlp):
    """One gold span that fits, one whose end is inside of a token, one inside altogether."""
    gold = Doc(nlp.vocab, words=["one", "two", "-", "three"], spaces=[True, False, False, False])
    write_spans(gold, "sc", [(0, 1, "A"), (0, 2, "B"), (3, 4, "A")])
    return Example(Doc(nlp.vocab, words=["one", "two-three"], spaces=[True, False]), gold)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("strict", ["2 of 3 gold spans in 'sc' begin or end inside a token|A 1, B 1; e.g. 'one t"]),
        (
            "contract",
            [
                "1 gold span in 'sc' with an end inside of a token|B 1; e.g. 'one two'",
                "1 of 3 gold spans in 'sc' begin or end inside a token|A 1; e.g. 'three'",
            ],
        ),
        ("expand", ["2 gold spans in 'sc' with an end inside of|(A 1, B 1; e.g. 'one two')"]),
    ],
)
def test_gold_that_ends_inside_of_tokens_is_lost_or_moved_as_the_mode_says(mode, expected):
    nlp = make_nlp(**TAGGER, alignment_mode=mode)
    # Both labels have an example, whatever the mode.
    examples = [make_misaligned(nlp), make_example(nlp, "b", [(0, 1, "B")])]
    said = warnings_at_initialize(nlp, examples)
    expected = [text.replace("of 3", "of 4") for text in expected]
    assert len(said) == len(expected)
    for message, parts in zip(said, expected, strict=True):
        assert all(part in message for part in parts.split("|")), message


def test_fragments_that_touch_are_one_and_counted_as_moved():
    spans = [(0, 1, "A", "m"), (1, 3, "A", "m")]
    (message,) = said_of([("a b c", spans)])
    assert message.startswith(
        "multispan_tagger: 1 gold span in 'sc' with an end inside of a token, or with"
    )
    assert "(A 1; e.g. 'a … b c')" in message


# Fits its tokens, cut in a word, cut so that nothing is left, and in two lines.
CONVERTED = [
    ["A", 0, 3, "one"],
    ["A", 4, 9, "two t"],
    ["B", 8, 10, "th"],
    ["B", 14, 23, "four\nfive"],
]
CONVERTED_TEXT = "one two three four\nfive"


@pytest.mark.parametrize("mode", ["strict", "contract", "expand"])
def test_annotations_that_conversion_moved_or_lost_are_counted(tmp_path, mode):
    lines = []
    for number, (label, start, end, text) in enumerate(CONVERTED):
        first = start + (text + "\n").index("\n")
        offsets = f"{start} {first}" + (f";{first + 1} {end}" if first < end else "")
        lines.append(f"T{number}\t{label} {offsets}\t{' '.join(text.split())}\n")
    folder = tmp_path / "brat"
    folder.mkdir()
    (folder / "doc.txt").write_text(CONVERTED_TEXT, encoding="utf8")
    (folder / "doc.ann").write_text("".join(lines), encoding="utf8")
    output = tmp_path / "data.spacy"
    convert(folder, output, ConvertSettings(alignment_mode=mode))
    nlp = make_nlp(**TAGGER)
    examples = list(Corpus(output)(nlp))
    assert CHARACTERS_KEY in examples[0].reference.user_data
    said = [text for text in warnings_at_initialize(nlp, examples) if "converted" in text]
    assert said == [
        "multispan_tagger: 2 annotations for 'sc' moved to token boundaries, or left out, "
        "when the data was converted. spans_sc_char_f is measured against their original "
        "characters."
    ]


# Keys and labels


def test_documents_without_the_key_and_labels_without_examples_are_counted():
    nlp, pipe = make_pipe(**TAGGER)
    for label in ("NEVER", "SKILL", "NOR"):
        pipe.add_label(label)
    bare = Example(nlp.make_doc("We pay well"), nlp.make_doc("We pay well"))
    said = warnings_at_initialize(nlp, [*make_examples(nlp, TAG_DATA), bare, bare])
    assert [message.split(" in 'sc'")[0] for message in said] == [
        "multispan_tagger: 2 of 6 training documents have no doc.spans['sc']; nothing is "
        "learned from them. Those that are annotated and have no span need an empty group.",
        "multispan_tagger: no training example for NEVER, NOR",
    ]


def test_each_loss_is_said_once():
    nlp, pipe = make_pipe(**TAGGER, alignment_mode="strict", discontinuous=False, max_length=5)
    pipe.add_label("NEVER")
    examples = [*make_examples(nlp), *make_examples(nlp, TAG_DATA[2:3]), make_misaligned(nlp)]
    said = warnings_at_initialize(nlp, examples * 2)
    kinds = ["cannot be expressed", "and learned as a span for each", "longer than max_length = 5"]
    kinds += ["begin or end inside a token", "no training example for NEVER, B"]
    assert len(said) == len(kinds)
    for message, kind in zip(said, kinds, strict=True):
        assert kind in message


def test_a_missing_key_is_an_error_that_lists_the_keys_there_are():
    nlp = make_nlp(**TAGGER)
    examples = make_examples(nlp, TAG_DATA, "skills")
    with pytest.raises(SpansError, match=r"No training document has doc\.spans\['sc'\].*'skills'"):
        nlp.initialize(lambda: examples)
    nlp = make_nlp(**TAGGER)
    examples = make_examples(nlp, [("a", []), ("", [])])
    with pytest.raises(SpansError, match=r"have doc\.spans\['sc'\] have no span in it"):
        nlp.initialize(lambda: examples)


def test_data_with_a_label_that_was_not_given_is_an_error():
    nlp, pipe = make_pipe(**TAGGER)
    examples = make_examples(nlp, TAG_DATA)
    with pytest.raises(SpansError, match=r"labelled 'SKILL' in 'sc'.*knows only \['DUTY'\]"):
        pipe.initialize(lambda: examples, labels=["DUTY"])


def test_given_labels_and_empty_groups_only_are_no_error():
    nlp, pipe = make_pipe(**TAGGER)
    examples = make_examples(nlp, [("a", []), ("", [])])
    with pytest.warns(SpansWarning, match="no training example for A in 'sc'"):
        pipe.initialize(lambda: examples, labels=["A"])
    assert np.isfinite(pipe.update(examples)["multispan_tagger"])
    assert spacy.blank("en").from_config(nlp.config).pipe_names == ["multispan_tagger"]


# Ids of something else than mentions


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        # As of a pattern that matches twice, or of one id for patterns with two labels.
        ([(0, 1, "A", "p"), (2, 3, "A", "p")], "1 of 1 times"),
        ([(0, 1, "A", "p"), (1, 2, "B", "p"), (3, 5, "A", "q"), (6, 7, "A", "q")], "1 of 2 times"),
        # Ids of single spans, fragments that differ, and ids that this package gives.
        ([(0, 1, "A", "p"), (1, 2, "A", "q")], None),
        ([(0, 1, "A", "p"), (3, 5, "A", "p")], None),
        ([(0, 1, "A", "m1"), (2, 3, "A", "m1")], None),
    ],
)
def test_ids_that_look_like_those_of_patterns_are_counted(spans, expected):
    said = [text for text in said_of([("x y X z a b c", spans)]) if "share a Span.id" in text]
    assert len(said) == (expected is not None)
    if said:
        assert f"multispan_tagger: {expected} that spans of a document share" in said[0]
        assert ("'x (A) … X (A)'" in said[0]) or ("'x (A) … y (B)'" in said[0])
        assert "write the group again without ids" in said[0]


def test_what_span_ruler_writes_is_noticed():
    nlp = make_nlp(**TAGGER)
    ruler = spacy.blank("en").add_pipe("span_ruler", config={"spans_key": "sc"})
    ruler.add_patterns([{"label": "A", "pattern": "red", "id": "colour"}])
    gold = ruler(nlp.make_doc("red and red"))
    said = warnings_at_initialize(nlp, [Example(nlp.make_doc(gold.text), gold)])
    assert [text for text in said if "1 of 1 times that spans of a document share" in text]


def test_an_id_that_the_vocabulary_does_not_know_is_no_error():
    nlp = make_nlp(**TAGGER)
    example = make_example(nlp, "x y x", [(0, 1, "A", 12345), (2, 3, "A", 12345)])
    said = warnings_at_initialize(nlp, [example])
    assert [text for text in said if "1 of 1 times that spans of a document share" in text]
