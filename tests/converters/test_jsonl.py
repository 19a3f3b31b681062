import json

import pytest

from spacy_spans.errors import DataError


def line(text="Ada met Bob", spans=(), **more):
    return json.dumps({"text": text, "spans": list(spans), **more}, ensure_ascii=False) + "\n"


def span(start, end, label="X", **more):
    return {"start": start, "end": end, "label": label, **more}


def found(doc, key="sc"):
    return [(s.text, s.label_) for s in doc.spans[key]]


def test_spans_are_sorted_by_start_end_label(write, read):
    spans = [span(4, 11, "B"), span(4, 11, "A"), span(0, 3), span(4, 7, "Z")]
    (doc,), report = read(write("a.jsonl", line(spans=spans)))
    assert found(doc) == [("Ada", "X"), ("met", "Z"), ("met Bob", "A"), ("met Bob", "B")]
    assert doc.spans["sc"].name == "sc"
    assert [s.id for s in doc.spans["sc"]] == [0, 0, 0, 0]
    assert report.total().labels == {"X": 1, "Z": 1, "A": 1, "B": 1}


def test_a_document_without_spans_has_an_empty_group_under_the_key(write, read):
    path = write("a.jsonl", line() + "\n  \n" + line(text=""))
    docs, report = read(path, spans_key="mine")
    assert [doc.text for doc in docs] == ["Ada met Bob", ""]
    assert [list(doc.spans) for doc in docs] == [["mine"], ["mine"]]
    assert [list(doc.spans["mine"]) for doc in docs] == [[], []]
    assert report.total().documents == 2


def test_unknown_fields_are_ignored(write, read):
    extra = {"id": 5, "question": "?", "relations": [{"head": 0}], "meta": {"spans": 1}}
    (doc,), _ = read(write("a.jsonl", line(spans=[span(0, 3, kb="Q7259")], **extra)))
    assert found(doc) == [("Ada", "X")]


def test_identical_annotations_are_kept_once_and_counted(write, read):
    spans = [span(0, 3), span(0, 3), span(0, 3, "Y"), span(0, 3)]
    (doc,), report = read(write("a.jsonl", line(spans=spans)))
    assert found(doc) == [("Ada", "X"), ("Ada", "Y")]
    assert (report.total().annotations, report.total().duplicates) == (4, 2)


@pytest.mark.parametrize(
    ("text", "part", "offsets"),
    [
        ("👩‍🚀 flies 🚀 home", "🚀", (10, 11)),  # joined by U+200D; each counts as a character
        ("cafe\u0301 noir", "noir", (6, 10)),  # a combining accent is one character more
        ("a\tb c", "b", (2, 3)),
        ("one\r\ntwo", "two", (5, 8)),
        ("one\u2028two \x85 three", "three", (10, 15)),
        ("a \x00 b", "b", (4, 5)),
        ("天気 良い", "良い", (3, 5)),
    ],
)
def test_offsets_count_unicode_characters(write, read, text, part, offsets):
    assert text[slice(*offsets)] == part
    (doc,), _ = read(write("a.jsonl", line(text, [span(*offsets)])), lang="xx")
    assert doc.text == text
    assert found(doc) == [(part, "X")]


def test_crlf_line_ends_and_a_byte_order_mark_are_tolerated(write, read):
    content = "\ufeff" + line(spans=[span(0, 3)]).replace("\n", "\r\n") * 2
    docs, _ = read(write("a.jsonl", content))
    assert [found(doc) for doc in docs] == [[("Ada", "X")]] * 2


def test_fragments_share_an_id_of_their_own(write, read):
    text = "left and right arm and leg pain"
    spans = [
        span(0, 18, "ARM", fragments=[[0, 4], [15, 18]]),
        span(9, 18, "ARM"),
        span(15, 31, "PAIN", fragments=[[15, 18], [27, 31]]),
        span(9, 14, "ARM", fragments=[[9, 14]]),
    ]
    (doc,), report = read(write("a.jsonl", line(text, spans)))
    group = [(s.text, s.label_, s.id_) for s in doc.spans["sc"]]
    assert group == [
        ("left", "ARM", "m1"),
        ("right", "ARM", ""),
        ("right arm", "ARM", ""),
        ("arm", "ARM", "m1"),
        ("arm", "PAIN", "m2"),
        ("pain", "PAIN", "m2"),
    ]
    assert {s.id == 0 for s in doc.spans["sc"] if not s.id_} == {True}
    total = report.total()
    assert (total.mentions, total.spans, total.discontinuous) == (4, 6, 2)
    assert total.labels == {"ARM": 3, "PAIN": 1}


