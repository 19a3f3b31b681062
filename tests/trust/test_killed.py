"""Killed at any moment, commands leave the old output or the complete new one.

SIGKILL leaves behind what is on disk at that moment, so most of this looks at the disk at every
moment, in one run; some runs are killed. Timed kills of what commands write with are in
`tests/test_files.py`.
"""

import json
import os
import shutil
import signal
import sys
from functools import cache
from hashlib import sha256
from itertools import groupby

import pytest
import spacy
from spacy.cli._util import app
from spacy.tokens import DocBin
from spacy.training.corpus import walk_corpus
from typer.testing import CliRunner

import spacy_spans.cli  # noqa: F401  adds the commands to the app
from spacy_spans.files import list_visible

from ..forked import fork, join
from ..pipeline import DATA, make_examples, make_trained

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="folders change places at once on Linux"),
]

# From the name of a command to its arguments and what it writes; {0} has inputs, {1} gets outputs.
COMMANDS = {
    "convert": (["{0}/lines.jsonl", "{1}/all.spacy", "--json", "{1}/report.json"], "all.spacy"),
    "render": (
        ["{0}/dev.spacy", "--output", "{1}/page.html", "--json", "{1}/report.json"],
        "page.html",
    ),
    "calibrate": (
        ["{0}/trained", "{0}/dev.spacy", "--output", "{1}/best", "--json", "{1}/report.json"],
        "best",
    ),
}
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
OLD = b"old"
TORN = "open for writing"


def before_each_change(call):
    """Call a function before anything on disk is changed, for as long as the process lives.

    call (Callable): Gets the path of a file that is opened for writing; "" for other changes.
    """
    is_calling = False

    def hook(event, args):
        nonlocal is_calling
        opens = event == "open" and args[2] & WRITES
        if not is_calling and (opens or event in CHANGES):
            is_calling = True
            try:
                call(str(args[0]) if opens else "")
            finally:
                is_calling = False

    sys.addaudithook(hook)


class Command:
    """A command with small inputs, and a folder that it writes to."""

    def __init__(self, name, folder):
        arguments, output = COMMANDS[name]
        self.inputs, self.outputs = folder / "in", folder / "out"
        self.inputs.mkdir()
        self.outputs.mkdir()
        self.name, self.names = name, (output, "report.json")
        self.arguments = [argument.format(self.inputs, self.outputs) for argument in arguments]
        self._write_inputs()

    def _write_inputs(self):
        nlp = make_trained(threshold=0.05) if self.name == "calibrate" else spacy.blank("en")
        nlp.to_disk(self.inputs / "trained")
        docs = [own.reference for own in make_examples(nlp, DATA) if len(own.reference)]
        DocBin(docs=docs).to_disk(self.inputs / "dev.spacy")
        lines = "\n".join(json.dumps({"text": text, "spans": []}) for text, _ in DATA)
        (self.inputs / "lines.jsonl").write_text(lines)

    def begin(self, has_old):
        """Leave nothing but old outputs, or nothing at all."""
        shutil.rmtree(self.outputs)
        self.outputs.mkdir()
        for path in (self.outputs / name for name in self.names if has_old):
            if path.suffix:
                path.write_bytes(OLD)
            else:
                path.mkdir()
                (path / "config.cfg").write_bytes(OLD)

    def run(self):
        result = CliRunner().invoke(app, ["spans", self.name, *self.arguments])
        assert result.exit_code == 0, result.output

    def read(self):
        """Names and checksums of all that an output consists of; None for none."""
        return {name: self._read(self.outputs / name) for name in self.names}

    def _read(self, path):
        if not path.exists():
            return None
        files = list_visible(path) if path.is_dir() else [path]
        return [[str(file), sha256(file.read_bytes()).hexdigest()] for file in files]

    @cache  # noqa: B019 (there are as many as commands)
    def watch(self, has_old):
        """Run in another process. RETURNS (list): What there was before each change, and after."""
        self.begin(has_old)
        found = []

        def look(opened):
            own = {name for name in self.names if opened.startswith(str(self.outputs / name))}
            # What is opened for writing is empty then, until something is written.
            found.append(self.read() | dict.fromkeys(own, TORN))

        def work():
            before_each_change(look)
            self.run()
            (self.inputs / "found.json").write_text(json.dumps(found))

        assert join(fork(work)) == 0
        self.check_complete()
        assert self.hidden() == []
        return [*json.loads((self.inputs / "found.json").read_text()), self.read()]

    def kill_at(self, moment):
        """Run in another process that is killed before this change, counted from 0."""
        left = moment

        def count(opened):
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

        def work():
            before_each_change(count)
            self.run()

        assert join(fork(work)) == -signal.SIGKILL

    def check_complete(self):
        """All outputs can be read, and are whole."""
        assert json.loads((self.outputs / "report.json").read_text(encoding="utf8"))
        output = self.outputs / self.names[0]
        if self.name == "convert":
            assert len(DocBin().from_disk(output)) == len(DATA)
        elif self.name == "render":
            assert output.read_text(encoding="utf8").endswith("</html>\n")
        else:
            assert spacy.load(output).get_pipe("span_enumerator").cfg["score_map"]
            plots = {path.name for path in (output / "calibration").glob("*.png")}
            assert plots in (set(), {"reliability.png", "precision_recall.png"})

    def hidden(self):
        """What was not finished."""
        return [path for path in self.outputs.iterdir() if path.name.startswith(".")]


@pytest.fixture(scope="module", params=COMMANDS)
def command(request, tmp_path_factory):
    return Command(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("has_old", [False, True])
def test_at_every_moment_there_is_the_old_or_the_complete_new_output(command, has_old):
    moments = command.watch(has_old)
    for name in command.names:
        states = [state for state, _ in groupby(own[name] for own in moments)]
        assert len(states) == 2, states
        assert (states[0] is not None) == has_old
        assert TORN not in states


def test_after_killed_runs_the_next_one_succeeds(command):
    moments = command.watch(has_old=True)
    old, new, n_changes = moments[0], moments[-1], len(moments) - 1
    command.begin(has_old=True)
    for moment in (1, n_changes // 2, n_changes - 1):
        command.kill_at(moment)
        for name, state in command.read().items():
            assert state in (old[name], new[name])
    assert command.hidden() != []
    if command.name == "convert":
        # What was not finished is not taken for data.
        assert walk_corpus(command.outputs, ".spacy") == [command.outputs / "all.spacy"]
    command.run()
    assert command.read() == new
