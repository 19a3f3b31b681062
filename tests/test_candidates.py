"""Registered candidate functions, by value, and inside a stock `spancat`."""

import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.tokens import Span, SpanGroup
from spacy.training import Example
from thinc.api import NumpyOps, get_current_ops
from thinc.types import Ragged

from spacy_spans import candidates as module
from spacy_spans.errors import SettingsError, SpansError
from spacy_spans.groups import read_offsets
from spacy_spans.types import CandidateFunction

from . import reference
from .candidates import build, listed, make_doc


def write_spans(doc, key, spans):
    group = [Span(doc, start, end, label="X") for start, end in spans]
    doc.spans[key] = SpanGroup(doc, name=key, spans=group)
    return doc


def ragged_of(documents):
    flat = [span for own in documents for span in own]
    return Ragged(
        np.asarray(flat, dtype="i").reshape(-1, 2),
        np.asarray([len(own) for own in documents], dtype="i"),
    )


def offsets_of(spans):
    return np.asarray(spans, dtype="i").reshape(-1, 2)


# All three


@pytest.fixture(params=["length", "boundary", "preset"])
def candidate_function(request):
    if request.param == "length":
        return build("length_candidates", max_length=3)
    if request.param == "boundary":
        return build("boundary_candidates", ratio=0.5)
    return build("preset_candidates", spans_key="given")


def prepare(doc):
    """Give a document what every candidate function may ask for."""
    module.write_boundary_scores(doc, "sc", np.arange(2 * len(doc), dtype="f").reshape(-1, 2))
    return write_spans(doc, "given", [(0, 1)] if len(doc) else [])


def test_candidate_functions_have_the_signature_of_suggesters(candidate_function):
    assert isinstance(candidate_function, CandidateFunction)
    ops = NumpyOps()
    docs = [prepare(make_doc(3))]
    with_ops, without_ops = candidate_function(docs, ops=ops), candidate_function(docs)
    assert listed(with_ops) == listed(without_ops) != [[]]


def test_no_documents_give_no_candidates(candidate_function):
    assert listed(candidate_function([])) == []


@pytest.mark.parametrize("lengths", [[0], [0, 0], [0, 2, 0], [2, 0]])
def test_empty_documents_have_no_candidates_and_shift_nobody_elses(candidate_function, lengths):
    found = listed(candidate_function([prepare(make_doc(n)) for n in lengths]))
    (alone,) = listed(candidate_function([prepare(make_doc(2))]))
    assert alone
    assert found == [alone if n else [] for n in lengths]


def test_documents_may_come_from_a_generator(candidate_function):
    docs = [prepare(make_doc(2)), prepare(make_doc(4))]
    assert listed(candidate_function(doc for doc in docs)) == listed(candidate_function(docs))


# By length


def test_length_candidates_list_every_span():
    found = build("length_candidates", max_length=2)([make_doc(3), make_doc(1)])
    assert listed(found) == [[(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)], [(0, 1)]]


def test_length_candidates_longer_than_the_document():
    found = build("length_candidates", max_length=500)([make_doc(2)])
    assert listed(found) == [[(0, 1), (0, 2), (1, 2)]]


def test_length_candidates_of_a_least_length():
    found = build("length_candidates", min_length=2, max_length=3)([make_doc(4), make_doc(1)])
    assert listed(found) == [[(0, 2), (0, 3), (1, 3), (1, 4), (2, 4)], []]


def test_length_candidates_within_sentences():
    function = build("length_candidates", max_length=3, within_sentences=True)
    found = function([make_doc(4, [1, 3]), make_doc(0), make_doc(2, [2])])
    assert listed(found) == [
        [(0, 1), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)],
        [],
        [(0, 1), (0, 2), (1, 2)],
    ]


def test_length_candidates_within_sentences_set_by_a_pipe():
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    doc = nlp("One two. Three.")
    function = build("length_candidates", max_length=9, min_length=2, within_sentences=True)
    assert listed(function([doc])) == [[(0, 2), (0, 3), (1, 3), (3, 5)]]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 4), max_size=4), max_size=4),
    st.integers(1, 6),
    st.integers(1, 6),
    st.booleans(),
)
def test_length_candidates_match_the_loop(documents, low, high, within_sentences):
    min_length, max_length = min(low, high), max(low, high)
    docs = [make_doc(sum(lengths), lengths) for lengths in documents]
    function = build(
        "length_candidates",
        min_length=min_length,
        max_length=max_length,
        within_sentences=within_sentences,
    )
    expected = []
    for lengths in documents:
        limits = reference.limits_of_segments(lengths if within_sentences else [sum(lengths)])
        spans = reference.spans_within(limits, max_length)
        expected.append([(start, end) for start, end in spans if end - start >= min_length])
    assert listed(function(docs)) == expected


