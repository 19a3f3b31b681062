import pytest

from spacy_spans.errors import DataError

TEXT = "Left and right arm\nhurt since May.\n"


@pytest.fixture
def pair(write):
    def write_pair(annotations, text=TEXT, name="folder/a"):
        write(f"{name}.txt", text)
        return write(f"{name}.ann", annotations).parent

    return write_pair


def found(doc):
    return [(s.text, s.label_, s.id_) for s in doc.spans["sc"]]


def test_spans_of_all_shapes(pair, read):
    folder = pair(
        "T1\tARM 9 18\tright arm\n"
        "T2\tARM 0 4;15 18\tLeft arm\n"
        "T3\tDATE 30 33\tMay\n"
        "\n"
        "T4\tPAIN 15 18;19 23\tarm hurt\n"
    )
    (doc,), report = read(folder)
    assert doc.text == TEXT
    # T4 runs over a line break, for which brat writes two fragments.
    assert found(doc) == [
        ("Left", "ARM", "m1"),
        ("right arm", "ARM", ""),
        ("arm", "ARM", "m1"),
        ("arm\nhurt", "PAIN", ""),
        ("May", "DATE", ""),
    ]
    assert (report.format, report.guessed) == ("brat", "the folder has .ann files")
    assert report.total().labels == {"ARM": 2, "DATE": 1, "PAIN": 1}
    assert (report.total().joined, report.total().discontinuous) == (1, 1)


def test_lines_that_are_no_spans_are_ignored_and_counted(pair, read):
    folder = pair(
        "T1\tARM 9 18\tright arm\n"
        "R1\tpart-of Arg1:T1 Arg2:T1\n"
        "E1\tPAIN:T1 Where:T1\n"
        "A1\tNegated T1\n"
        "M1\tLow T1\n"
        "N1\tReference T1 UMLS:1\tarm\n"
        "#1\tAnnotatorNotes T1\tsure?\n"
        "*\tAlias T1 T1\n"
    )
    (doc,), report = read(folder)
    assert found(doc) == [("right arm", "ARM", "")]
    assert report.total().ignored == {
        "relations": 1,
        "events": 1,
        "attributes": 2,
        "normalisations": 1,
        "notes": 1,
        "equivalences": 1,
    }


def test_empty_annotations_give_a_document_without_spans(pair, read):
    (doc,), _ = read(pair(""))
    assert found(doc) == []


def test_a_text_without_annotations_is_left_out_and_counted(pair, write, read):
    folder = pair("T1\tARM 9 18\tright arm\n")
    write("folder/b.txt", "Never opened.")
    docs, report = read(folder)
    assert len(docs) == 1
    assert report.total().skipped == {"no .ann file": 1}
    assert [file.documents for file in report.files] == [1, 0]


def test_a_single_pair_and_folders_in_folders(pair, read):
    pair("", name="folder/b/c")
    folder = pair("T1\tARM 9 18\tright arm\n")
    docs, _ = read(folder)
    assert [len(doc.spans["sc"]) for doc in docs] == [1, 0]
    for name in ("a.txt", "a.ann"):
        (doc,), report = read(folder / name)
        assert found(doc) == [("right arm", "ARM", "")]
        assert report.format == "brat"


def test_annotations_without_a_text_are_an_error(write, read):
    path = write("folder/a.ann", "T1\tARM 9 18\tright arm\n")
    with pytest.raises(DataError, match=r"a\.ann: there is no a\.txt beside it"):
        read(path.parent)


def test_crlf_in_the_annotations_is_tolerated_and_counts_in_the_text(pair, read):
    (doc,), _ = read(pair("T1\tX 5 8\tend\r\n", text="One\r\nend"))
    assert found(doc) == [("end", "X", "")]
    with pytest.raises(DataError, match=r"The text has CRLF line ends: were they LF when"):
        read(pair("T1\tX 4 7\tend\n", text="One\r\nend"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("T2 ARM 9 18 right arm", r"1 fields, expected an id, a label with offsets, and the text"),
        ("T2\tARM 9 18", r"2 fields, expected"),
        ("T2\tARM 9\tx", r"found 'ARM 9', expected .*0 5;10 15 for two fragments"),
        ("T2\tARM 9 -18\tx", r"found 'ARM 9 -18', expected"),
        ("T2\tARM 9 12,14 18\tx", r"found 'ARM 9 12,14 18', expected"),
        ("T2\t 9 12\tx", r"found ' 9 12', expected"),
        (f"T2\tARM 0 {'9' * 5000}\tx", r"found 'ARM 0 999.*\.\.\., expected"),
        ("T2\tARM 9 9\tx", r"start 9 is not before end 9"),
        ("T2\tARM 30 99\tx", r"offsets 30 to 99 lie outside of the text, which has 35 characters"),
        ("T2\tARM 0 4;3 8\tLeft t and", r"fragments 0 to 4 and 3 to 8 overlap"),
        ("T2\tARM 9 18\tleft arm", r"holds 'right arm' at these offsets, but the line says 'left"),
        ("T1\tARM 9 18\tright arm", r"id T1 is taken by a line before it"),
        ("X1\tARM 9 18\tright arm", r"found 'X1.*, expected an id that starts with one of TREAMN"),
        ("R1 part-of", r"found 'R1 part-of', expected an id"),
    ],
)
def test_a_malformed_line_is_named(pair, read, line, message):
    folder = pair(f"T1\tARM 9 18\tright arm\n{line}\n")
    with pytest.raises(DataError, match=r"a\.ann, line 2: .*" + message):
        read(folder)


def test_undecodable_annotations_are_named(pair, read):
    with pytest.raises(DataError, match=r"a\.ann, line 2: byte 0xff is not UTF-8"):
        read(pair(b"T1\tARM 9 18\tright arm\n\xff"))
