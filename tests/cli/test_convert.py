import json
import subprocess
import sys

import pytest
import spacy
from spacy.tokens import DocBin
from typer.testing import CliRunner

from spacy_spans.cli import app

CONLL = "Write\tB\tO\ncleanly\tI\tB\n\nYes\tO\tO\n"


@pytest.fixture
def run(tmp_path):
    """Run the command on a file with the given name and content; give exit code and output."""

    def run_command(name, content, *args, output="out.spacy"):
        path = tmp_path / name
        path.write_text(content, encoding="utf8")
        command = ["spans", "convert", str(path), str(tmp_path / output), *args]
        result = CliRunner().invoke(
            app, command, env={"NO_COLOR": "1", "ANSI_COLORS_DISABLED": "1"}
        )
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.exit_code, " ".join(result.output.split())

    return run_command


def load(tmp_path):
    return list(DocBin().from_disk(tmp_path / "out.spacy").get_docs(spacy.blank("en").vocab))


def line(text, *spans):
    keys = ("start", "end", "label", "fragments")
    return json.dumps({"text": text, "spans": [dict(zip(keys, s, strict=False)) for s in spans]})


def test_a_conversion_from_end_to_end(run, tmp_path):
    content = "\n".join(
        [line("Ada met Bob-o", (0, 3, "P"), (8, 11, "P"), (8, 10, "Q"), (0, 3, "P")), line("Yes")]
    )
    code, output = run("a.jsonl", content, "--json", str(tmp_path / "report.json"))
    assert code == 0, output
    assert "Format: jsonl (guessed: its first line is a JSON object)" in output
    assert "1 of 4 annotations (25.0%)" in output
    assert "doc 0, 8 to 10, Q: 'Bo' (" in output
    assert "Wrote 2 documents with" in output
    data = json.loads((tmp_path / "report.json").read_text(encoding="utf8"))
    assert data["format"] == "jsonl"
    assert data["total"]["duplicates"] == 1
    assert data["files"][0]["path"].endswith("a.jsonl")
    assert [doc.text for doc in load(tmp_path)] == ["Ada met Bob-o", "Yes"]


def test_every_option_arrives(run, tmp_path):
    code, output = run(
        "a.txt",
        CONLL,
        *("--format", "conll", "--spans-key", "k", "--lang", "xx", "--alignment-mode", "expand"),
        *("--labels", "SKILL, HOW", "--columns", "2,3", "--n-sents", "2"),
    )
    assert code == 0, output
    assert "Format: conll" in output
    assert "guessed" not in output
    (doc,) = load(tmp_path)
    assert [(s.text, s.label_) for s in doc.spans["k"]] == [
        ("Write cleanly", "SKILL"),
        ("cleanly", "HOW"),
    ]


def test_what_was_left_out_is_said(run, tmp_path):
    content = '{"text": "a", "answer": "reject"}\n{"text": "b", "spans": []}\n'
    code, output = run("a.jsonl", content)
    assert code == 0
    assert "Documents left out: 1 x answer: reject" in output
    code, output = run("a.conll", "# id 1\na O\nb I-X\n\nc B-X\n")
    assert "Ignored: 1 x comments" in output
    assert "Tags repaired: 1 inside of a span" in output
    assert "a.conll, line 3, column 2" in output