def test_length_candidates_without_sentence_boundaries_are_an_error():
    function = build("length_candidates", max_length=3, within_sentences=True)
    with pytest.raises(SpansError, match=r"no sentence boundaries.*sentencizer"):
        function([make_doc(3)])


@pytest.mark.parametrize(("min_length", "max_length"), [(0, 3), (4, 3), (1, 0), (-1, -1)])
def test_lengths_out_of_order_are_an_error(min_length, max_length):
    with pytest.raises(SettingsError, match=f"of {min_length} to {max_length} tokens cannot"):
        build("length_candidates", min_length=min_length, max_length=max_length)


# Preset


def test_preset_candidates_are_sorted_and_given_once():
    docs = [write_spans(make_doc(5), "given", [(3, 5), (0, 2), (0, 1), (3, 5)]), make_doc(2)]
    write_spans(docs[1], "given", [])
    found = build("preset_candidates", spans_key="given")(docs)
    assert listed(found) == [[(0, 1), (0, 2), (3, 5)], []]


def test_preset_candidates_leave_out_spans_that_hold_no_token():
    doc = write_spans(make_doc(2), "given", [(0, 0), (0, 1), (1, 1), (2, 2)])
    assert listed(build("preset_candidates", spans_key="given")([doc])) == [[(0, 1)]]


def test_preset_candidates_without_the_key_are_an_error_that_names_the_keys_there_are():
    doc = write_spans(write_spans(make_doc(1), "b", []), "a", [])
    message = r"doc\.spans\['given'\].*only \['a', 'b'\].*annotating_components"
    with pytest.raises(SpansError, match=message):
        build("preset_candidates", spans_key="given")([doc])


# Stock spancat


@pytest.mark.parametrize(
    ("suggester", "expected"),
    [
        (
            {"@misc": "spacy-spans.length_candidates.v1", "max_length": 2},
            [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)],
        ),
        ({"@misc": "spacy-spans.preset_candidates.v1", "spans_key": "given"}, [(0, 1), (0, 3)]),
    ],
    ids=["length", "preset"],
)
def test_stock_spancat_learns_from_these_candidates(suggester, expected):
    nlp = spacy.blank("en")
    spancat = nlp.add_pipe("spancat", config={"suggester": suggester, "threshold": 0.0})
    examples = []
    for text, gold in [("one two three", [(0, 1)]), ("", []), ("four", [(0, 1)])]:
        given = [(0, 3), (0, 1)] if text == "one two three" else []
        predicted, annotated = (write_spans(nlp.make_doc(text), "given", given) for _ in "xy")
        write_spans(annotated, "sc", gold)
        examples.append(Example(predicted, annotated))
    optimizer = nlp.initialize(lambda: examples)
    before = nlp.to_bytes()
    losses = nlp.update(examples, sgd=optimizer)
    assert losses["spancat"] > 0
    assert nlp.to_bytes() != before
    docs = [example.reference for example in examples]
    spancat.set_annotations(docs, spancat.predict(docs))
    # At threshold 0 every candidate is kept.
    assert [(span.start, span.end) for span in docs[0].spans["sc"]] == expected
    assert len(docs[1].spans["sc"]) == 0


# Candidates of other packages


def test_only_functions_of_this_package_need_no_checking(candidate_function):
    assert module.is_own(candidate_function)
    assert module.is_own(module.list_by_length)
    assert not module.is_own(spacy.registry.misc.get("spacy.ngram_suggester.v1")([1]))
    assert not module.is_own(lambda docs, *, ops=None: ragged_of([[]]))


def test_checked_candidates_are_sorted_and_given_once():
    docs = [make_doc(3), make_doc(0), make_doc(1)]
    candidates = ragged_of([[(2, 3), (0, 3), (0, 1), (2, 3)], [], [(0, 1), (0, 1)]])
    checked = module.check_candidates(candidates, docs)
    assert listed(checked) == [[(0, 1), (0, 3), (2, 3)], [], [(0, 1)]]


@pytest.mark.parametrize(
    "span", [(-1, 1), (0, 0), (2, 1), (1, 4), (3, 3), (3, 4), (-2, -1)], ids=str
)
def test_candidates_outside_their_document_are_an_error(span):
    docs = [make_doc(9), make_doc(3)]
    message = rf"\[{span[0]}, {span[1]}\] for a document of 3 tokens.*0 <= start < end <= 3"
    with pytest.raises(SpansError, match=message):
        module.check_candidates(ragged_of([[(0, 9)], [(0, 1), span]]), docs)


def test_checking_nothing_at_all():
    assert listed(module.check_candidates(ragged_of([]), [])) == []
    nothing = Ragged(np.zeros((0, 0), dtype="i"), np.zeros(2, dtype="i"))
    assert listed(module.check_candidates(nothing, [make_doc(1), make_doc(0)])) == [[], []]


# Adding and leaving out


