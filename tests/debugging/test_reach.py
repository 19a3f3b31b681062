"""Gold that cannot be given: by what, why, and where the first of it stands."""

import pytest
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example

from spacy_spans.debugging.reach import check_reach

from . import VOCAB, make, make_component, said, side

LENGTH = {"@misc": "spacy-spans.length_candidates.v1", "max_length": 3}
NGRAMS = {"@misc": "spacy.ngram_range_suggester.v1"}
HEADER = ("side", "label", "lost", "because", "first", "document: characters")


@pytest.fixture(scope="module")
def enumerator():
    return make_component("span_enumerator", candidates=LENGTH)


@pytest.mark.parametrize("factory", ["span_enumerator", "multispan_tagger", "spancat"])
def test_nothing_to_reach(factory):
    for docs in ([], [make("")], [make("a", key=None)], [make("a")]):
        section = check_reach({"train": side(*docs)}, make_component(factory))
        assert said(section) == ["info: nothing to check: no span in doc.spans['sc']"]
        assert section.table == []


def test_what_is_too_long_for_candidates_stands_in_the_table(enumerator):
    train = [
        make("x", key=None),
        make("a b c d", (0, 4, "LONG"), (0, 1, "SHORT")),
        make("e f g h i", (0, 5, "LONG"), (1, 5, "SHORT")),
    ]
    dev = [make("a b c", (0, 3, "LONG"))]
    section = check_reach({"train": side(*train), "dev": side(*dev)}, enumerator)
    levels = [level for level, _ in section.findings]
    assert levels == ["warning", "info", "good", "info"]
    assert "train: 3 of 4 gold spans in 'sc' are no candidates" in section.findings[0][1]
    assert "dev: all of 1 gold span" in section.findings[2][1]
    because = "longer than max_length = 3"
    assert section.table == [
        HEADER,
        ("train", "LONG", "2", because, "a b c d", "1: 0 to 7"),
        ("train", "SHORT", "1", because, "f g h i", "2: 2 to 9"),
    ]


@pytest.mark.parametrize("factory", ["span_enumerator", "multispan_tagger", "spancat"])
def test_a_side_of_which_nothing_can_be_given_is_an_error(factory):
    predicted = Doc(VOCAB, words=["ab"])
    reference = Doc(VOCAB, words=["a", "b"], spaces=[False, False])
    reference.spans["sc"] = [Span(reference, 0, 1, "A")]
    component = make_component(
        factory, **({"alignment_mode": "strict"} if factory == "multispan_tagger" else {})
    )
    section = check_reach({"train": [Example(predicted, reference)]}, component)
    assert ("error", "train: none of 1 gold span can be given: see above") in section.findings
    because = "with an end inside a token, or without any token"
    assert section.table[1:] == [("train", "A", "1", because, "a", "0: 0 to 1")]
    # One that can be is enough.
    more = [Example(predicted, reference), *side(make("a", (0, 1, "A")))]
    section = check_reach({"train": more}, component)
    assert "error" not in [level for level, _ in section.findings]


def test_other_reasons_of_candidates():
    given = {"@misc": "spacy-spans.preset_candidates.v1", "spans_key": "given"}
    within = {**LENGTH, "max_length": 2, "min_length": 2, "within_sentences": True}
    predicted = Doc(VOCAB, words=["a", "b", "c", "d"], sent_starts=[True, False, True, False])
    reference = Doc(VOCAB, words=["a", "b", "c", "d"])
    reference.spans["sc"] = [
        Span(reference, *span)
        for span in ((0, 2, "KEPT"), (1, 3, "ACROSS"), (0, 1, "SHORT"), (1, 4, "LONG"))
    ]
    predicted.spans["given"] = [Span(predicted, 0, 2)]
    examples = {"dev": [Example(predicted, reference)]}
    rows = check_reach(examples, make_component("span_enumerator", candidates=within)).table
    assert [row[1:4] for row in rows[1:]] == [
        ("ACROSS", "1", "across a sentence boundary"),
        ("LONG", "1", "longer than max_length = 2"),
        ("SHORT", "1", "shorter than min_length = 2"),
    ]
    rows = check_reach(examples, make_component("span_enumerator", candidates=given)).table
    assert {row[3] for row in rows[1:]} == {"not in doc.spans['given']"}
    predicted.spans["kept_tokens"] = [Span(predicted, 0, 2)]
    component = make_component(
        "span_enumerator", candidates={**LENGTH, "max_length": 4}, within_kept=True
    )
    rows = check_reach(examples, component).table
    assert [row[1:4] for row in rows[1:]] == [
        ("ACROSS", "1", "outside of kept runs"),
        ("LONG", "1", "outside of kept runs"),
    ]


def test_candidates_that_are_not_known_before_training_are_a_warning():
    given = {"@misc": "spacy-spans.preset_candidates.v1", "spans_key": "given"}
    component = make_component("span_enumerator", candidates=given)
    section = check_reach({"train": side(make("a", (0, 1, "A")))}, component)
    (found,) = said(section)
    assert "warning: train: candidates are not known before training (" in found
    assert section.table == []


