import json
import os
import stat

import pytest

from spacy_spans.errors import SettingsError
from spacy_spans.files import check_writable, replacing, write_json

pytestmark = pytest.mark.installed


def write_half(path, error):
    with replacing(path) as temporary:
        temporary.write_text("half")
        assert temporary.parent == path.parent
        raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("old", [None, "old"])
def test_on_any_error_the_old_file_stays_and_nothing_is_left(tmp_path, error, old):
    path = tmp_path / "a.txt"
    if old is not None:
        path.write_text(old)
    before = {file.name for file in tmp_path.iterdir()}
    with pytest.raises(error):
        write_half(path, error)
    assert {file.name for file in tmp_path.iterdir()} == before
    assert old is None or path.read_text() == old


def test_the_new_file_takes_the_place_of_the_old_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(str(path)) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert (temporary.suffix, temporary.name[0]) == (".txt", ".")
    assert path.read_text() == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_the_new_file_has_ordinary_permissions(tmp_path):
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    write_json(tmp_path / "a.json", 1)
    modes = [stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("ordinary", "a.json")]
    assert modes[0] == modes[1]


def test_a_link_is_followed(tmp_path):
    target = tmp_path / "target.json"
    target.write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(target)
    write_json(link, {"ä": [1]})
    assert link.is_symlink()
    assert target.read_text(encoding="utf8") == '{\n  "ä": [\n    1\n  ]\n}\n'


def test_what_json_does_not_know_is_not_written(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, float("nan"))
    with pytest.raises(TypeError):
        write_json(path, {1, 2})
    assert list(tmp_path.iterdir()) == []
    write_json(path, None)
    assert json.loads(path.read_text()) is None


def test_check_writable(tmp_path):
    assert check_writable(str(tmp_path / "a.spacy"), suffix=".spacy") == tmp_path / "a.spacy"
    assert check_writable(tmp_path / "a") == tmp_path / "a"
    with pytest.raises(SettingsError, match=r"expected a name that ends in '\.spacy'.*a\.spacy'"):
        check_writable(tmp_path / "a.bin", suffix=".spacy")
    with pytest.raises(SettingsError, match="is a folder, expected a file name"):
        check_writable(tmp_path)
    with pytest.raises(SettingsError, match=r"does not exist\. Create '.*nope' first"):
        check_writable(tmp_path / "nope" / "a.json")
