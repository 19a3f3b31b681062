"""The report on spans, against loops, and the recommendation read off it."""

import json

import pytest
import spacy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc, Span, SpanGroup

from spacy_spans import coverage
from spacy_spans.coverage_report import format_report
from spacy_spans.errors import DataError


@pytest.fixture(scope="module")
def nlp():
    return spacy.blank("en")


def make_doc(vocab, n_tokens, spans=(), key="sc", sentences=None):
    """Spans are (start, end, label); sentences are first tokens."""
    starts = None if sentences is None else [i in sentences for i in range(n_tokens)]
    doc = Doc(vocab, words=["w"] * n_tokens, sent_starts=starts)
    if key is not None:
        group = [Span(doc, start, end, label=label) for start, end, label in spans]
        doc.spans[key] = SpanGroup(doc, name=key, spans=group)
    return doc


def overlaps(a, b):
    return a[0] < b[1] and b[0] < a[1]


def nests(a, b):
    return (a[0] <= b[0] and b[1] <= a[1]) or (b[0] <= a[0] and a[1] <= b[1])


def crosses(a, b):
    return overlaps(a, b) and not nests(a, b)


def count_related(docs, label, related):
    """Slow reference: spans of a label that are related to any other span of their document."""
    return sum(
        any(related(a, b) for j, b in enumerate(spans) if j != i)
        for _, spans, _ in docs
        for i, a in enumerate(spans)
        if label in (None, a[2])
    )


