import pytest

from spacy_spans.converters.conll import Tag, decode_tags, parse_tag, split_columns
from spacy_spans.errors import DataError, SettingsError

OVERLAPPING = """\
Write\tB-Skill\tO
clean\tI-Skill\tO
Python\tI-Skill\tB-Knowledge
and\tO\tO
SQL\tB-Skill\tB-Knowledge

Apply\tO\tO
"""


def found(doc):
    return [(s.text, s.label_) for s in doc.spans["sc"]]


def decode(tags):
    parsed = [parse_tag(tag) for tag in tags.split()]
    return [(span.start, span.end, span.label) for span in decode_tags(parsed)]


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("", []),
        ("O O", []),
        ("B-X I-X O B-Y", [(0, 2, "X"), (3, 4, "Y")]),
        ("B-X B-X I-X", [(0, 1, "X"), (1, 3, "X")]),
        ("I-X I-X O I-X", [(0, 2, "X"), (3, 4, "X")]),  # IO
        ("I-X B-X I-Y", [(0, 1, "X"), (1, 2, "X"), (2, 3, "Y")]),  # IOB1
        ("B-X I-X E-X S-X O S-Y", [(0, 3, "X"), (3, 4, "X"), (5, 6, "Y")]),
        ("B-X L-X U-Y B-Y L-Y", [(0, 2, "X"), (2, 3, "Y"), (3, 5, "Y")]),
        ("B-X E-X I-X", [(0, 2, "X"), (2, 3, "X")]),
        ("E-X L-X", [(0, 1, "X"), (1, 2, "X")]),
        ("B-X I-Y", [(0, 1, "X"), (1, 2, "Y")]),
        ("S-X I-X", [(0, 1, "X"), (1, 2, "X")]),
        ("B I O B", [(0, 2, ""), (3, 4, "")]),
        ("B-a-b I-a-b", [(0, 2, "a-b")]),
    ],
)
def test_decode_tags(tags, spans):
    assert decode(tags) == spans


@pytest.mark.parametrize("cell", ["NNP", "", "o", "B-", "BX", "X-LOC", "0", "b-LOC", "O-LOC"])
def test_anything_else_is_no_tag(cell):
    assert parse_tag(cell) is None


def test_parse_tag():
    assert parse_tag("O") == Tag("O", "")
    assert parse_tag("B-creative-work") == Tag("B", "creative-work")


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        ("a\tO\tB-X", ["a", "O", "B-X"]),
        ("a  O   B-X ", ["a", "O", "B-X"]),
        (" New York\tB-X\t", ["New York", "B-X"]),
        ("a\u00a0b O", ["a\u00a0b", "O"]),
        ("\x85\tO", ["\x85", "O"]),
        ("\tO", ["", "O"]),
    ],
)
def test_split_columns(line, cells):
    assert split_columns(line) == cells


def test_two_tag_columns_give_overlapping_spans(write, read):
    docs, report = read(write("a.conll", OVERLAPPING))
    assert [doc.text for doc in docs] == ["Write clean Python and SQL", "Apply"]
    assert found(docs[0]) == [
        ("Write clean Python", "Skill"),
        ("Python", "Knowledge"),
        ("SQL", "Knowledge"),
        ("SQL", "Skill"),
    ]
    assert found(docs[1]) == []
    assert report.total().labels == {"Skill": 2, "Knowledge": 2}


def test_tokens_are_kept_as_given(write, read):
    path = write("a.conll", "don't\tO\n:-)\tB-X\na\u00a0b\tI-X\n")
    (doc,), _ = read(path)
    assert [token.text for token in doc] == ["don't", ":-)", "a\u00a0b"]
    assert found(doc) == [(":-) a\u00a0b", "X")]


@pytest.mark.parametrize(("labels", "expected"), [((), "LAYER1 LAYER2"), (("S", "K"), "S K")])
def test_tags_without_a_label_take_it_from_their_column(write, read, labels, expected):
    path = write("a.conll", "a B O\nb I B\nc O I\n")
    (doc,), _ = read(path, labels=labels)
    first, second = expected.split()
    assert found(doc) == [("a b", first), ("b c", second)]


def test_the_same_span_in_two_columns_with_one_label_is_kept_once(write, read):
    (doc,), report = read(write("a.conll", "a B-X B-X\n"))
    assert found(doc) == [("a", "X")]
    assert report.total().duplicates == 1


SENTENCES = "a O\n\nb O\nc B-X\n\n\n \t \nd O\n"


@pytest.mark.parametrize(
    ("n_sents", "texts"),
    [(None, ["a", "b c", "d"]), (1, ["a", "b c", "d"]), (2, ["a b c", "d"]), (0, ["a b c d"])],
)
def test_n_sents_groups_sentences(write, read, n_sents, texts):
    docs, _ = read(write("a.conll", SENTENCES), n_sents=n_sents)
    assert [doc.text for doc in docs] == texts
    assert [len(list(doc.sents)) for doc in docs] == [
        len(text.replace("b c", "b").split()) for text in texts
    ]


