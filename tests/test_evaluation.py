"""What `spacy spans evaluate` counts, by hand."""

import json

import pytest
import spacy
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_spans.errors import DataError, SettingsError
from spacy_spans.evaluation import evaluate, find_worst, format_report
from spacy_spans.groups import write_fragments

TEXTS = ["Python and Rust", "Rust or Python", "Nothing at all", ""]


def make_pipeline(key="sc", pattern="Python"):
    nlp = spacy.blank("en")
    add_ruler(nlp, key, pattern)
    return nlp


def add_ruler(nlp, key, pattern):
    ruler = nlp.add_pipe("span_ruler", name=f"rules_for_{key}", config={"spans_key": key})
    ruler.add_patterns([{"label": "TOOL", "pattern": pattern}])


def make_gold(nlp, spans, key="sc"):
    """One list of (start, end, label) for each text; None leaves the key out."""
    docs = [nlp.make_doc(text) for text in TEXTS]
    for doc, rows in zip(docs, spans, strict=True):
        if rows is not None:
            doc.spans[key] = [Span(doc, start, end, label=label) for start, end, label in rows]
    return docs


# Right; one missed, one spurious with another label; not annotated; empty.
GOLD = [[(0, 1, "TOOL")], [(0, 1, "TOOL"), (2, 3, "SNAKE")], None, []]


@pytest.fixture
def nlp():
    return make_pipeline()


@pytest.fixture
def report(nlp):
    return evaluate(nlp, make_gold(nlp, GOLD))


def test_scores_and_counts_of_a_key(report):
    found = report["keys"]["sc"]
    assert found["gold"] == {"documents": 3, "spans": 3, "labels": {"SNAKE": 1, "TOOL": 2}}
    assert found["predicted"]["spans"] == 2
    assert found["spans"] == {
        "gold": 3,
        "predicted": 2,
        "right": 1,
        "missed": 2,
        "spurious": 1,
        "misaligned": 0,
        "left_out": 0,
        "equal": 0,
    }
    scores = found["scores"]
    assert (scores["p"], scores["r"]) == (pytest.approx(1 / 2), pytest.approx(1 / 3))
    # Python, under whatever label.
    assert scores["boundary_f"] == pytest.approx(2 * 2 / (2 + 3))
    # 6 of the 10 characters that are gold in the second document.
    assert scores["char_f"] == pytest.approx((1 + 2 * 6 / (6 + 10) + 1) / 3)
    assert scores["discontinuous_f"] is None
    assert "candidate_recall" not in scores


def test_scores_and_counts_of_labels(report):
    labels = report["keys"]["sc"]["labels"]
    assert list(labels) == ["SNAKE", "TOOL"]
    assert labels["TOOL"] == {
        "p": pytest.approx(1 / 2),
        "r": pytest.approx(1 / 2),
        "f": pytest.approx(1 / 2),
        "gold": 2,
        "predicted": 2,
        "right": 1,
        "missed": 1,
        "spurious": 1,
        "partial_f": pytest.approx(1 / 2),
        "char_f": pytest.approx((1 + 0 + 1) / 3),
    }
    assert (labels["SNAKE"]["gold"], labels["SNAKE"]["predicted"], labels["SNAKE"]["f"]) == (
        1,
        0,
        0,
    )


def test_every_document_is_counted(report):
    assert [row["index"] for row in report["docs"]] == [0, 1, 2, 3]
    assert [row["text"] for row in report["docs"]] == TEXTS
    assert [bool(row["keys"]) for row in report["docs"]] == [True, True, False, True]
    assert report["docs"][1]["keys"]["sc"] == {
        "gold": 2,
        "predicted": 1,
        "right": 0,
        "missed": 2,
        "spurious": 1,
        "misaligned": 0,
        "left_out": 0,
        "char_f": pytest.approx(2 * 6 / (6 + 10)),
    }
    assert report["documents"] == 4
    assert report["words"] == 9
    assert report["words_per_second"] == pytest.approx(9 / report["seconds"])


def test_the_report_is_plain_json(report):
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_scores_are_those_of_spacy():
    nlp = spacy.blank("en")
    nlp.add_pipe("spancat", config={"threshold": 0.4})
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in make_gold(nlp, GOLD)]
    nlp.initialize(lambda: examples)
    expected = nlp.evaluate(examples)
    scores = evaluate(nlp, make_gold(nlp, GOLD))["keys"]["sc"]["scores"]
    for name in ("p", "r", "f", "per_type"):
        assert scores[name] == expected[f"spans_sc_{name}"]


