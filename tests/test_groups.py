"""Groups are named by their key, sorted, scored, and survive being saved."""

import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc, DocBin, Span

import spacy_spans
from spacy_spans.errors import SpansError
from spacy_spans.groups import (
    count_spans,
    fragments,
    mention_name,
    read_offsets,
    write_candidates,
    write_fragments,
    write_group,
)
from spacy_spans.types import SpanArrays

LABELS = ["A", "B"]


@pytest.fixture
def doc():
    return spacy.blank("en").make_doc("zero one two three four")


def arrays(rows):
    """Rows are (start, end, label index, score); scores are exact in float32."""
    offsets = np.asarray([row[:2] for row in rows], dtype="i").reshape(-1, 2)
    labels = np.asarray([row[2] for row in rows], dtype="i")
    return SpanArrays(offsets, labels, np.asarray([row[3] for row in rows], dtype="f"))


UNSORTED = arrays([(3, 4, 0, 0.5), (0, 2, 0, 0.25), (0, 2, 1, 0.75), (0, 5, 1, 1.0), (0, 1, 0, 0)])
SORTED = [
    (0, 1, "A", 0.0),
    (0, 2, "B", 0.75),
    (0, 2, "A", 0.25),
    (0, 5, "B", 1.0),
    (3, 4, "A", 0.5),
]


def rows_of(doc, key):
    group = doc.spans[key]
    return [
        (span.start, span.end, span.label_, score)
        for span, score in zip(group, group.attrs["scores"], strict=True)
    ]


def test_spans_are_sorted_by_start_then_end_then_best_score_with_their_scores(doc):
    write_group(doc, "sc", UNSORTED, LABELS)
    assert rows_of(doc, "sc") == SORTED
    assert doc.spans["sc"].name == "sc"
    assert doc.spans["sc"].attrs == {"scores": [0.0, 0.75, 0.25, 1.0, 0.5]}
    assert all(type(score) is float for score in doc.spans["sc"].attrs["scores"])


def test_an_empty_group_has_empty_scores(doc):
    write_group(doc, "sc", arrays([]), LABELS)
    assert list(doc.spans["sc"]) == []
    assert doc.spans["sc"].attrs == {"scores": []}
    assert doc.spans["sc"].name == "sc"


def test_writing_replaces_the_group_and_leaves_others(doc):
    write_group(doc, "other", arrays([(1, 2, 0, 0.5)]), LABELS)
    write_group(doc, "sc", UNSORTED, LABELS)
    write_group(doc, "sc", arrays([(1, 3, 1, 0.5)]), LABELS)
    assert rows_of(doc, "sc") == [(1, 3, "B", 0.5)]
    assert rows_of(doc, "other") == [(1, 2, "A", 0.5)]


def test_groups_can_be_written_to_an_empty_document():
    doc = spacy.blank("en").make_doc("")
    write_group(doc, "sc", arrays([]), LABELS)
    write_candidates(doc, "candidates", np.zeros((0, 2), dtype="i"))
    assert doc.spans["sc"].attrs == doc.spans["candidates"].attrs == {"scores": []}


def fill(doc):
    """Groups that a save could confuse: two full ones, two empty ones."""
    write_group(doc, "sc", UNSORTED, LABELS)
    write_group(doc, "other", arrays([(1, 2, 0, 0.5)]), LABELS)
    write_group(doc, "empty", arrays([]), LABELS)
    write_candidates(doc, "candidates", np.asarray([[2, 4], [0, 1]], dtype="i"))


def through_doc_bin(doc):
    doc_bin = DocBin(docs=[doc], store_user_data=True).to_bytes()
    (loaded,) = DocBin().from_bytes(doc_bin).get_docs(spacy.blank("en").vocab)
    return loaded


def through_bytes(doc):
    return Doc(spacy.blank("en").vocab).from_bytes(doc.to_bytes())


@pytest.mark.parametrize("save_and_load", [through_doc_bin, through_bytes])
def test_groups_survive_being_saved(doc, save_and_load):
    fill(doc)
    loaded = save_and_load(doc)
    assert sorted(loaded.spans) == ["candidates", "empty", "other", "sc"]
    assert all(loaded.spans[key].name == key for key in loaded.spans)
    assert rows_of(loaded, "sc") == SORTED
    assert rows_of(loaded, "other") == [(1, 2, "A", 0.5)]
    assert rows_of(loaded, "empty") == []
    assert loaded.spans["empty"].attrs == {"scores": []}
    assert rows_of(loaded, "candidates") == [(2, 4, "", 1.0), (0, 1, "", 1.0)]


