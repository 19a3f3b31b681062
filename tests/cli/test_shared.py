"""What every command does with errors, signals and its output."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import typer

from spacy_spans.cli._shared import exit_on_error
from spacy_spans.errors import DataError
from spacy_spans.files import replacing

PRINT = """
import typer
from spacy_spans.cli._shared import exit_on_error
app = typer.Typer()
@app.command()
def main(text: str):
    with exit_on_error("Cannot") as msg:
        msg.good(text)
        typer.echo(text)
        msg.table([[text]])
app()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_nothing_half_written(tmp_path, name):
    number = getattr(signal, name)

    def work():
        with exit_on_error("Cannot"), replacing(tmp_path / "a") as path:
            path.write_text("half")
            os.kill(os.getpid(), number)

    # The program that runs the tests may have set its own.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as error:
            work()
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert error.value.code == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with exit_on_error("Cannot"):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_set_no_handlers():
    done = []

    def work():
        with exit_on_error("Cannot"):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


@pytest.mark.parametrize("error", [DataError("a\x1bb\nc"), OSError("a\x1bb\nc")])
def test_errors_are_printed_escaped(capsys, error):
    with pytest.raises(typer.Exit) as exit, exit_on_error("Cannot do it"):
        raise error
    assert exit.value.exit_code == 1
    out = capsys.readouterr().out
    assert "Cannot do it" in out
    assert "a\\x1bb c\n" in out


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_printing_fails_in_no_encoding(encoding):
    text = "\u00e4 \u2588"
    done = subprocess.run(
        [sys.executable, "-c", PRINT, text],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    expected = text.encode(encoding, errors="backslashreplace")
    assert expected in done.stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has /dev/full")
def test_a_full_disk_gives_exit_code_1():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", PRINT, "text"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"Cannot print: No space left on device\n"