@st.composite
def documents(draw):
    """(tokens, spans, first tokens of sentences)"""
    n = draw(st.integers(0, 12))
    starts = st.integers(0, max(n - 1, 0))
    span = st.tuples(starts, st.integers(1, 12), st.sampled_from(["A", "B"]))
    spans = (
        [(s, min(s + length, n), label) for s, length, label in draw(st.lists(span))] if n else []
    )
    return n, spans, sorted({0} | draw(st.sets(starts)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(documents(), max_size=4))
def test_report_matches_loops(nlp, docs):
    report = coverage.measure_coverage(make_doc(nlp.vocab, n, s, sentences=f) for n, s, f in docs)
    everything = [(doc, span) for doc in docs for span in doc[1]]
    n_tokens = sum(n for n, _, _ in docs)
    corpus = report["corpus"]
    assert corpus["docs"] == len(docs)
    assert corpus["tokens"] == n_tokens
    assert corpus["spans"] == report["all"]["spans"] == len(everything)
    assert corpus["docs_without_spans"] == sum(not spans for _, spans, _ in docs)
    assert corpus["duplicate_spans"] == sum(len(s) - len(set(s)) for _, s, _ in docs)
    assert set(report["labels"]) == {span[2] for _, span in everything}
    for label, stats in {None: report["all"], **report["labels"]}.items():
        n = sum(label in (None, span[2]) for _, span in everything)
        assert stats["spans"] == sum(stats["length"]["histogram"].values()) == n
        for name, related in (("overlapping", overlaps), ("nested", nests), ("crossing", crosses)):
            assert stats[name] == (count_related(docs, label, related) / n if n else None)
        covered = {
            (i, token)
            for i, (_, spans, _) in enumerate(docs)
            for span in spans
            if label in (None, span[2])
            for token in range(*span[:2])
        }
        assert stats["covered_tokens"] == len(covered)
    split = any(len(first) > 1 for n, _, first in docs if n)
    for row in report["cost"]:
        longest = row["max_length"] or 1000
        reached = [doc for doc, span in everything if span[1] - span[0] <= longest]
        assert row["reached"] == len(reached)
        assert row["candidates"] == sum(
            end - start <= longest
            for n, _, _ in docs
            for start in range(n)
            for end in range(start + 1, n + 1)
        )
        assert ("within_sentences" in row) == split
        if split:
            check_within_sentences(row["within_sentences"], docs, longest)
    json.dumps(report, allow_nan=False)


def check_within_sentences(row, docs, longest):
    def fits(start, end, first):
        return end - start <= longest and not any(start < cut < end for cut in first)

    assert row["reached"] == sum(fits(s[0], s[1], first) for _, spans, first in docs for s in spans)
    assert row["candidates"] == sum(
        fits(start, end, first)
        for n, _, first in docs
        for start in range(n)
        for end in range(start + 1, n + 1)
    )


def test_known_report(nlp):
    docs = [
        make_doc(nlp.vocab, 10, [(0, 5, "A"), (1, 3, "B"), (4, 7, "B"), (0, 5, "B")]),
        make_doc(nlp.vocab, 4),
        make_doc(nlp.vocab, 0, key=None),
    ]
    report = coverage.measure_coverage(docs)
    assert report["corpus"] == {
        "docs": 3,
        "empty_docs": 1,
        "docs_without_key": 1,
        "docs_without_spans": 2,
        "tokens": 14,
        "spans": 4,
        "duplicate_spans": 0,
        "spans_without_tokens": 0,
        "sentences": None,
        "keys": {"sc": {"docs": 2, "spans": 4}},
    }
    b = report["labels"]["B"]
    assert b["length"]["mean"] == pytest.approx(10 / 3)
    assert (b["length"]["median"], b["length"]["p95"], b["length"]["max"]) == (3, 5, 5)
    assert {k: n for k, n in b["length"]["histogram"].items() if n} == {"2": 1, "3": 1, "5-8": 1}
    assert b["nested"] == pytest.approx(2 / 3)
    assert b["overlapping"] == 1
    assert b["crossing"] == pytest.approx(2 / 3)
    assert b["covered"] == 7 / 14
    assert report["all"]["reach"][:2] == [0.5, 1]
    first = report["cost"][0]
    assert (first["max_length"], first["share"], first["candidates"]) == (4, 0.5, 34 + 10)
    assert first["candidates_per_1000"] == pytest.approx(1000 * 44 / 14)
    last = report["cost"][-1]
    assert (last["max_length"], last["share"], last["candidates"]) == (None, 1, 55 + 10)


def test_spans_without_tokens_are_counted_and_left_out(nlp):
    report = coverage.measure_coverage([make_doc(nlp.vocab, 3, [(1, 1, "A"), (1, 2, "A")])])
    assert report["corpus"]["spans_without_tokens"] == 1
    assert report["corpus"]["spans"] == 1
    assert "- without tokens, left out   1" in format_report(report)


@pytest.mark.parametrize("key_docs", [0, 1, 3])
def test_nothing_to_measure_gives_a_report(nlp, key_docs):
    report = coverage.measure_coverage(make_doc(nlp.vocab, n) for n in range(key_docs))
    assert report["recommendation"]["candidates"] is None
    assert report["labels"] == {}
    text = format_report(report)
    assert "There are no spans to reach" in text
    assert "nan" not in text
    assert "None" not in text
    json.dumps(report, allow_nan=False)


def test_a_missing_key_names_those_that_are_there(nlp):
    docs = [
        make_doc(nlp.vocab, 3, [(0, 1, "A"), (0, 2, "A")], key="gold"),
        make_doc(nlp.vocab, 3, [(0, 1, "A")], key="gold"),
        make_doc(nlp.vocab, 3, key="other"),
    ]
    expected = (
        r"None of the 3 documents has doc.spans\['sc'\]. Found: 'gold' \(3 spans in 2 documents\), "
        r"'other' \(0 spans in 1 documents\). Pass one of these as --spans-key"
    )
    with pytest.raises(DataError, match=expected):
        coverage.measure_coverage(docs)
    report = coverage.measure_coverage(docs, spans_key="gold")
    assert report["corpus"]["docs_without_key"] == 1
    assert "Other keys (spans)   other (0)" in format_report(report)
    with pytest.raises(DataError, match="no span groups at all: convert the annotations"):
        coverage.measure_coverage([make_doc(nlp.vocab, 3, key=None)])


def test_recommends_the_shortest_sufficient_length(nlp):
    spans = [(i, i + 6, "A") for i in range(99)] + [(0, 40, "B")]
    report = coverage.measure_coverage([make_doc(nlp.vocab, 200, spans)])
    recommendation = report["recommendation"]
    assert recommendation["candidates"] == "spacy-spans.length_candidates.v1"
    assert recommendation["max_length"] == 8
    assert "Up to 8 tokens reach 99.0 % of the spans" in recommendation["reason"]
    assert "Reached less: B (0.0 %)." in recommendation["reason"]
    assert recommendation["config"] == (
        "[components.span_enumerator.candidates]\n"
        '@misc = "spacy-spans.length_candidates.v1"\n'
        "max_length = 8"
    )


def test_recommends_the_longest_span_where_texts_are_short(nlp):
    report = coverage.measure_coverage([make_doc(nlp.vocab, 140, [(0, 130, "A")])])
    assert coverage.recommend(report, 71_000)["max_length"] == 130
    assert coverage.recommend(report, 10)["max_length"] is None


def test_recommends_boundaries_where_length_costs_too_much(nlp):
    report = coverage.measure_coverage(
        [make_doc(nlp.vocab, 1000, [(0, 300, "A"), (300, 600, "A")])]
    )
    recommendation = report["recommendation"]
    assert recommendation["candidates"] == "spacy-spans.boundary_candidates.v1"
    assert "Only spans of any length reach 99 %" in recommendation["reason"]
    assert "500,500 candidates per 1,000 tokens, more than the 64,000" in recommendation["reason"]
    assert "`multispan_tagger`, whose cost" in recommendation["reason"]
    crossing = [make_doc(nlp.vocab, 1000, [(0, 300, "A"), (200, 500, "A")])]
    assert "multispan_tagger" not in coverage.measure_coverage(crossing)["recommendation"]["reason"]


def test_recommended_config_makes_candidates(nlp):
    from thinc.api import Config

    docs = [make_doc(nlp.vocab, 300, [(0, 3, "A")])]
    for max_cost in (64_000, 1):
        text = coverage.measure_coverage(docs, max_cost=max_cost)["recommendation"]["config"]
        sections = f"[components]\n\n[components.span_enumerator]\n\n{text}"
        config = Config().from_str(sections)["components"]["span_enumerator"]
        assert callable(spacy.util.registry.resolve(config)["candidates"])


def test_sentences_are_recommended_where_they_save_work(nlp):
    docs = [make_doc(nlp.vocab, 40, [(0, 3, "A"), (21, 24, "A")], sentences=[0, 20])]
    report = coverage.measure_coverage(docs)
    assert "within_sentences = true 100.0 % at 3,700" in report["recommendation"]["reason"]
    assert "Candidates in sentences" in format_report(report)
    # One document without boundaries, and nothing is said of sentences.
    report = coverage.measure_coverage([*docs, make_doc(nlp.vocab, 10)])
    assert report["corpus"]["sentences"] is None
    assert "entences" not in format_report(report)