WITH_DOCUMENTS = "-DOCSTART- -X-\n\na O\n\nb B-X\n\n-DOCSTART- O\n\nc O\n\nd B-X\n\ne O\n"


@pytest.mark.parametrize(
    ("n_sents", "texts"),
    [(None, ["a b", "c d e"]), (0, ["a b", "c d e"]), (2, ["a b", "c d", "e"])],
)
def test_docstart_lines_start_documents(write, read, n_sents, texts):
    docs, report = read(write("a.conll", WITH_DOCUMENTS), n_sents=n_sents)
    assert report.format == "conll"
    assert [doc.text for doc in docs] == texts
    assert [s.text for doc in docs for s in doc.spans["sc"]] == ["b", "d"]


def test_spans_do_not_cross_sentences(write, read):
    (doc,), _ = read(write("a.conll", "a B-X\n\nb I-X\n"), n_sents=0)
    assert found(doc) == [("a", "X"), ("b", "X")]


def test_inside_tags_are_repaired_and_counted_where_the_column_is_iob2(write, read):
    content = "a B-X\nb O\nc I-X\nd I-X\n\ne I-Y\n"
    docs, report = read(write("a.conll", content))
    assert [found(doc) for doc in docs] == [[("a", "X"), ("c d", "X")], [("e", "Y")]]
    assert report.total().repaired.count == 2
    assert [e.partition("a.conll, ")[2] for e in report.total().repaired.examples] == [
        "line 3, column 2",
        "line 6, column 2",
    ]


@pytest.mark.parametrize("content", ["a I-X\nb O\n", "a I-X\nb B-X\nc I-X\n"])
def test_inside_tags_that_start_a_span_are_no_slip_in_io_and_iob1(write, read, content):
    _, report = read(write("a.conll", content))
    assert report.total().repaired.count == 0


def test_columns_choose_the_tags(write, read):
    content = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n"
    (doc,), _ = read(write("a.txt", content), columns=(4,))
    assert found(doc) == [("EU", "ORG")]
    (doc,), _ = read(write("a.txt", content), columns=(4, 3))
    assert found(doc) == [("EU", "NP"), ("EU", "ORG"), ("rejects", "VP")]


def test_comments_are_counted_and_hash_signs_are_tokens(write, read):
    (doc,), report = read(write("a.conll", "# id 7\tdomain=en\n#\tO\n#1\tB-X\n"))
    assert doc.text == "# #1"
    assert report.total().ignored == {"comments": 1}


def test_crlf_line_ends_and_a_byte_order_mark_are_tolerated(write, read):
    docs, _ = read(write("a.conll", "\ufeffa O\r\n\r\nb B-X\r\n"))
    assert [doc.text for doc in docs] == ["a", "b"]
    assert found(docs[1]) == [("b", "X")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a O\nb O O\n", r"line 2: 3 columns, expected 2 as in the lines before it"),
        ("a\tO\tO\nb\tO\n", r"line 2: 2 columns, expected 3"),
        ("a\tO\n\tO\n", r"line 2: column 1 is empty, expected a token and its tags"),
        ("a\tO\tO\nb\t\tO\n", r"line 2: column 2 is empty"),
        ("word\n", r"line 1: 1 column, expected at least two"),
        ("a NNP O\n", r"line 1: column 2 holds 'NNP', expected a tag: .*for instance --columns 3"),
        ("a O\nb x\n", r"line 2: column 2 holds 'x', expected a tag"),
        ("", r": the file is empty"),
        (b"a O\n\xff B-X\n", r"line 2: byte 0xff is not UTF-8"),
    ],
)
def test_broken_files(write, read, content, message):
    with pytest.raises(DataError, match=r"a\.conll(, |)" + message):
        read(write("a.conll", content), format="conll")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"labels": ("S",)}, r"1 labels were given \(S\), expected 2: one for each tag column"),
        ({"labels": ("S", "K")}, r"every tag in column 2 of .* has its own\. Leave --labels out"),
        ({"columns": (4,)}, r"column 4 was asked for, but .* has columns 1 to 3"),
        ({"columns": (1,)}, r"column 1 was asked for"),
    ],
)
def test_settings_that_do_not_fit_the_file(write, read, settings, message):
    with pytest.raises(SettingsError, match=message):
        read(write("a.conll", OVERLAPPING), **settings)


def test_a_file_of_blank_lines_gives_nothing(write, read):
    docs, report = read(write("a.conll", "\n\n"), format="conll")
    assert docs == []
    assert report.total().documents == 0
