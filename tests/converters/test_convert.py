import json

import pytest
import spacy
from spacy.tokens import DocBin

from spacy_spans import converters
from spacy_spans.converters import CHARACTERS_KEY, ConvertSettings, convert
from spacy_spans.errors import DataError, SettingsError

TEXT = "He hurt-badly his left and right arm."


def entry(text=TEXT, *spans):
    keys = ("start", "end", "label", "fragments")
    return json.dumps({"text": text, "spans": [dict(zip(keys, s, strict=False)) for s in spans]})


def load(path):
    return list(DocBin().from_disk(path).get_docs(spacy.blank("en").vocab))


def group_of(doc, key="sc"):
    return [(s.start, s.end, s.label_, s.id_) for s in doc.spans[key]]


def counts(report):
    total = report.total()
    return total.annotations, total.mentions, total.duplicates, total.merged, total.n_lost


def test_everything_survives_the_round_trip(write, tmp_path):
    content = [
        entry(
            TEXT,
            (18, 36, "ARM", [[18, 22], [33, 36]]),
            (27, 36, "ARM"),
            (14, 36, "ALL"),
            (18, 36, "X", [[18, 22], [33, 36]]),
        ),
        entry(""),
        entry("   "),
        entry("Fine."),
    ]
    output = tmp_path / "a.spacy"
    report = convert(write("a.jsonl", "\n".join(content)), output)
    docs = load(output)
    assert [doc.text for doc in docs] == [TEXT, "", "   ", "Fine."]
    assert [list(doc.spans) for doc in docs] == [["sc"]] * 4
    assert [doc.spans["sc"].name for doc in docs] == ["sc"] * 4
    assert [len(doc.spans["sc"]) for doc in docs] == [6, 0, 0, 0]
    assert group_of(docs[0]) == [
        (4, 9, "ALL", ""),
        (5, 6, "ARM", "m1"),
        (5, 6, "X", "m2"),
        (7, 9, "ARM", ""),
        (8, 9, "ARM", "m1"),
        (8, 9, "X", "m2"),
    ]
    ids = [s.id for s in docs[0].spans["sc"]]
    assert ids[0] == ids[3] == 0
    assert ids[1] == ids[4] != ids[2] == ids[5]
    assert 0 not in (ids[1], ids[2])
    assert report.output == str(output)
    assert counts(report) == (4, 4, 0, 0, 0)
    assert CHARACTERS_KEY not in docs[0].user_data


@pytest.mark.parametrize(
    ("mode", "texts", "fates", "moved"),
    [
        ("strict", ["left"], (6, 1, 1, 0, 4), 0),
        ("contract", ["left"], (6, 1, 1, 1, 3), 0),
        ("expand", ["hurt-badly", "left"], (6, 2, 1, 3, 0), 1),
    ],
)
def test_every_annotation_has_one_fate(write, tmp_path, mode, texts, fates, moved):
    tokens = [
        {"text": word, "start": start, "end": start + len(word)}
        for word, start in [("He", 0), ("hurt-badly", 3), ("left", 14)]
    ]
    spans = [(3, 7), (8, 13), (4, 6), (14, 18), (14, 18), (13, 18)]
    record = {
        "text": "He hurt-badly left",
        "tokens": tokens,
        "spans": [{"start": s, "end": e, "label": "X"} for s, e in spans],
    }
    output = tmp_path / "a.spacy"
    settings = ConvertSettings(alignment_mode=mode)
    report = convert(write("a.jsonl", json.dumps(record)), output, settings)
    (doc,) = load(output)
    assert [span.text for span in doc.spans["sc"]] == texts
    assert counts(report) == fates
    assert report.total().moved == moved
    # What was annotated is kept next to what could be held.
    assert doc.user_data[CHARACTERS_KEY] == {
        "sc": tuple(("X", (offsets,)) for offsets in dict.fromkeys(spans))
    }


@pytest.mark.parametrize("order", [1, -1])
def test_a_mention_that_one_annotation_hits_exactly_has_not_moved(write, read, order):
    spans = [(3, 7, "X"), (3, 6, "X")][::order]
    (doc,), report = read(write("a.jsonl", entry("He left", *spans)), alignment_mode="expand")
    assert group_of(doc) == [(1, 2, "X", "")]
    assert (report.total().merged, report.total().moved) == (1, 0)


def test_lost_annotations_are_counted_by_reason_with_three_examples(write, tmp_path):
    long = "x" * 200
    content = [entry("He left", (0, 1, "A"), (1, 2, "B"), (2, 3, "C"))] * 4
    content.append(entry(f"{long} y", (1, 200, "D")))
    report = convert(write("a.jsonl", "\n".join(content)), tmp_path / "a.spacy")
    lost = report.total().lost
    assert {reason: cases.count for reason, cases in lost.items()} == {
        "misaligned end": 4,
        "misaligned start": 5,
        "white space only": 4,
    }
    assert [(e["doc"], e["text"], e["label"]) for e in lost["misaligned start"].examples] == [
        (0, "e", "B"),
        (1, "e", "B"),
        (2, "e", "B"),
    ]
    assert lost["misaligned end"].examples[1]["where"].endswith("a.jsonl, line 2")
    report = convert(write("b.jsonl", content[-1]), tmp_path / "a.spacy")
    (example,) = report.total().lost["misaligned start"].examples
    assert example["text"] == "x" * 38 + "..." + "x" * 38


