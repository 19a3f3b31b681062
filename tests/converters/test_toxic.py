import csv

import pytest

from spacy_spans.converters.toxic import find_runs
from spacy_spans.errors import DataError, SettingsError


def found(doc):
    return [(s.text, s.label_) for s in doc.spans["sc"]]


@pytest.mark.parametrize(
    ("indices", "runs"),
    [
        ([], []),
        ([3], [(3, 4)]),
        ([3, 4, 5, 8, 9], [(3, 6), (8, 10)]),
        ([9, 3, 8, 4, 3], [(3, 5), (8, 10)]),
    ],
)
def test_find_runs(indices, runs):
    assert find_runs(indices) == runs


def test_runs_of_indices_become_spans(write, read):
    path = write(
        "a.csv",
        'spans,text\n"[4, 5, 6, 12, 13]","You pig, go\nho, ""friend"""\n[],Fine\n"[0,1,2]",Oaf\n',
    )
    docs, report = read(path)
    assert report.format == "toxic"
    assert [doc.text for doc in docs] == ['You pig, go\nho, "friend"', "Fine", "Oaf"]
    assert [found(doc) for doc in docs] == [
        [("pig", "TOXIC"), ("ho", "TOXIC")],
        [],
        [("Oaf", "TOXIC")],
    ]


def test_columns_in_another_order_more_of_them_and_another_label(write, read):
    path = write("a.csv", "\ufeffid,text,spans\r\n7,Oaf,[0]\r\n\r\n")
    (doc,), report = read(path, labels=("RUDE",), alignment_mode="expand")
    assert found(doc) == [("Oaf", "RUDE")]
    assert report.total().moved == 1


def test_a_text_longer_than_the_csv_module_reads_by_default(write, read):
    limit = csv.field_size_limit()
    (doc,), _ = read(write("a.csv", "spans,text\n[0]," + "a " * limit + "\n"))
    assert (len(doc), found(doc)) == (limit, [("a", "TOXIC")])
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r": the file is empty"),
        ("\n\n", r"line 1: columns \[\], expected spans and text among them"),
        ("spans;text\n", r"line 1: columns \['spans;text'\], expected"),
        ("spans,text\n[]\n", r"line 2: 1 columns, expected 2 as in the first line"),
        ('spans,text\n[],"a\nb"\n[],c,d\n', r"line 4: 3 columns, expected 2"),
        ("spans,text\n[x],a\n", r"line 2: 'spans' is '\[x\]', expected a list of character"),
        ("spans,text\n__import__('os'),a\n", r"line 2: 'spans' is "),
        ("spans,text\n5,a\n", r"line 2: 'spans' is '5'"),
        (",text\n", r"line 1: columns \['', 'text'\]"),
        ("spans,text\n[0.0],a\n", r"line 2: 'spans' holds 0\.0, expected integers"),
        ("spans,text\n[true],a\n", r"line 2: 'spans' holds True"),
        ("spans,text\n[1],a\n", r"line 2: offsets 1 to 2 lie outside of the text, which has 1"),
        ("spans,text\n[-1],a\n", r"line 2: offsets -1 to 0 lie outside"),
        ('spans,text\n[],"a\n', r"line 2: broken CSV: unexpected end of data"),
        (b"spans,text\n[],\xff\n", r"line 2: byte 0xff is not UTF-8"),
    ],
)
def test_broken_files(write, read, content, message):
    with pytest.raises(DataError, match=r"a\.csv(, |)" + message):
        read(write("a.csv", content), format="toxic")


def test_two_labels_are_too_many(write, read):
    with pytest.raises(SettingsError, match=r"2 labels were given \(A, B\), expected one"):
        read(write("a.csv", "spans,text\n"), labels=("A", "B"))