def test_folders_show_a_row_for_each_file(tmp_path):
    for index in range(23):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"f{index:02}.txt").write_text("Ada met Bob")
        (tmp_path / "in" / f"f{index:02}.ann").write_text("T1\tX 0 3\tAda\nR1\tr Arg1:T1\n")
    (tmp_path / "in" / "notes.md").touch()
    command = ["spans", "convert", str(tmp_path / "in"), str(tmp_path / "out.spacy")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    output = " ".join(result.output.split())
    assert "f19.txt 1 1 1" in output
    assert "f20.txt" not in output
    assert "total 23 23 23" in output
    assert "The first 20 of 23 files; --json writes all." in output
    assert "Ignored: 23 x relations" in output
    assert "Files left out: 1 (notes.md)" in output


@pytest.mark.parametrize(
    ("name", "content", "args", "message"),
    [
        ("a.jsonl", "{", (), "a.jsonl, line 1: broken JSON at column 2"),
        ("a.jsonl", "", (), "a.jsonl: the file is empty"),
        ("a.md", "Prose.", (), "Say which one it is: jsonl, prodigy, conll, brat, toxic"),
        ("a.jsonl", line("a"), ("--format", "xml"), "Unknown format 'xml'"),
        ("a.jsonl", line("a"), ("--alignment-mode", "x"), "Unknown alignment mode 'x'"),
        ("a.jsonl", line("a"), ("--labels", "A"), "format jsonl has no use for it"),
        ("a.jsonl", line("a"), ("--lang", "klingon"), "No tokenizer for language 'klingon'"),
        ("a.conll", CONLL, ("--columns", "2" * 5000), "..., expected numbers such as 2,3"),
        ("a.jsonl", line("a"), ("--lang", "lex_attrs"), "No tokenizer for language 'lex_attrs'"),
        ("a.conll", CONLL, ("--columns", "x"), "--columns is 'x', expected numbers such as 2,3"),
        ("a.jsonl", line("a"), ("--json", "/nope/a.json"), "Create '/nope' first"),
    ],
)
def test_errors_are_messages_and_exit_code_1(run, tmp_path, name, content, args, message):
    (tmp_path / "out.spacy").write_text("old")
    code, output = run(name, content, *args)
    assert code == 1
    assert "Cannot convert" in output
    assert message in output
    assert "Traceback" not in output
    assert (tmp_path / "out.spacy").read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([name, "out.spacy"])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("a.jsonl", "is also the input"),
        ("out.spacy", "are the same file"),
        ("/dev/null", "is a device or a pipe"),
    ],
)
def test_the_report_replaces_nothing_else(run, tmp_path, target, message):
    code, output = run("a.jsonl", line("Ada"), "--json", str(tmp_path / target))
    assert code == 1
    assert message in output
    assert (tmp_path / "a.jsonl").read_text() == line("Ada")
    assert not (tmp_path / "out.spacy").exists()


def test_the_report_replaces_neither_file_of_a_pair(run, tmp_path):
    (tmp_path / "a.ann").write_text("T1\tX 0 3\tAda\n")
    code, output = run("a.txt", "Ada", "--json", str(tmp_path / "a.ann"))
    assert code == 1
    assert "is also the input" in output


def test_control_characters_are_escaped(run):
    code, output = run("a.jsonl", line("Ada", (0, 3, "P\x1b[31m"), (0, 1, "Q\n")))
    assert code == 0
    assert r"P\x1b[31m" in output
    assert r"0 to 1, Q\n: 'A'" in output
    assert "\x1b[31m" not in output
    code, output = run("\x1b[31m.jsonl", "{")
    assert code == 1
    assert r"\x1b[31m.jsonl, line 1" in output
    assert "\x1b[31m" not in output


def test_help_names_every_format():
    result = CliRunner().invoke(app, ["spans", "convert", "--help"])
    assert result.exit_code == 0
    output = " ".join(result.output.split())
    assert "jsonl, prodigy, conll, brat or toxic" in output


def test_the_command_is_found_and_imports_nothing_heavy(tmp_path):
    """In a process of its own, through spaCy's entry point."""
    (tmp_path / "a.jsonl").write_text(line("Ada"))
    code = (
        "import sys, spacy_spans.cli\n"
        # thinc imports torch by itself.
        "heavy = {'spacy_transformers', 'spacy_spans.converters'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "sys.argv = ['spacy', 'spans', 'convert', 'a.jsonl', 'out.spacy']\n"
        "from spacy.cli import setup_cli\n"
        "setup_cli()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (tmp_path / "out.spacy").is_file()
