"""Texts without annotations."""

import pytest

from spacy_spans.errors import DataError
from spacy_spans.texts import read_texts


def write(path, content):
    path.write_bytes(content.encode("utf8"))
    return path


def test_one_text_a_line(tmp_path):
    plain = write(tmp_path / "a.txt", "\ufeffone <b>\r\n\n  two\u2028three \n \nlast")
    assert list(read_texts(plain)) == ["one <b>", "  two\u2028three ", "last"]
    lines = write(tmp_path / "a.jsonl", '{"text": "one\\ntwo", "spans": []}\n\n{"text": ""}\n')
    assert list(read_texts(lines)) == ["one\ntwo", ""]
    assert list(read_texts(write(tmp_path / "b.txt", ""))) == []


@pytest.mark.parametrize("line", ["{", "3", "[]", '{"text": 3}', '{"txt": "a"}'])
def test_a_line_that_is_no_text_is_named(tmp_path, line):
    path = write(tmp_path / "a.jsonl", f'{{"text": "a"}}\n{line}\n')
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: expected a JSON object"):
        list(read_texts(path))


def test_what_is_no_text_at_all(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\xfe")
    with pytest.raises(DataError, match=r"after line \d: not UTF-8"):
        list(read_texts(tmp_path / "a.txt"))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_texts(tmp_path / "missing.txt"))