def test_a_shared_fragment_with_the_same_label_is_kept_for_both_mentions(write, read):
    spans = [
        span(0, 18, fragments=[[0, 4], [15, 18]]),
        span(9, 31, fragments=[[9, 14], [15, 18], [27, 31]]),
    ]
    (doc,), _ = read(write("a.jsonl", line("left and right arm and leg pain", spans)))
    # "right" and "arm" touch, so they are one stretch of the second mention.
    group = [(s.text, s.id_) for s in doc.spans["sc"]]
    assert group == [("left", "m1"), ("right arm", "m2"), ("arm", "m1"), ("pain", "m2")]


def test_fragments_parted_by_white_space_are_one_span(write, read):
    spans = [
        span(0, 7, fragments=[[0, 3], [5, 7]]),
        span(0, 13, "Y", fragments=[[11, 13], [0, 3]]),
    ]
    (doc,), report = read(write("a.jsonl", line("abc\n\nde fg hi", spans)))
    group = [(s.text, s.label_, s.id_) for s in doc.spans["sc"]]
    assert group == [("abc", "Y", "m1"), ("abc\n\nde", "X", ""), ("hi", "Y", "m1")]
    assert (report.total().joined, report.total().discontinuous) == (1, 1)


def test_a_mention_with_one_lost_fragment_is_lost_as_a_whole(write, read):
    spans = [span(0, 11, fragments=[[0, 3], [9, 11]]), span(0, 3)]
    (doc,), report = read(write("a.jsonl", line(spans=spans)))
    assert found(doc) == [("Ada", "X")]
    (example,) = report.total().lost["misaligned start"].examples
    assert (example["start"], example["end"], example["fragments"]) == (0, 11, 2)
    assert example["text"] == "Ada met Bob"


BROKEN = [
    ('{"text": "a", "spans": [}', r"line 2: broken JSON at column 25: .*Expected one object"),
    ("[1]", r"line 2: found \[1\], expected one JSON object a line"),
    ('{"spans": []}', r"line 2: 'text' is missing or null, expected a string"),
    ('{"text": 5, "spans": []}', r"line 2: 'text' is 5, expected a string"),
    ('{"text": "a\\ud83d", "spans": []}', r"line 2: .*half of a surrogate pair at character 1"),
    ('{"text": "a"}', r"line 2: 'spans' is missing or null, expected a list; \[\] for none"),
    ('{"text": "a", "spans": {}}', r"line 2: 'spans' is {}, expected a list"),
    ('{"text": "a", "spans": [5]}', r"line 2, span 1: found 5, expected an object with start"),
    ("1" * 5000, r"line 2: JSON that cannot be read"),
    ("[" * 100_000, r"line 2: "),
]


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_a_broken_line_is_named(write, read, content, message):
    with pytest.raises(DataError, match=r"a\.jsonl, " + message):
        read(write("a.jsonl", line() + content))


BROKEN_SPANS = [
    ({"start": 0, "end": 3}, r"'label' is missing or null, expected a string that is not empty"),
    (span(0, 3, ""), r"'label' is ''"),
    (span(0, 3, 7), r"'label' is 7"),
    ({"end": 3, "label": "X"}, r"'start' is missing or null, expected an integer"),
    (span(0.0, 3), r"'start' is 0\.0, expected an integer"),
    (span("0", 3), r"'start' is '0', expected an integer"),
    (span(False, 3), r"'start' is False, expected an integer"),
    (span(0, True), r"'end' is True, expected an integer"),
    (span(3, 3), r"start 3 is not before end 3\. The end is exclusive"),
    (span(3, 0), r"start 3 is not before end 0"),
    (span(-1, 3), r"offsets -1 to 3 lie outside of the text, which has 11 characters"),
    (span(8, 12), r"offsets 8 to 12 lie outside of the text, which has 11 characters"),
    (span(0, 3, fragments=[]), r"'fragments' is \[\], expected \[\[start, end\], \.\.\.\]"),
    (span(0, 3, fragments=[0, 3]), r"'fragments' is \[0, 3\]"),
    (span(0, 3, fragments=[[0]]), r"'fragments' is \[\[0\]\]"),
    (span(0, 3, fragments=[["0", 3]]), r"'start' is '0'"),
    (span(0, 5, fragments=[[0, 3], [2, 5]]), r"fragments 0 to 3 and 2 to 5 overlap"),
    (
        span(0, 7, fragments=[[0, 3], [4, 5]]),
        r"fragments reach from 0 to 5, but start and end are 0 and 7",
    ),
]


@pytest.mark.parametrize(("broken", "message"), BROKEN_SPANS)
def test_a_broken_span_is_named(write, read, broken, message):
    path = write("a.jsonl", line() + line(spans=[span(0, 3), broken]))
    with pytest.raises(DataError, match=r"a\.jsonl, line 2, span 2: " + message):
        read(path)