def runs_of(docs):
    return [read_offsets(doc, "kept") if "kept" in doc.spans else None for doc in docs]


def test_candidates_are_kept_only_within_one_run():
    docs = [
        write_spans(make_doc(5), "kept", [(0, 2), (3, 5)]),
        make_doc(2),
        write_spans(make_doc(2), "kept", []),
        write_spans(make_doc(0), "kept", []),
    ]
    candidates = build("length_candidates", max_length=3)(docs)
    every_span_of_two = [(0, 1), (0, 2), (1, 2)]
    assert listed(module.keep_within_runs(candidates, runs_of(docs), docs)) == [
        [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)],
        # Without the key nothing is left out; with an empty group everything.
        every_span_of_two,
        [],
        [],
    ]
    assert module.keep_within_runs(candidates, [None] * len(docs), docs) is candidates
    assert listed(module.keep_within_runs(ragged_of([]), [], [])) == []


def test_runs_that_touch_are_one_run():
    doc = write_spans(make_doc(4), "kept", [(0, 2), (2, 4)])
    kept = module.keep_within_runs(ragged_of([[(0, 4), (1, 3)]]), runs_of([doc]), [doc])
    assert listed(kept) == [[(0, 4), (1, 3)]]


def test_added_candidates_come_in_order_and_once():
    candidates = ragged_of([[(0, 1), (2, 4)], [], [(0, 1)]])
    extra = [offsets_of([(1, 9), (0, 1), (1, 9), (0, 3)]), offsets_of([(0, 2)]), offsets_of([])]
    assert listed(module.add_candidates(candidates, extra)) == [
        [(0, 1), (0, 3), (1, 9), (2, 4)],
        [(0, 2)],
        [(0, 1)],
    ]
    # Suggesters of others return data of shape (0, 0) for none at all.
    nothing = Ragged(np.zeros((0, 0), dtype="i"), np.zeros(1, dtype="i"))
    assert listed(module.add_candidates(nothing, [offsets_of([(0, 2)])])) == [[(0, 2)]]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sets(st.tuples(st.integers(0, 4), st.integers(1, 5)))),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([0.5, 1.0, 3.0]),
)
def test_sampling_keeps_positives_in_their_documents_and_stands_for_all(documents, ratio):
    docs = [make_doc(n) for n, _ in documents]
    positives = [sorted(spans) for _, spans in documents]
    candidates = build("length_candidates", max_length=5)(docs)
    everything = listed(candidates)
    kept, weights = module.sample_candidates(
        candidates, [offsets_of(spans) for spans in positives], ratio=ratio
    )
    n_positive = n_negative = 0
    for own, sampled, positive in zip(everything, listed(kept), positives, strict=True):
        assert sampled == sorted(set(sampled))
        assert set(sampled) <= set(own)
        present = set(own) & set(positive)
        assert present <= set(sampled)
        n_positive += len(present)
        n_negative += len(own) - len(present)
    n_kept = min(n_negative, int(np.ceil(ratio * max(1, n_positive))))
    assert len(weights) == n_positive + n_kept
    # In the order of the candidates: 1 for positives, alike for all negatives.
    flat = [
        (span in positive)
        for sampled, positive in zip(listed(kept), positives, strict=True)
        for span in sampled
    ]
    expected = [1.0 if positive else n_negative / n_kept for positive in flat]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


def test_sampling_documents_without_candidates():
    kept, weights = module.sample_candidates(ragged_of([[], []]), [offsets_of([])] * 2, ratio=1.0)
    assert listed(kept) == [[], []]
    assert weights.shape == (0,)


def test_sampling_follows_the_seed_that_spacy_sets():
    candidates = build("length_candidates", max_length=5)([make_doc(30)])
    positive = [offsets_of([(0, 1)])]
    draws = []
    for seed in (1, 1, 2):
        spacy.util.fix_random_seed(seed)
        draws.append(listed(module.sample_candidates(candidates, positive, ratio=9.0)[0]))
    assert draws[0] == draws[1] != draws[2]


# Between lists and Ragged


def test_ragged_round_trip_with_empty_documents():
    documents = [offsets_of([]), offsets_of([(0, 2), (1, 3)]), offsets_of([]), offsets_of([(4, 5)])]
    ragged = module.to_ragged(documents, get_current_ops())
    assert listed(ragged) == [[], [(0, 2), (1, 3)], [], [(4, 5)]]
    split = module.split_offsets(ragged)
    assert [own.tolist() for own in split] == [own.tolist() for own in documents]
    assert listed(module.to_ragged([])) == []


def test_no_documents_can_be_split_added_to_and_sampled():
    nothing = module.to_ragged([])
    assert module.split_offsets(nothing) == []
    assert listed(module.add_candidates(nothing, [])) == []
    kept, weights = module.sample_candidates(nothing, [], ratio=1.0)
    assert listed(kept) == []
    assert weights.shape == (0,)
