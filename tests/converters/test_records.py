import gzip

import pytest

from spacy_spans.converters.records import check_label, read_lines, read_text, shown
from spacy_spans.errors import DataError


@pytest.mark.parametrize("function", [read_text, lambda path: list(read_lines(path))])
def test_what_cannot_be_read_is_named(tmp_path, function):
    for path in (tmp_path, tmp_path / "nope"):
        with pytest.raises(DataError, match=f"{path.name}: cannot be read: "):
            function(path)


@pytest.mark.parametrize("function", [read_text, lambda path: list(read_lines(path))])
def test_a_compressed_file_is_named(write, function):
    path = write("a.jsonl", gzip.compress(b"text"))
    with pytest.raises(DataError, match=r"a\.jsonl: the file is compressed.*Run gunzip first"):
        function(path)


def test_half_of_a_surrogate_pair_in_a_label_is_named():
    with pytest.raises(DataError, match="line 1: 'label' has half of a surrogate pair at char"):
        check_label("A\ud800", "line 1")


def test_only_lf_and_crlf_end_a_line(write):
    path = write("a.txt", "\ufeffa\rb\r\n\x85c\u2028\x0bd\x0c\n\n\ufeffe")
    assert list(read_lines(path)) == [
        (1, "a\rb"),
        (2, "\x85c\u2028\x0bd\x0c"),
        (3, ""),
        (4, "\ufeffe"),
    ]
    assert read_text(path) == "a\rb\r\n\x85c\u2028\x0bd\x0c\n\n\ufeffe"


def test_values_are_shown_shortened():
    assert shown(None) == "missing or null"
    assert shown("a") == "'a'"
    assert len(shown("a" * 1000)) == 60