def test_undecodable_bytes_are_named_with_their_line(write, read):
    path = write("a.jsonl", line().encode() + b'{"text": "caf\xe9", "spans": []}\n')
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: byte 0xe9 is not UTF-8"):
        read(path)


def test_utf_16_is_not_read_as_something_else(write, read):
    path = write("a.jsonl", line().encode("utf-16"))
    with pytest.raises(DataError, match=r"line 1: byte 0xff is not UTF-8"):
        read(path, format="jsonl")


def test_an_empty_file_is_an_error(write, read):
    with pytest.raises(DataError, match=r"a\.jsonl: the file is empty"):
        read(write("a.jsonl", ""), format="jsonl")


TOKENS = [
    {"text": "Ada", "start": 0, "end": 3, "id": 0, "ws": True},
    {"text": "met-Bob", "start": 4, "end": 11, "id": 1, "ws": False},
]


def test_prodigy_tokens_become_the_tokens(write, read):
    spans = [span(4, 11, token_start=1, token_end=1)]
    content = line("Ada met-Bob", spans, tokens=TOKENS, answer="accept", _input_hash=1)
    (doc,), report = read(write("a.jsonl", content))
    assert report.format == "prodigy"
    assert [token.text for token in doc] == ["Ada", "met-Bob"]
    assert doc.text == "Ada met-Bob"
    assert found(doc) == [("met-Bob", "X")]


def test_prodigy_spans_may_give_tokens_only(write, read):
    spans = [{"token_start": 0, "token_end": 1, "label": "X"}]
    (doc,), _ = read(write("a.jsonl", line("Ada met-Bob", spans, tokens=TOKENS)))
    assert found(doc) == [("Ada met-Bob", "X")]


def test_white_space_between_prodigy_tokens_keeps_its_place(write, read):
    text = "\n a  b\n"
    tokens = [{"text": "a", "start": 2, "end": 3}, {"text": "b", "start": 5, "end": 6}]
    (doc,), _ = read(write("a.jsonl", line(text, [span(5, 6)], tokens=tokens)))
    assert doc.text == text
    assert [token.text for token in doc] == ["\n ", "a", " ", "b", "\n"]
    assert found(doc) == [("b", "X")]


def test_rejected_and_ignored_prodigy_records_are_skipped_and_counted(write, read):
    answers = ["accept", "reject", "ignore", "reject"]
    content = "".join(line(text=str(i), answer=answer) for i, answer in enumerate(answers))
    content += json.dumps({"text": "no answer, no spans", "_input_hash": 5}) + "\n"
    docs, report = read(write("a.jsonl", content))
    assert [doc.text for doc in docs] == ["0", "no answer, no spans"]
    assert report.total().skipped == {"answer: reject": 2, "answer: ignore": 1}


BROKEN_PRODIGY = [
    ({"answer": "maybe"}, r"'answer' is 'maybe', expected accept, reject or ignore"),
    ({"tokens": 5}, r"'tokens' is 5, expected a list"),
    ({"tokens": [5]}, r"token 1: found 5, expected an object"),
    ({"tokens": TOKENS[:1]}, r"no token covers 'met-Bob' at character 3"),
    ({"tokens": [TOKENS[0], TOKENS[0]]}, r"token 2: it starts at 0, before the end"),
    ({"tokens": [{**TOKENS[0], "text": "Eve"}]}, r"token 1: the text holds 'Ada' at 0 to 3, but"),
    ({"tokens": [{**TOKENS[0], "end": 30}]}, r"token 1: offsets 0 to 30 lie outside"),
    (
        {"tokens": TOKENS, "spans": [span(0, 3, token_start=1, token_end=1)]},
        r"characters 0 to 3, but its tokens 1 to 1 are at 4 to 11",
    ),
    (
        {"tokens": TOKENS, "spans": [span(0, 3, token_start=0, token_end=2)]},
        r"token_start 0 and token_end 2, expected indices of the 2 tokens",
    ),
    (
        {"tokens": TOKENS, "spans": [span(0, 3, token_start=None, token_end=0)]},
        r"token_start missing or null and token_end 0",
    ),
]


@pytest.mark.parametrize(("fields", "message"), BROKEN_PRODIGY)
def test_a_broken_prodigy_record_is_named(write, read, fields, message):
    entry = {"text": "Ada met-Bob", "spans": [], **fields}
    path = write("a.jsonl", line() + json.dumps(entry))
    with pytest.raises(DataError, match=r"a\.jsonl, line 2.*" + message):
        read(path, format="prodigy")