def test_components_add_scores_of_their_own():
    nlp = spacy.blank("en")
    nlp.add_pipe("span_enumerator")
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in make_gold(nlp, GOLD)]
    nlp.initialize(lambda: examples[:2])
    expected = nlp.evaluate(examples)
    report = evaluate(nlp, make_gold(nlp, GOLD), batch_size=1)
    scores = report["keys"]["sc"]["scores"]
    # The scores of spans depend a little on the batch.
    expected["spans_sc_ece"] = pytest.approx(expected["spans_sc_ece"], abs=1e-6)
    assert {f"spans_sc_{name}": score for name, score in scores.items()} == {
        name: score for name, score in expected.items() if name.startswith("spans_sc_")
    }
    assert scores["candidate_recall"] == 1.0
    rows = [line.split() for line in format_report(report).splitlines()]
    assert ["Candidates", "-", "100.0", "-"] in rows


def test_the_worst_documents_come_first(nlp):
    wrong = [[(0, 1, "TOOL")], [(0, 3, "A")], [(0, 1, "A"), (1, 2, "A")], [(0, 1, "A")][:0]]
    report = evaluate(nlp, make_gold(nlp, wrong))
    assert [row["index"] for row in find_worst(report, 5)] == [1, 2]
    assert [row["index"] for row in find_worst(report, 1)] == [1]
    assert find_worst(report, 0) == []


def test_keys_on_one_side_only_are_counted_and_not_compared(nlp):
    gold = make_gold(nlp, GOLD)
    for doc in gold[:2]:
        doc.spans["other"] = [doc[0:1]]
    add_ruler(nlp, "rules", "Perl")
    report = evaluate(nlp, gold)
    assert list(report["keys"]) == ["other", "rules", "sc"]
    other, rules = report["keys"]["other"], report["keys"]["rules"]
    assert (other["gold"]["spans"], other["predicted"]) == (2, None)
    assert (rules["gold"], rules["predicted"]["documents"]) == (None, 4)
    assert "scores" not in other
    assert "scores" not in rules
    text = format_report(report)
    assert "'other']: 2 gold spans in 2 documents, but the pipeline does not write this" in text
    assert "'rules']: 0 predicted in 4 documents, but the data does not have this" in text
    assert list(evaluate(nlp, gold, spans_keys=["sc"])["keys"]) == ["sc"]
    # In the order asked for, each once.
    keys = evaluate(nlp, gold, spans_keys=["sc", "other", "sc"])["keys"]
    assert list(keys) == ["sc", "other"]


def test_without_a_common_key_the_error_names_what_is_there(nlp):
    gold = make_gold(nlp, GOLD, key="other")
    message = (
        r"None of keys is in both.*The data has 'other' \(3 spans in 3 documents\), "
        r"the pipeline writes 'sc' \(2 spans in 4 documents\)"
    )
    with pytest.raises(DataError, match=message):
        evaluate(nlp, gold)
    with pytest.raises(DataError, match="None of these keys is in both"):
        evaluate(nlp, gold, spans_keys=["other"])
    with pytest.raises(
        DataError, match=r"There is no doc.spans\['nowhere'\]. The data has 'other'"
    ):
        evaluate(nlp, gold, spans_keys=["other", "nowhere"])
    with pytest.raises(DataError, match="the pipeline writes no keys"):
        evaluate(spacy.blank("en"), gold)


def test_data_without_anything_to_compare_is_an_error(nlp):
    with pytest.raises(DataError, match="The data has no documents"):
        evaluate(nlp, [])
    with pytest.raises(DataError, match="None of the 4 documents of the data has a group"):
        evaluate(nlp, make_gold(nlp, [None] * 4))
    with pytest.raises(SettingsError, match="Got batch_size = 0, expected 1 or more"):
        evaluate(nlp, make_gold(nlp, GOLD), batch_size=0)


