"""Groups are named by their key, sorted, scored, and survive being saved."""

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, DocBin

from spacy_spans.groups import read_offsets, write_candidates, write_group
from spacy_spans.types import SpanArrays

pytestmark = pytest.mark.installed

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