@pytest.mark.parametrize(
    ("factory", "config", "reasons"),
    [
        ("spancat", {}, {"not suggested with sizes = [1, 2, 3]": 1}),
        (
            "spancat",
            {
                "suggester": {
                    "@misc": "spacy.ngram_range_suggester.v1",
                    "min_size": 1,
                    "max_size": 2,
                }
            },
            {"not suggested with min_size = 1, max_size = 2": 1},
        ),
        ("spancat", {"suggester": LENGTH}, {"longer than max_length = 3": 1}),
        (
            "spancat_singlelabel",
            {"suggester": {**LENGTH, "max_length": 4}},
            {"excluded by a span that it overlaps": 1},
        ),
        (
            "spancat_singlelabel",
            {"suggester": {**LENGTH, "max_length": 4}, "allow_overlap": False},
            {"excluded by a span that it overlaps": 2},
        ),
    ],
)
def test_reasons_of_stock_components(factory, config, reasons):
    docs = [make("a b c d", (0, 4, "A"), (2, 3, "A"), (2, 3, "B"))]
    section = check_reach({"train": side(*docs)}, make_component(factory, **config))
    found = {}
    for row in section.table[1:]:
        found[row[3]] = found.get(row[3], 0) + int(row[2])
    assert found == reasons
    advice = "max_positive = 1" if "single" in factory else "coverage"
    assert advice in section.findings[0][1]


def test_what_tags_cannot_express():
    tagger = make_component("multispan_tagger")
    docs = [make("a b c", (0, 2, "A"), (1, 3, "A"), (0, 3, "B")), make("a", (0, 1, "B"))]
    section = check_reach({"train": side(*docs), "dev": side(*docs[1:])}, tagger)
    assert [level for level, _ in section.findings] == ["warning", "good"]
    assert "train: 1 of 4 gold spans in 'sc' cannot be expressed" in section.findings[0][1]
    assert section.table == [
        HEADER,
        ("train", "A", "1", "not expressed by the scheme", "b c", "0: 2 to 5"),
    ]


def test_limits_and_fragments_of_tags():
    component = make_component(
        "multispan_tagger", max_length=2, discontinuous=False, within_kept=True
    )
    predicted = Doc(VOCAB, words=list("abcdef"))
    predicted.spans["kept_tokens"] = [Span(predicted, 0, 4)]
    reference = Doc(VOCAB, words=list("abcdef"))
    spans = [
        Span(reference, 0, 1, "PARTS", span_id="m"),
        Span(reference, 2, 3, "PARTS", span_id="m"),
        Span(reference, 0, 3, "LONG"),
        Span(reference, 4, 5, "AWAY"),
    ]
    reference.spans["sc"] = SpanGroup(reference, name="sc", spans=spans)
    section = check_reach({"train": [Example(predicted, reference)]}, component)
    assert section.table[1:] == [
        ("train", "AWAY", "1", "outside of kept runs", "e", "0: 8 to 9"),
        ("train", "LONG", "1", "outside of min_length to max_length", "a b c", "0: 0 to 5"),
        ("train", "PARTS", "1", "of fragments that are not joined", "a … c", "0: 0 to 5"),
    ]
    assert [level for level, _ in section.findings] == ["warning"] * 3 + ["error"]


def test_spans_of_labels_that_a_trained_tagger_lacks_are_left_out():
    component = make_component("multispan_tagger")
    component.pipe.add_label("A")
    component.pipe.cfg.update(shared=False, links=False)
    docs = [make("a b c", (0, 2, "A"), (1, 3, "A"), (0, 1, "B")), make("a", (0, 1, "B"))]
    section = check_reach({"dev": side(*docs)}, component)
    assert "dev: 1 of 2 gold spans in 'sc' cannot be expressed" in section.findings[0][1]
    assert [row[1] for row in section.table[1:]] == ["A"]
    assert [span.label_ for span in docs[0].spans["sc"]] == ["A", "A", "B"]


def entities_doc(text, *entities):
    doc = Doc(VOCAB, words=text.split(" "))
    doc.ents = [Span(doc, *entity) for entity in entities]
    return doc


def test_entities_that_ner_cannot_give():
    docs = [Doc(VOCAB, words=["bare"]), entities_doc("New York \n is", (0, 3, "GPE"), (3, 4, "X"))]
    train = side(*docs, entities_doc("a b", (0, 1, "GPE")), entities_doc("c"))
    reference = Doc(VOCAB, words=["a", "b"], spaces=[False, False])
    reference.ents = [Span(reference, 1, 2, "X")]
    train.append(Example(Doc(VOCAB, words=["ab"]), reference))
    ner = make_component("ner")
    section = check_reach({"train": train, "dev": side(docs[0])}, ner)
    assert section.table[1:] == [
        ("train", "GPE", "1", "with white space at an end", "New York \n", "1: 0 to 10"),
        ("train", "X", "1", "with an end inside a token, or without any token", "b", "4: 1 to 2"),
    ]
    misaligned, at_space = said(section)
    assert "train: 1 of 4 gold spans in 'doc.ents' begin or end inside a token" in misaligned
    assert "train: 1 of 4 gold spans in 'doc.ents' with white space at an end" in at_space
    good = check_reach({"dev": side(entities_doc("a b", (0, 1, "GPE")))}, ner)
    assert said(good) == ["good: dev: all of 1 gold span"]
    none = check_reach({"dev": side(entities_doc("a"))}, ner)
    assert said(none) == ["info: nothing to check: no span in doc.ents"]