def test_empty_groups_give_a_report():
    nlp = make_pipeline(pattern="Perl")
    report = evaluate(nlp, make_gold(nlp, [[], [], None, []]))
    found = report["keys"]["sc"]
    assert found["labels"] == {}
    assert found["scores"]["f"] is None
    assert found["scores"]["char_f"] == 1.0
    text = format_report(report)
    assert "0 gold spans in 3 documents, 0 predicted in 4 documents" in text
    assert "Label" not in text
    assert "most errors" not in text


def test_other_tokens_are_counted_and_explained():
    nlp = make_pipeline()
    nlp.get_pipe("rules_for_sc").add_patterns([{"label": "PART", "pattern": "n't"}])
    doc = Doc(
        nlp.vocab,
        words=["don't", "use", "C", "+", "+", "Python"],
        spaces=[True, True, False, False, True, False],
    )
    doc.spans["sc"] = [Span(doc, 2, 3, label="TOOL"), Span(doc, 5, 6, label="TOOL")]
    report = evaluate(nlp, [doc])
    counts = report["keys"]["sc"]["spans"]
    # "C" lies in the token "C++" of the pipeline, and "n't" in the token "don't" of the data.
    assert counts == {
        "gold": 2,
        "predicted": 1,
        "right": 1,
        "missed": 1,
        "spurious": 0,
        "misaligned": 1,
        "left_out": 1,
        "equal": 0,
    }
    text = format_report(report)
    assert "1 gold spans start or end inside of the pipeline's tokens: they count as missed" in text
    assert "1 predicted spans hold no token, or start or end inside of the data's tokens" in text


def test_discontinuous_mentions_are_scored():
    @spacy.Language.component("tests_first_and_third")
    def first_and_third(doc):
        write_fragments(doc, "sc", [[Span(doc, i, i + 1, label="A") for i in (0, 2)]])
        return doc

    nlp = spacy.blank("en")
    nlp.add_pipe("tests_first_and_third")
    gold = [nlp(text) for text in TEXTS[:2]]
    gold[1].spans["sc"] = list(gold[1].spans["sc"])[:1]
    scores = evaluate(nlp, gold)["keys"]["sc"]["scores"]
    assert (scores["discontinuous_p"], scores["discontinuous_r"]) == (0.5, 1.0)


def test_spans_that_are_equal_to_others_are_counted():
    """Two mentions that share a fragment have it twice, on both sides; it is right once."""

    @spacy.Language.component("tests_shared_fragment")
    def shared_fragment(doc):
        first, second, third = (Span(doc, i, i + 1, label="A") for i in range(3))
        write_fragments(doc, "sc", [[first, third], [third], [second]])
        return doc

    nlp = spacy.blank("en")
    nlp.add_pipe("tests_shared_fragment")
    report = evaluate(nlp, [nlp(text) for text in TEXTS[:2]])
    found = report["keys"]["sc"]
    assert found["gold"]["spans"] == found["predicted"]["spans"] == 8
    assert (found["spans"]["gold"], found["spans"]["right"], found["spans"]["equal"]) == (6, 6, 4)
    text = format_report(report)
    assert "4 spans are equal to others, as fragments that mentions share" in text
    # Spans without scores have none.
    assert "Calibration error of the spans' scores: 0.0 %" in text


def test_the_report_is_shown_as_tables(report):
    text = format_report(report)
    assert "doc.spans['sc']: 3 gold spans in 3 documents, 2 predicted in 4 documents" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["Strict", "50.0", "33.3", "40.0"] in rows
    assert ["Discontinuous", "mentions", "-", "-", "-"] in rows
    assert ["TOOL", "50.0", "50.0", "50.0", "2", "2", "1", "50.0", "66.7"] in rows
    assert ["1", "Rust", "or", "Python", "2", "1"] in rows
    assert "4 documents, 9 words in" in text
    assert "equal to others" not in text
    assert "Calibration error" not in text
    assert "Rust or Python" not in format_report(report, worst=0)


def test_text_and_labels_are_shown_on_one_line_and_escaped(nlp):
    doc = nlp.make_doc("one\n\ttwo \x1b[31m " + "long " * 100)
    doc.spans["sc"] = [Span(doc, 0, 1, label="A\x1b")]
    report = evaluate(nlp, [doc])
    assert report["docs"][0]["text"].startswith("one two \x1b[31m long")
    assert len(report["docs"][0]["text"]) == 60
    text = format_report(report)
    assert "\x1b" not in text
    assert "A\\x1b" in text
