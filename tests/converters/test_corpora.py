"""Real corpora, where they are at hand: counts, and agreement with spaCy's own alignment."""

import json

import pytest
from spacy.tokens import DocBin

from spacy_spans.converters import ConvertSettings, convert

# Documents, annotations, and those that tokens can hold, of the dev part. Converted beforehand.
JSONL = {
    "genia": (199, 475, 475),
    "skillspan": (58, 2163, 2163),
    "cnc": (306, 591, 591),
    "cuad": (14, 305, 299),
    "toxic_spans": (500, 658, 638),
    "wnut17": (500, 400, 400),
    "craft": (4, 5568, 5246),
    "drop_quoref": (86, 160, 155),
}


@pytest.mark.parametrize("name", JSONL)
def test_converted_corpora(shared_data, read, name):
    docs, report = read(shared_data / name / "dev.jsonl")
    total = report.total()
    assert (total.documents, total.annotations, total.mentions) == JSONL[name]
    assert total.duplicates == total.merged == total.moved == 0
    assert total.mentions + total.n_lost == total.annotations
    assert sum(len(doc.spans["sc"]) for doc in docs) == total.spans


@pytest.mark.parametrize("mode", ["strict", "contract", "expand"])
def test_alignment_is_that_of_char_span(shared_data, read, mode):
    path = shared_data / "craft" / "dev.jsonl"
    docs, _ = read(path, alignment_mode=mode)
    for doc, line in zip(docs, path.read_text(encoding="utf8").splitlines(), strict=True):
        expected = set()
        for span in json.loads(line)["spans"]:
            # Fragments that are joined here are left to tests of their own.
            if "fragments" not in span:
                found = doc.char_span(span["start"], span["end"], alignment_mode=mode)
                expected |= {(found.start, found.end, span["label"])} if found else set()
        assert {(s.start, s.end, s.label_) for s in doc.spans["sc"] if not s.id} == expected


def test_discontinuous_mentions_of_craft(shared_data, tmp_path, nlp):
    source = shared_data / "craft" / "dev.jsonl"
    convert(source, tmp_path / "a.spacy")
    docs = DocBin().from_disk(tmp_path / "a.spacy").get_docs(nlp.vocab)
    found = 0
    for doc, line in zip(docs, source.read_text(encoding="utf8").splitlines(), strict=True):
        expected = {
            (span["label"], tuple(map(tuple, span["fragments"])))
            for span in json.loads(line)["spans"]
            if "fragments" in span
        }
        mentions: dict[int, list] = {}
        for span in doc.spans["sc"]:
            if span.id:
                mentions.setdefault(span.id, []).append(span)
        for spans in mentions.values():
            (label,) = {span.label_ for span in spans}
            offsets = tuple((span.start_char, span.end_char) for span in spans)
            assert (label, offsets) in expected
        found += len(mentions)
    assert found == 102


def test_raw_skillspan_overlaps(shared_data, read):
    docs, report = read(shared_data / "raw" / "skillspan")
    assert report.format == "conll"
    assert report.left_out == [str(shared_data / "raw" / "skillspan" / "LICENSE")]
    total = report.total()
    assert total.documents == 7976
    # One span for each B- tag of a column.
    assert total.labels == {"Skill": 3291, "Knowledge": 4062}
    assert (total.n_lost, total.repaired.count) == (0, 0)
    assert sum(doc.spans["sc"].has_overlap for doc in docs) == 122


def test_raw_wnut17(shared_data, read):
    _, report = read(shared_data / "raw" / "wnut17")
    assert [file.documents for file in report.files] == [1009, 3394]
    assert [file.mentions for file in report.files] == [836, 1975]
    assert report.total().n_lost == 0


@pytest.mark.parametrize(("mode", "kept", "lost"), [("strict", 880, 23), ("expand", 903, 0)])
def test_raw_toxic_spans(shared_data, tmp_path, mode, kept, lost):
    path = shared_data / "raw" / "toxic_spans" / "tsd_trial.csv"
    report = convert(path, tmp_path / "a.spacy", ConvertSettings(alignment_mode=mode))
    total = report.total()
    assert report.format == "toxic"
    assert (total.documents, total.labels["TOXIC"], total.n_lost) == (690, kept, lost)