def test_a_folder_goes_into_one_file_with_a_report_for_each(write, tmp_path):
    write("in/b.jsonl", entry("He left", (0, 2, "A")))
    write("in/a.jsonl", entry("She left", (0, 3, "A"), (1, 3, "A")) + "\n" + entry("Yes"))
    folder = write("in/LICENSE", "MIT").parent
    report = convert(folder, tmp_path / "out.spacy", ConvertSettings(spans_key="k"))
    assert [doc.text for doc in load(tmp_path / "out.spacy")] == ["She left", "Yes", "He left"]
    assert [(f.documents, f.mentions, f.n_lost) for f in report.files] == [(2, 1, 1), (1, 1, 0)]
    data = json.loads(json.dumps(report.to_dict()))
    assert data["spans_key"] == "k"
    assert [path.endswith("LICENSE") for path in data["left_out"]] == [True]
    assert data["files"][0]["lost"]["misaligned start"]["count"] == 1
    assert data["total"]["labels"] == {"A": 2}
    assert data["total"]["documents"] == 3


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize("problem", ["data", "writing", "interrupt"])
def test_a_failure_leaves_the_old_output_and_nothing_else(
    write, tmp_path, monkeypatch, old, problem
):
    output = tmp_path / "out" / "a.spacy"
    output.parent.mkdir()
    if old:
        output.write_bytes(old)
    lines = [entry("He left", (0, 2, "A"))] * 3
    expected: type[BaseException] = DataError
    if problem == "data":
        lines.append("{")
    else:
        expected = OSError if problem == "writing" else KeyboardInterrupt

        def half(self, path):
            path.write_bytes(b"half")
            raise expected("disk full")

        monkeypatch.setattr(DocBin, "to_disk", half)
    with pytest.raises(expected):
        convert(write("a.jsonl", "\n".join(lines)), output)
    assert [file.name for file in output.parent.iterdir()] == (["a.spacy"] if old else [])
    assert not old or output.read_bytes() == old


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n\n", r"no documents, expected at least one\. Left out: none"),
        (
            '{"text": "a", "answer": "reject"}\n{"text": "b", "answer": "ignore"}\n',
            r"Left out: 1 x answer: reject, 1 x answer: ignore",
        ),
    ],
)
def test_no_documents(write, tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        convert(write("a.jsonl", content), tmp_path / "a.spacy", ConvertSettings(format="prodigy"))
    assert not (tmp_path / "a.spacy").exists()


def test_the_output_is_checked_before_the_input_is_read(tmp_path):
    with pytest.raises(SettingsError, match=r"ends in '\.spacy'"):
        convert(tmp_path / "nope", tmp_path / "a.bin")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"format": "xml"}, r"Unknown format 'xml', expected one of: jsonl, prodigy, conll, brat"),
        ({"alignment_mode": "x"}, r"mode 'x', expected one of: strict, contract, expand"),
        ({"spans_key": ""}, r"Got spans_key = ''; expected a name that is not empty and has no"),
        ({"spans_key": "a=b"}, r"Got spans_key = 'a=b'; expected"),
        ({"spans_key": "a:b"}, r"Got spans_key = 'a:b'; expected"),
        ({"spans_key": "a\nb"}, r"Got spans_key = 'a\\nb'; expected"),
        ({"spans_key": "a\n"}, r"Got spans_key = 'a\\n'; expected"),
        ({"spans_key": "a\udcff"}, r"The name 'a\\udcff' is no Unicode text"),
        ({"labels": ("A", "\udcff")}, r"The name '\\udcff' is no Unicode text"),
        ({"labels": ("A", " ")}, r"An empty label"),
        ({"n_sents": -1}, r"n_sents is -1, expected 0 or more"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(SettingsError, match=message):
        ConvertSettings(**settings)


@pytest.mark.parametrize("lang", ["klingon", "lex_attrs", "punctuation", ""])
def test_an_unknown_language(write, tmp_path, lang):
    path = write("a.jsonl", entry())
    with pytest.raises(SettingsError, match=rf"No tokenizer for language '{lang}'.*such as 'en'"):
        convert(path, tmp_path / "a.spacy", ConvertSettings(lang=lang))


def test_the_output_must_not_be_the_input(write, tmp_path):
    path = write("in/a.spacy", entry())
    for source, message in ((path, "is also the input"), (path.parent, "lies inside of the input")):
        with pytest.raises(SettingsError, match=message):
            convert(source, path, ConvertSettings(format="jsonl"))
    assert path.read_text() == entry()


def test_texts_beyond_the_limit_of_the_parser(write, tmp_path, nlp):
    text = "word " * (nlp.max_length // 5 + 1)
    path = write("a.jsonl", entry(text, (len(text) - 5, len(text) - 1, "X")))
    report = convert(path, tmp_path / "a.spacy")
    assert counts(report) == (1, 1, 0, 0, 0)
    (doc,) = load(tmp_path / "a.spacy")
    assert group_of(doc) == [(len(doc) - 1, len(doc), "X", "")]


def test_a_tokenizer_that_changes_the_text_is_found_out(write, read, nlp, monkeypatch):
    tokenizer = nlp.tokenizer
    monkeypatch.setattr(nlp, "tokenizer", lambda text: tokenizer(text.lower()))
    with pytest.raises(DataError, match=r"line 1: the tokenizer of language 'en' changes the text"):
        read(write("a.jsonl", entry()))


def test_equal_input_gives_equal_output(write, tmp_path):
    spans = [(18, 36, "ARM", [[18, 22], [33, 36]]), (27, 36, "B"), (14, 36, "ALL")]
    outputs = []
    for index, order in enumerate((spans, spans[::-1])):
        output = tmp_path / f"{index}.spacy"
        convert(write("a.jsonl", entry(TEXT, *order)), output)
        outputs.append([group_of(doc) for doc in load(output)])
    assert outputs[0] == outputs[1]


def test_what_the_package_exports():
    assert all(hasattr(converters, name) for name in converters.__all__)
