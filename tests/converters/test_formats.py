import os

import pytest

from spacy_spans.converters import FORMATS, guess_format
from spacy_spans.converters.formats import list_files
from spacy_spans.errors import DataError, SettingsError


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", '{"text": "a", "spans": []}', "jsonl"),
        ("a.data", '\n {"text": "a", "spans": []}', "jsonl"),
        ("a.jsonl", '{"text": broken', "jsonl"),
        ("a.jsonl", '{"text": "a", "answer": "accept"}', "prodigy"),
        ("a.jsonl", '{"text": "a", "tokens": []}', "prodigy"),
        ("a.jsonl", '{"text": "a", "_task_hash": 1}', "prodigy"),
        ("a.conll", "a\tO\n", "conll"),
        ("a.txt", "a B-X\n", "conll"),
        ("a.txt", "-DOCSTART-\n\na B-X\n", "conll"),
        ("a.txt", "# id 1\n\na NNP I-X\n", "conll"),
        ("a.csv", "spans,text\n", "toxic"),
        ("a.csv", '\ufeff"text","id","spans"\n', "toxic"),
    ],
)
def test_a_file_is_told_by_its_content(write, name, content, expected):
    format, reason = guess_format(write(name, content))
    assert format == expected
    assert reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "Just a text.\n"),
        ("a.csv", "id,text\n"),
        ("a.json", "[\n{}]"),
        ("a.csv", "spans\r,text"),
        ("a.md", "# Title\n\nText\n"),
        ("a.txt", "\n\n"),
        ("a.spacy", "\x00\x01"),
    ],
)
def test_a_file_that_cannot_be_told_names_the_formats(write, name, content):
    message = r"the format cannot be told.* Say which one it is: jsonl, prodigy, conll, brat, toxic"
    with pytest.raises(DataError, match=message):
        guess_format(write(name, content))


def test_a_folder_is_told_by_its_files(write):
    write("readme.txt", "Not data.")
    write(".hidden.csv", "spans,text\n")
    write("b/LICENSE", "MIT")
    folder = write("a.jsonl", '{"text": "a", "spans": []}').parent
    assert guess_format(folder) == ("jsonl", "its first line is a JSON object")
    files, left_out = list_files(folder, "jsonl")
    assert [file.name for file in files] == ["a.jsonl"]
    assert [file.name for file in left_out] == ["LICENSE", "readme.txt"]


def test_a_folder_of_text_files_with_tags(write):
    folder = write("a.txt", "a O\n").parent
    assert guess_format(folder)[0] == "conll"
    assert [file.name for file in list_files(folder, "conll")[0]] == ["a.txt"]


def test_a_folder_of_two_formats_is_an_error(write):
    write("a.jsonl", '{"text": "a", "spans": []}')
    folder = write("b.conll", "a O\n").parent
    with pytest.raises(DataError, match=r"a\.jsonl looks like jsonl, b\.conll like conll"):
        guess_format(folder)
    assert [file.name for file in list_files(folder, "conll")[0]] == ["b.conll"]


def test_folders_with_nothing_to_read(tmp_path, write):
    with pytest.raises(DataError, match=r"none of its 0 files has a known ending"):
        guess_format(tmp_path)
    write("a.md", "")
    with pytest.raises(DataError, match=r"none of its 1 files has a known ending"):
        guess_format(tmp_path)
    with pytest.raises(DataError, match=r"no file in this folder looks like conll.*\.conll"):
        list_files(tmp_path, "conll")


@pytest.mark.parametrize("function", [guess_format, lambda path: list_files(path, "jsonl")])
def test_missing_input(tmp_path, function):
    with pytest.raises(DataError, match="there is no such file or folder"):
        function(tmp_path / "nope.jsonl")


@pytest.mark.parametrize("function", [guess_format, lambda path: list_files(path, "jsonl")])
def test_a_pipe_is_not_called_a_folder(tmp_path, function):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="found a pipe or a device, expected a file or a folder"):
        function(tmp_path / "pipe")


def test_a_file_of_white_space_is_named(write):
    with pytest.raises(DataError, match="since it holds nothing but white space"):
        guess_format(write("a.txt", " \n\t\n"))


def test_an_empty_file_is_named_before_its_format(write, read):
    with pytest.raises(DataError, match=r"a\.txt: the file is empty"):
        guess_format(write("a.txt", ""))


def test_unknown_format(write, read):
    with pytest.raises(SettingsError, match=r"Unknown format 'xml', expected one of: jsonl, prod"):
        read(write("a.jsonl", "{}"), format="xml")


def test_options_a_format_has_no_use_for(write, read):
    path = write("a.jsonl", '{"text": "a", "spans": []}')
    for name, value in (("labels", ("A",)), ("columns", (2,)), ("n_sents", 1)):
        with pytest.raises(SettingsError, match=f"{name} was given, but format jsonl has no use"):
            read(path, **{name: value})


def test_every_format_is_named_in_the_documentation():
    import spacy_spans.converters

    for name in FORMATS:
        assert f"| {name} |" in spacy_spans.converters.__doc__