def test_offsets_are_read_in_the_order_of_the_group(doc):
    write_candidates(doc, "candidates", np.asarray([[2, 4], [0, 1], [2, 4]], dtype="i"))
    offsets = read_offsets(doc, "candidates")
    assert offsets.tolist() == [[2, 4], [0, 1], [2, 4]]
    assert offsets.dtype == np.int32


def test_offsets_of_an_empty_group_have_two_columns(doc):
    write_candidates(doc, "candidates", np.zeros((0, 2), dtype="i"))
    assert read_offsets(doc, "candidates").shape == (0, 2)


def test_offsets_of_a_missing_group_are_an_error(doc):
    with pytest.raises(KeyError, match="absent"):
        read_offsets(doc, "absent")


# Mentions of several fragments


def ids_of(doc, key):
    return [(span.start, span.end, span.label_, span.id_) for span in doc.spans[key]]


def mentions_of(doc, key):
    return [
        [(span.start, span.end, span.label_) for span in mention] for mention in fragments(doc, key)
    ]


def spans_of(doc, mentions):
    return [
        [Span(doc, *offsets, label=label) for *offsets, label in mention] for mention in mentions
    ]


def test_rows_with_the_same_mention_number_share_an_id(doc):
    rows = [(4, 5, 0, 0.5), (0, 1, 1, 0.5), (1, 2, 0, 0.5), (2, 3, 1, 0.5), (0, 2, 0, 0.25)]
    write_group(doc, "sc", arrays(rows), LABELS, np.asarray([7, -1, 7, -1, 3], dtype="i"))
    assert ids_of(doc, "sc") == [
        (0, 1, "B", "m1"),
        (0, 2, "A", ""),
        (1, 2, "A", "m2"),
        (2, 3, "B", "m1"),
        (4, 5, "A", "m2"),
    ]
    assert doc.spans["sc"].attrs["scores"] == [0.5, 0.25, 0.5, 0.5, 0.5]
    assert mentions_of(doc, "sc") == [
        [(0, 1, "B"), (2, 3, "B")],
        [(0, 2, "A")],
        [(1, 2, "A"), (4, 5, "A")],
    ]


def test_mentions_of_one_row_have_no_id(doc):
    write_group(doc, "sc", UNSORTED, LABELS, np.asarray([4, 2, 0, 1, 3], dtype="i"))
    assert rows_of(doc, "sc") == SORTED
    assert {span.id_ for span in doc.spans["sc"]} == {""}
    write_group(doc, "sc", arrays([]), LABELS, np.zeros(0, dtype="i"))
    assert fragments(doc, "sc") == []


def test_mentions_are_read_in_the_order_of_the_text(doc):
    rows = [(3, 4, "A", "x"), (2, 3, "B", ""), (0, 1, "A", "x"), (0, 1, "B", "x"), (2, 3, "A", "")]
    doc.spans["sc"] = [Span(doc, s, e, label=label, span_id=name) for s, e, label, name in rows]
    assert mentions_of(doc, "sc") == [
        [(0, 1, "A"), (3, 4, "A")],
        # The same id with another label is another mention.
        [(0, 1, "B")],
        # At the same place the order of the group stays.
        [(2, 3, "B")],
        [(2, 3, "A")],
    ]


def test_fragments_of_a_missing_group_are_an_error_that_names_the_others(doc):
    write_group(doc, "sc", arrays([]), LABELS)
    with pytest.raises(KeyError, match=r"no doc.spans\['absent'\]. Keys that are there: \['sc'\]"):
        fragments(doc, "absent")


@st.composite
def mentions_strategy(draw):
    """Disjoint fragments with a gap between them; mentions may overlap, nest and repeat."""
    edges = st.lists(st.integers(0, 12), min_size=2, max_size=6, unique=True).map(sorted)
    drawn = draw(st.lists(st.tuples(edges, st.sampled_from("AB")), max_size=5))
    mentions = [
        [(first, last, label) for first, last in zip(cuts[::2], cuts[1::2], strict=False)]
        for cuts, label in drawn
    ]
    return sorted(mentions, key=lambda mention: mention[0][:2])


