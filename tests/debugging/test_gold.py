"""Keys, labels, and gold that cannot be given: what is found, and what is an error."""

import pytest
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example

from spacy_spans.debugging.gold import check_keys, check_labels, check_reach, check_weights

from . import VOCAB, make, make_component, said, side

LENGTH = {"@misc": "spacy-spans.length_candidates.v1", "max_length": 3}
NGRAMS = {"@misc": "spacy.ngram_range_suggester.v1"}
HEADER = ("side", "label", "lost", "because", "first", "document: characters")


@pytest.fixture(scope="module")
def enumerator():
    return make_component("span_enumerator", candidates=LENGTH)


@pytest.fixture(scope="module")
def tagger():
    return make_component("multispan_tagger")


# Keys


def test_a_key_that_all_documents_have_is_good(enumerator):
    train = side(make("a b", (0, 1, "A"), (0, 2, "A")), make("c"), make(""))
    assert said(check_keys({"train": train}, [enumerator])) == [
        "good: train: doc.spans['sc'], of span_enumerator: 2 spans in 3 documents, 2 without any"
    ]


@pytest.mark.parametrize(
    ("docs", "expected"),
    [
        ([], "error: dev: there are no documents"),
        (
            [make("a", key=None)],
            "error: dev: doc.spans['sc'], of span_enumerator, is in none of 1 document; keys that "
            "are there: none. Set spans_key to one of these, or convert with --spans-key.",
        ),
        (
            [make("a", key="b")] * 2,
            "error: dev: doc.spans['sc'], of span_enumerator, is in none of 2 documents; keys that "
            "are there: 'b'. Set spans_key to one of these, or convert with --spans-key.",
        ),
        (
            [make("a"), make("", key="b")],
            "error: dev: doc.spans['sc'], of span_enumerator, has no span in 1 document",
        ),
    ],
)
def test_keys_that_are_missing_or_empty_are_errors(enumerator, docs, expected):
    assert said(check_keys({"dev": side(*docs)}, [enumerator]))[0] == expected


def test_documents_without_the_key_are_a_warning_beside_those_with_spans(enumerator):
    dev = side(make("a", (0, 1, "A")), make("b", key=None), make("c", key=None))
    assert said(check_keys({"dev": dev}, [enumerator])) == [
        "warning: dev: doc.spans['sc'], of span_enumerator, is missing from 2 of 3 documents, so "
        "that these teach and measure nothing. Those that are annotated and have no span need an "
        "empty group."
    ]


def test_keys_that_nothing_learns_from_are_named(enumerator):
    doc = make("a", (0, 1, "A"))
    doc.spans["other"] = []
    assert said(check_keys({"train": side(doc)}, [enumerator]))[1:] == [
        "info: train: no component learns from 'other'"
    ]


# Scores


@pytest.mark.parametrize(
    ("factory", "key", "weights", "n_errors"),
    [
        ("spancat", "mine", {}, 1),
        ("spancat", "mine", {"spans_sc_f": 1.0}, 1),
        ("spancat", "mine", {"spans_mine_f": 0.0}, 1),
        ("spancat", "mine", {"spans_mine_f": 0.5}, 0),
        ("spancat", "sc", {}, 0),
        ("spancat_singlelabel", "mine", {}, 1),
        # Ours see to it at initialize.
        ("span_enumerator", "mine", {}, 0),
    ],
)
def test_stock_components_need_a_weight_for_their_key(factory, key, weights, n_errors):
    component = make_component(factory, spans_key=key)
    found = said(check_weights({"training": {"score_weights": weights}}, [component]))
    assert len(found) == n_errors
    assert all(
        f"error: {factory} is scored as spans_mine_f, which [training.score_weights] does not"
        in own
        for own in found
    )


def test_a_config_without_training_has_no_weights(enumerator):
    assert said(check_weights({}, [enumerator])) == []
    assert len(said(check_weights({}, [make_component("spancat", spans_key="x")]))) == 1


# Labels


def labels_of(train, dev, component, config=None, is_trained=False):
    sides = {
        name: side(*(make("w", (0, 1, label)) for label in labels))
        for name, labels in (("train", train), ("dev", dev))
        if labels is not None
    }
    return check_labels(sides, component, config or {}, is_trained)


def test_labels_of_both_sides_with_enough_examples_are_good(enumerator):
    section = labels_of("A" * 10 + "B" * 12, "AB", enumerator)
    assert said(section) == ["good: 2 labels, the same on each side"]
    assert section.table == [("label", "train", "dev"), ("A", "10", "1"), ("B", "12", "1")]
    assert said(labels_of("A" * 10, "A", enumerator)) == ["good: 1 label, the same on each side"]


def test_labels_on_one_side_only(enumerator):
    found = said(labels_of("A" * 10 + "B" * 10, "ACC", enumerator))
    assert [text.split(":")[0] for text in found] == ["error", "warning"]
    assert "'C' (2) in dev, but in no training document" in found[0]
    assert "'B' (10) in train, but not in dev" in found[1]
    # With nothing on a side there is nothing to compare: check_keys has said so.
    assert said(labels_of("A" * 10, "", enumerator)) == ["good: 1 label, the same on each side"]
    assert said(labels_of("A" * 10, None, enumerator)) == ["good: 1 label, the same on each side"]
    assert said(labels_of(None, "A", enumerator)) == ["good: 1 label, the same on each side"]


@pytest.mark.parametrize(("n", "n_warnings"), [(9, 1), (10, 0)])
def test_labels_with_too_few_examples(enumerator, n, n_warnings):
    found = said(labels_of("A" * n + "B" * 20, "AB", enumerator))
    few = [text for text in found if text.startswith("warning: fewer than 10")]
    assert len(few) == n_warnings
    assert all("'A' (9)" in text and "'B'" not in text for text in few)


def initialize_with(labels):
    return {"initialize": {"components": {"span_enumerator": {"labels": labels}}}}


def test_labels_of_the_config(enumerator, tmp_path):
    found = said(labels_of("A" * 10, "A", enumerator, initialize_with(["B"])))
    assert found[0].startswith("error: 'A' (11) in the data, but not among the labels of the")
    assert found[1:] == ["warning: no training example for 'B'"]
    assert labels_of("A" * 10, "A", enumerator, initialize_with(["A"])).findings[0][0] == "good"
    path = tmp_path / "labels.json"
    (missing,) = said(labels_of("A" * 10, "A", enumerator, initialize_with({"path": str(path)})))
    assert missing.startswith("error: [initialize.components.span_enumerator.labels] names")
    path.write_text('["A"]', encoding="utf8")
    found = said(labels_of("A" * 10, "A", enumerator, initialize_with({"path": str(path)})))
    assert found == ["good: 1 label, the same on each side"]


def test_labels_of_a_trained_component():
    component = make_component("span_enumerator")
    component.pipe.add_label("A")
    assert labels_of("A" * 10, "A", component, is_trained=True).findings[0][0] == "good"
    (found,) = said(labels_of("B" * 10 + "A" * 10, "AB", component, is_trained=True))
    assert "'B' (11) in the data, but not among the labels of the component ('A')" in found


# Reach


@pytest.mark.parametrize("factory", ["span_enumerator", "multispan_tagger", "spancat"])
def test_nothing_to_reach(factory):
    for docs in ([], [make("")], [make("a", key=None)], [make("a")]):
        section = check_reach({"train": side(*docs)}, make_component(factory))
        assert said(section) == ["info: nothing to check: no span under 'sc'"]
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


def test_what_tags_cannot_express(tagger):
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
