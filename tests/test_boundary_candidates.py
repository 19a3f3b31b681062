"""Candidates that pair likely starts with likely ends, and the scores they read, by value."""

import numpy as np
import pytest
from spacy.tokens import Doc

from spacy_spans import candidates as module
from spacy_spans.errors import SettingsError, SpansError

from .candidates import build, listed, make_doc


def with_scores(starts, ends):
    doc = make_doc(len(starts))
    module.write_boundary_scores(doc, "sc", np.asarray([starts, ends], dtype="f").T)
    return doc


def test_boundary_candidates_pair_the_best_starts_with_the_best_ends():
    docs = [with_scores([3, 0, 5, 1], [0, 4, 1, 5]), with_scores([1], [1]), make_doc(0)]
    module.write_boundary_scores(docs[2], "sc", np.zeros((0, 2), dtype="f"))
    found = build("boundary_candidates", ratio=0.5)(docs)
    assert listed(found) == [[(0, 2), (0, 4), (2, 4)], [(0, 1)], []]


def test_boundary_candidates_within_a_band_and_a_number_for_each_document():
    docs = [with_scores([3, 0, 5, 1], [0, 4, 1, 5]), with_scores([1, 2], [1, 2])]
    assert listed(build("boundary_candidates", ratio=0.5, max_length=2)(docs)) == [
        [(0, 2), (2, 4)],
        [(1, 2)],
    ]
    assert listed(build("boundary_candidates", ratio=1.0, max_candidates=1)(docs)) == [
        [(2, 4)],
        [(1, 2)],
    ]


def test_boundary_candidates_without_scores_are_an_error():
    doc = make_doc(2)
    for _ in range(2):
        with pytest.raises(
            SpansError, match=r"need doc\._\.boundary_scores.*annotating_components"
        ):
            build("boundary_candidates")([doc])
        # The same when the extension is there, and only this document lacks the scores.
        module.write_boundary_scores(make_doc(1), "sc", np.zeros((1, 2), dtype="f"))


def test_boundary_candidates_of_a_retokenised_document_are_an_error():
    doc = with_scores([1, 2, 3], [1, 2, 3])
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[0:2])
    with pytest.raises(SpansError, match=r"3 rows for 2 tokens.*retokenised"):
        build("boundary_candidates")([doc])


def test_building_boundary_candidates_registers_the_extension():
    default, *others = Doc.remove_extension(module.BOUNDARY_SCORES)
    assert (default, *others) == (None, None, None, None)
    build("boundary_candidates")
    assert Doc.has_extension(module.BOUNDARY_SCORES)
    assert make_doc(1)._.boundary_scores is None


def test_boundary_scores_are_kept_under_each_key():
    one, two = np.asarray([[1, 2]], dtype="f"), np.asarray([[3, 4]], dtype="f")
    doc, other = make_doc(1), make_doc(1)
    module.write_boundary_scores(doc, "one", one)
    first = doc._.boundary_scores
    module.write_boundary_scores(doc, "two", np.zeros((1, 2), dtype="f"))
    module.write_boundary_scores(doc, "two", two)
    assert sorted(doc._.boundary_scores) == ["one", "two"]
    assert list(first) == ["one"]
    assert other._.boundary_scores is None
    np.testing.assert_array_equal(module.read_boundary_scores(doc, "one"), one)
    np.testing.assert_array_equal(module.read_boundary_scores(doc, "two"), two)


def test_the_only_boundary_scores_need_no_key():
    scores = np.asarray([[1, 2], [3, 4]], dtype="f")
    doc = make_doc(2)
    module.write_boundary_scores(doc, "skills", scores)
    np.testing.assert_array_equal(module.read_boundary_scores(doc), scores)
    np.testing.assert_array_equal(module.read_boundary_scores(doc, "skills"), scores)
    with pytest.raises(SpansError, match=r"none under 'sc', only under \['skills'\]"):
        module.read_boundary_scores(doc, "sc")


def test_boundary_scores_of_several_components_need_a_key():
    doc = with_scores([3, 0, 5, 1], [0, 4, 1, 5])
    module.write_boundary_scores(doc, "other", np.asarray([[0, 1, 0, 0]] * 2, dtype="f").T)
    with pytest.raises(SpansError, match=r"under \['other', 'sc'\].*set scores_key"):
        build("boundary_candidates", ratio=0.25)([doc])
    found = {
        key: listed(build("boundary_candidates", ratio=0.25, scores_key=key)([doc]))
        for key in ("sc", "other")
    }
    assert found == {"sc": [[(2, 4)]], "other": [[(1, 2)]]}
    with pytest.raises(SpansError, match=r"none under 'nope'"):
        build("boundary_candidates", scores_key="nope")([doc])


def test_boundary_scores_may_be_given_in_place_of_those_on_documents():
    docs = [with_scores([0, 0], [0, 0]), make_doc(2)]
    scores = [np.asarray([[1, 0], [0, 1]], dtype="f"), np.asarray([[0, 1], [1, 0]], dtype="f")]
    found = build("boundary_candidates", ratio=0.5)(docs, boundary_scores=scores)
    assert listed(found) == [[(0, 2)], []]


@pytest.mark.parametrize("ratio", [0.0, -0.5, 1.01])
def test_ratios_that_are_no_share_are_an_error(ratio):
    with pytest.raises(SettingsError, match=f"ratio = {ratio}"):
        build("boundary_candidates", ratio=ratio)


@pytest.mark.parametrize("setting", ["max_candidates", "max_length"])
def test_limits_of_zero_are_an_error(setting):
    with pytest.raises(SettingsError, match=f"{setting} = 0"):
        build("boundary_candidates", **{setting: 0})


def test_only_boundary_candidates_need_scores():
    assert module.needs_boundary_scores(build("boundary_candidates"))
    assert module.needs_boundary_scores(module.list_by_boundaries)
    assert not module.needs_boundary_scores(build("length_candidates", max_length=2))
    assert not module.needs_boundary_scores(build("preset_candidates", spans_key="sc"))