@given(mentions_strategy())
def test_mentions_are_read_as_they_were_written(mentions):
    doc = Doc(spacy.blank("en").vocab, words=["word"] * 13)
    scores = [i / 8 for i in range(len(mentions))]
    write_fragments(doc, "sc", spans_of(doc, mentions), scores)
    assert mentions_of(doc, "sc") == mentions
    group = doc.spans["sc"]
    assert group.name == "sc"
    by_mention = {}
    for span, score in zip(group, group.attrs["scores"], strict=True):
        by_mention.setdefault(span.id_ or (span.start, span.end, score), set()).add(score)
    assert all(len(scores) == 1 for scores in by_mention.values())
    several = [mention for mention in mentions if len(mention) > 1]
    named = dict.fromkeys(span.id_ for span in group if span.id_)
    assert list(named) == [f"m{i + 1}" for i in range(len(several))]


@pytest.mark.parametrize("save_and_load", [through_doc_bin, through_bytes])
def test_mentions_survive_being_saved(doc, save_and_load):
    mentions = [[(0, 1, "A"), (2, 3, "A")], [(0, 5, "B")]]
    write_fragments(doc, "sc", spans_of(doc, mentions))
    loaded = save_and_load(doc)
    assert mentions_of(loaded, "sc") == mentions
    assert loaded.spans["sc"].attrs == {"scores": [1.0, 1.0, 1.0]}


def test_written_mentions_are_sorted_and_replace_the_group(doc):
    write_group(doc, "sc", UNSORTED, LABELS)
    doc.spans["sc"] = [Span(doc, 3, 4, label="A", span_id="old", kb_id="Q1")]
    mentions = [*fragments(doc, "sc"), *spans_of(doc, [[(4, 5, "B"), (0, 1, "B")]])]
    write_fragments(doc, "sc", mentions, [0.5, 0.25])
    assert ids_of(doc, "sc") == [(0, 1, "B", "m1"), (3, 4, "A", ""), (4, 5, "B", "m1")]
    assert [span.kb_id_ for span in doc.spans["sc"]] == ["", "Q1", ""]
    assert doc.spans["sc"].attrs == {"scores": [0.25, 0.5, 0.25]}
    write_fragments(doc, "sc", [])
    assert doc.spans["sc"].attrs == {"scores": []}
    assert fragments(doc, "sc") == []


@pytest.mark.parametrize(
    ("mention", "message"),
    [
        ([], "a mention without fragments"),
        ([(1, 1, "A")], "The span at token 1 is empty"),
        ([(0, 1, "A"), (2, 3, "B")], r"the labels \['A', 'B'\], expected one"),
        ([(2, 3, "A"), (0, 2, "A")], r"'zero one' \(tokens 0 to 2\) and 'two' .* touch"),
        ([(0, 3, "A"), (2, 4, "A")], "overlap. Make one span"),
    ],
)
def test_what_is_no_mention_is_an_error(doc, mention, message):
    with pytest.raises(SpansError, match=message):
        write_fragments(doc, "sc", spans_of(doc, [mention]))
    assert "sc" not in doc.spans


def test_spans_of_another_document_and_missing_scores_are_errors(doc):
    other = spacy.blank("en").make_doc("zero one")
    with pytest.raises(SpansError, match="'zero' belongs to another document"):
        write_fragments(doc, "sc", [[other[0:1]]])
    with pytest.raises(SpansError, match="Got 1 scores, expected 2"):
        write_fragments(doc, "sc", [[doc[0:1]], [doc[1:2]]], [0.5])


def test_the_package_shows_what_users_call():
    assert spacy_spans.fragments is fragments
    assert spacy_spans.write_fragments is write_fragments


def test_mentions_of_one_fragment_have_no_name():
    assert [mention_name(number) for number in range(3)] == ["", "m1", "m2"]


def test_spans_are_counted_by_key_and_label(doc):
    other = spacy.blank("en").make_doc("zero one")
    write_group(doc, "sc", UNSORTED, LABELS)
    write_group(doc, "empty", arrays([]), LABELS)
    write_group(other, "sc", arrays([(0, 1, 1, 0.5)]), LABELS)
    assert count_spans([doc, other]) == {
        "empty": {"documents": 1, "spans": 0, "labels": {}},
        "sc": {"documents": 2, "spans": 6, "labels": {"A": 3, "B": 3}},
    }
    assert count_spans([]) == {}
