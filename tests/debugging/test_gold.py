"""Keys, labels, and gold that cannot be given: what is found, and what is an error."""

import pytest
from spacy.tokens import Span

from spacy_spans.debugging.gold import check_kept, check_keys, check_labels, check_weights

from . import make, make_component, said, side


@pytest.fixture(scope="module")
def enumerator():
    return make_component("span_enumerator")


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


def test_entities_are_a_key_of_their_own():
    ner = make_component("ner")
    bare, none, some = make("a", key=None), make("b", key=None), make("c d", key=None)
    none.ents = []
    some.ents = [Span(some, 0, 1, "A")]
    assert said(check_keys({"dev": side(none, some)}, [ner])) == [
        "good: dev: doc.ents, of ner: 1 span in 2 documents, 1 without any"
    ]
    assert said(check_keys({"dev": side(bare, make("e"))}, [ner])) == [
        "error: dev: doc.ents, of ner, is in none of 2 documents; keys that are there: 'sc'. "
        "Annotate entities, or use a component that learns from doc.spans.",
        "info: dev: no component learns from 'sc'",
    ]
    (missing,) = said(check_keys({"dev": side(bare, some)}, [ner]))
    assert missing.startswith("warning: dev: doc.ents, of ner, is missing from 1 of 2 documents")
    assert said(check_keys({"dev": side(none)}, [ner])) == [
        "error: dev: doc.ents, of ner, has no span in 1 document"
    ]


def test_several_keys_of_a_pruner_are_one_annotation():
    pruner = make_component("token_pruner", spans_keys=["sc", "b", "doc.ents"])
    both = make("a b", (0, 1, "A"))
    both.spans["b"] = [Span(both, 1, 2, "B")]
    both.ents = [Span(both, 0, 1, "E")]
    other = make("c d", (0, 1, "B"), key="b")
    assert said(check_keys({"train": side(both, other, make(""))}, [pruner])) == [
        "good: train: doc.spans['sc'] or doc.spans['b'] or doc.ents, of token_pruner: 4 spans in 3 "
        "documents, 1 without any"
    ]
    assert said(check_keys({"train": side(other)}, [pruner])) == [
        "warning: train: token_pruner would learn from doc.spans['sc'] and doc.ents as well, where "
        "there is no span. Correct spans_keys, or leave it out there."
    ]
    (found,) = said(check_keys({"train": side(make("a", key=None))}, [pruner]))
    assert found.startswith("error: train: doc.spans['sc'] or doc.spans['b'] or doc.ents, of token")
    assert "Set spans_keys to one of these" in found


def test_what_learns_nothing_needs_no_annotations():
    model = {"@architectures": "spacy-spans.LexicalTokenPruner.v1"}
    pruner = make_component("token_pruner", model=model)
    assert said(check_keys({"train": side(make("a", key=None))}, [pruner])) == [
        "info: train: token_pruner learns from no annotations"
    ]


def test_two_heads_of_one_key_are_a_warning_and_of_two_keys_not():
    heads = [make_component(name) for name in ("span_enumerator", "spancat_singlelabel")]
    doc = make("a", (0, 1, "A"))
    warning = (
        "warning: span_enumerator, spancat_singlelabel all write doc.spans['sc']: the last of them "
        "overwrites the others. Give each a key of its own."
    )
    assert said(check_keys({"train": side(doc)}, heads))[2:] == [warning]
    heads[1].keys[:] = ["other"]
    doc.spans["other"] = [Span(doc, 0, 1, "A")]
    found = check_keys({"train": side(doc)}, heads).findings
    assert [level for level, _ in found] == ["good", "good"]


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


def test_labels_that_ner_stores_are_counts_by_action(tmp_path):
    ner = make_component("ner")
    path = tmp_path / "ner.json"
    path.write_text('{"0": {}, "1": {"A": 3}, "4": {"A": 3, "": 1}}', encoding="utf8")
    config = {"initialize": {"components": {"ner": {"labels": {"path": str(path)}}}}}
    doc = make("w", key=None)
    doc.ents = [Span(doc, 0, 1, "A")]
    assert said(check_labels({"train": side(*[doc] * 10)}, ner, config, False)) == [
        "good: 1 label, the same on each side"
    ]
    path.write_text('{"1": {"B": 3}}', encoding="utf8")
    found = said(check_labels({"train": side(*[doc] * 10)}, ner, config, False))
    assert found[0].startswith("error: 'A' (10) in the data, but not among the labels of the")


def test_labels_of_a_trained_component():
    component = make_component("span_enumerator")
    component.pipe.add_label("A")
    assert labels_of("A" * 10, "A", component, is_trained=True).findings[0][0] == "good"
    (found,) = said(labels_of("B" * 10 + "A" * 10, "AB", component, is_trained=True))
    assert "'B' (11) in the data, but not among the labels of the component ('A')" in found


# Kept tokens


@pytest.mark.parametrize(
    ("most", "n_inside", "n_warnings"), [(0.4, 2, 0), (0.4, 3, 1), (None, 5, 0), (0, 0, 0)]
)
def test_share_of_tokens_that_a_pruner_is_to_keep(most, n_inside, n_warnings):
    pruner = make_component(
        "pruned_transformer", model={"name": "none"}, max_span_share=most, spans_keys=["sc", "b"]
    )
    doc = make("a b c d e", *((i, i + 1, "A") for i in range(n_inside)))
    sides = {"train": side(doc, make(""), make("f g", key=None)), "dev": side(doc)}
    found = said(check_kept(sides, pruner))
    share = f"{20 * n_inside} % of tokens are in gold spans"
    assert [found[0], found[-1]] == [f"info: train: {share}", f"info: dev: {share}"]
    assert len(found) == 2 + n_warnings
    assert all(
        own.startswith(
            f"warning: that is above max_span_share = {most}: pruned_transformer would drop nothing"
        )
        for own in found[1:-1]
    )


def test_a_pruner_without_tokens_has_nothing_to_go_by():
    found = said(
        check_kept({"dev": side(make(""), make("a", key=None))}, make_component("token_pruner"))
    )
    assert found == ["info: dev: no tokens to go by"]
