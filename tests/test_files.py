import json
import os
import random
import signal
import stat
import sys
import time
from itertools import cycle

import pytest

from spacy_spans import files
from spacy_spans.errors import DataError, SettingsError
from spacy_spans.files import (
    check_writable,
    list_visible,
    replacing,
    replacing_folder,
    write_json,
)

from .forked import fork, join


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


def test_an_output_must_not_be_an_input(tmp_path):
    path = tmp_path / "a.spacy"
    # Also when it does not exist yet: another output may create it before.
    for existing in (False, True):
        if existing:
            path.write_text("data")
        with pytest.raises(SettingsError, match="is also the input, which it would replace"):
            check_writable(tmp_path / "." / "a.spacy", inputs=[tmp_path / "b", path])
    (tmp_path / "soft.json").symlink_to(path)
    os.link(path, tmp_path / "hard.json")
    for name in ("soft.json", "hard.json"):
        with pytest.raises(SettingsError, match="is also the input"):
            check_writable(tmp_path / name, inputs=[path])
    assert check_writable(tmp_path / "b.json", inputs=[path]) == tmp_path / "b.json"


def test_an_output_must_not_lie_inside_an_input_folder(tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "in" / "deep")
    for output in ("in/a", "in/deep/a", "link/a"):
        with pytest.raises(SettingsError, match=r"lies inside of the input '.*in', expected"):
            check_writable(tmp_path / output, inputs=[tmp_path / "in"])
    beside = tmp_path / "in.json"
    assert check_writable(beside, inputs=[tmp_path / "in", tmp_path / "nope"]) == beside


def test_outputs_must_differ(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(SettingsError, match="are the same file, expected two"):
        check_writable(path, others=[None, tmp_path / "x" / ".." / "a"])
    assert check_writable(path, others=[None, tmp_path / "b"]) == path


def test_an_output_must_be_an_ordinary_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for path in ("/dev/null", tmp_path / "pipe", tmp_path / "link"):
        with pytest.raises(SettingsError, match="is a device or a pipe, expected an ordinary"):
            check_writable(path)


def test_visible_files_are_listed_sorted(tmp_path):
    for name in ("b", "a/z", "a/.tmp", ".hidden/c", ".x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "pipe")
    names = [path.relative_to(tmp_path).as_posix() for path in list_visible(tmp_path)]
    assert names == ["a/z", "b"]


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "locked").mkdir()
    (tmp_path / "a").touch()
    scandir = os.scandir

    def refuse(path):
        if os.fspath(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    # The tests may run as root, who may read everything.
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"locked: the folder cannot be read \(Permission denied\)"):
        list_visible(tmp_path)


def test_names_that_are_no_text_survive_in_json(tmp_path):
    name = os.fsdecode(b"a\xff.jsonl")
    write_json(tmp_path / "a.json", name)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf8")) == name


def write_folder(path, content):
    with replacing_folder(path) as temporary:
        for name in ("one", "two"):
            (temporary / name).write_text(content)


def read_folder(path):
    return [(path / name).read_text() for name in ("one", "two")]


@pytest.mark.parametrize("in_one_step", [True, False])
def test_the_new_folder_takes_the_place_of_the_old_one(tmp_path, monkeypatch, in_one_step):
    if not in_one_step:
        monkeypatch.setattr(files, "_exchange", lambda first, second: False)
    for content in "ab":
        write_folder(tmp_path / "folder", content)
        assert read_folder(tmp_path / "folder") == [content, content]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_folder_that_cannot_take_its_place_leaves_the_old_one(tmp_path, monkeypatch, in_one_step):
    write_folder(tmp_path / "folder", "old")
    rename = os.rename

    def refuse(source, target):
        if os.fspath(source).endswith(".tmp"):
            raise PermissionError(13, "Permission denied")
        rename(source, target)

    def exchange(first, second):
        if in_one_step:
            raise KeyboardInterrupt
        return False

    monkeypatch.setattr(files, "_exchange", exchange)
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(KeyboardInterrupt if in_one_step else PermissionError):
        write_folder(tmp_path / "folder", "new")
    assert read_folder(tmp_path / "folder") == ["old", "old"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.skipif(sys.platform != "linux", reason="folders change places in one step on Linux")
def test_killed_at_any_moment_leaves_the_old_or_the_complete_new(tmp_path):
    def write():
        """A file and a folder over and over, in turns all of one letter and all of another."""
        for letter in cycle("ab"):
            with replacing(tmp_path / "file") as path:
                path.write_text(letter * 200_000)
            write_folder(tmp_path / "folder", letter * 50_000)

    draw = random.Random(0)
    for _ in range(20):
        process = fork(write)
        while not (tmp_path / "folder").exists():
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.02))
        os.kill(process, signal.SIGKILL)
        assert join(process) == -signal.SIGKILL
        # What was not finished is hidden: the next run does not read it.
        names = [path.relative_to(tmp_path).as_posix() for path in list_visible(tmp_path)]
        assert names == ["file", "folder/one", "folder/two"]
        assert (tmp_path / "file").read_text() in {"a" * 200_000, "b" * 200_000}
        assert read_folder(tmp_path / "folder") in (["a" * 50_000] * 2, ["b" * 50_000] * 2)
