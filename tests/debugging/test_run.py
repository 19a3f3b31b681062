"""All checks of a pipeline, whichever components it has, and the report."""

import re

import pytest
import spacy
from spacy.tokens import DocBin, Span
from wasabi.printer import Printer

from spacy_spans.debugging.findings import Section, count
from spacy_spans.debugging.plan import ENTITY_FACTORIES, make_plan
from spacy_spans.debugging.run import as_json, debug, print_section, print_summary
from spacy_spans.errors import SettingsError

from . import make

PRUNED = {"model": {"name": "none"}}
# Factories and settings of a pipeline.
PIPELINES = [
    [("ner", {})],
    [("beam_ner", {})],
    [("spancat", {})],
    [("spancat_singlelabel", {"allow_overlap": False})],
    [("span_finder", {})],
    [("token_pruner", {}), ("span_enumerator", {"within_kept": True})],
    [("pruned_transformer", {**PRUNED, "spans_keys": ["sc", "doc.ents"]}), ("ner", {})],
    [
        ("span_enumerator", {}),
        ("multispan_tagger", {"spans_key": "b"}),
        ("spancat", {"spans_key": "c"}),
        ("ner", {}),
    ],
]


NAMES = ["+".join(factory for factory, _ in pipes) for pipes in PIPELINES]


def corpus(path, n):
    docs = []
    for i in range(n):
        doc = make(f"{path.stem} {i} has words", (0, 1, "A"), (2, 4, "B"))
        doc.spans["b"] = [Span(doc, 1, 2, "C")]
        doc.spans["c"] = [Span(doc, 3, 4, "D")]
        doc.ents = [Span(doc, 0, 1, "E")]
        docs.append(doc)
    DocBin(docs=docs, store_user_data=True).to_disk(path)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return [corpus(folder / "train.spacy", 10), corpus(folder / "dev.spacy", 1)]


def plan_of(pipes, data, tmp_path, weights=()):
    nlp = spacy.blank("en")
    for factory, config in pipes:
        nlp.add_pipe(factory, config=config)
    nlp.config["training"]["score_weights"].update(weights)
    nlp.config.to_disk(tmp_path / "own.cfg")
    return make_plan(tmp_path / "own.cfg", data)


def printed(sections, capsys):
    for section in sections:
        print_section(section, Printer(no_print=False))
    print_summary(sections, Printer(no_print=False))
    # Without the line breaks that messages are wrapped with.
    text = " ".join(capsys.readouterr().out.split())
    # Not of one thing in the plural, as "1 errors".
    assert not re.search(r"(?<![\d.,] of )(?<![\d.,])\b1 [a-z]+s\b(?! not)", text), text
    return text


@pytest.mark.parametrize("pipes", PIPELINES, ids=NAMES)
def test_good_data_is_good_for_all_components(pipes, data, tmp_path, capsys):
    weights = {"spans_c_f": 1.0} if len(pipes) > 3 else {}
    sections = list(debug(plan_of(pipes, data, tmp_path, weights)))
    text = printed(sections, capsys)
    assert count(sections, "error") == 0, text
    titles = [section.title for section in sections]
    for factory, _ in pipes:
        if factory == "span_finder":
            continue
        kind = "Tokens that {} is to keep" if "prune" in factory else "Labels of {}"
        assert kind.format(factory) in titles
    keys = {
        config.get("spans_key", "sc")
        for factory, config in pipes
        if factory not in ENTITY_FACTORIES
    }
    advice = {title for title in titles if title.startswith("Recommendation for ")}
    assert advice == {f"Recommendation for {key!r}" for key in keys}
    assert ("doc.ents" in text) == any(factory in ENTITY_FACTORIES for factory, _ in pipes)


@pytest.mark.parametrize("pipes", PIPELINES, ids=NAMES)
def test_data_without_annotations_is_an_error_for_all_components(pipes, tmp_path, capsys):
    bare = tmp_path / "bare.spacy"
    DocBin(docs=[make("a b", key=None), make("", key=None)]).to_disk(bare)
    sections = list(debug(plan_of(pipes, [bare, bare], tmp_path)))
    text = printed(sections, capsys)
    assert text.count("is in none of 2 documents") == 2 * len(pipes)
    empty = tmp_path / "empty.spacy"
    DocBin(docs=[]).to_disk(empty)
    sections = list(debug(plan_of(pipes, [empty], tmp_path)))
    assert "train: there are no documents" in printed(sections, capsys)


def test_data_is_needed(tmp_path):
    with pytest.raises(SettingsError, match="There is no data to check"):
        list(debug(plan_of([("ner", {})], [], tmp_path)))


def test_one_side_may_be_missing_and_fewer_documents_read(data, tmp_path, capsys):
    sections = list(debug(plan_of([("span_enumerator", {})], data[:1], tmp_path), limit=1))
    text = printed(sections, capsys)
    assert "dev: no data given" in text
    assert "1 document, 4 tokens" in text
    assert count(sections, "error") == 0


def test_reports_are_counted_and_printed(capsys):
    section = Section("Own \x1b title")
    section.add("error", "bad \x07")
    section.add("info", "known")
    assert "1 error, 0 warnings" in printed([section], capsys)
    section.table = [("label", "n"), ("A\x1b", "1"), ("", "1,000")]
    section.add("error", "worse")
    section.add("warning", "odd")
    text = printed([section], capsys)
    assert "2 errors, 1 warning" in text
    assert "A\\x1b 1" in text
    assert "\x07" not in text
    assert "0 errors, 0 warnings" in printed([], capsys)
    assert as_json([section]) == {
        "errors": 2,
        "warnings": 1,
        "sections": [
            {
                "title": "Own \x1b title",
                "findings": [
                    {"level": "error", "message": "bad \x07"},
                    {"level": "info", "message": "known"},
                    {"level": "error", "message": "worse"},
                    {"level": "warning", "message": "odd"},
                ],
                "table": [["label", "n"], ["A\x1b", "1"], ["", "1,000"]],
            }
        ],
    }
    assert as_json([]) == {"errors": 0, "warnings": 0, "sections": []}
