"""README.md: code runs and prints what it says, configs resolve, links lead somewhere."""

import contextlib
import io
import os
import re
from dataclasses import dataclass

import pytest
import spacy
from thinc.api import Config

from . import conftest

README = conftest.REPOSITORY / "README.md"
FENCE = re.compile(r"^(?P<mark>```+)(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=mark)[ \t]*$", re.M | re.S)
OUTPUT_LANGUAGES = ("", "text", "output", "console-output")
# Registered names by their prefix in configs, e.g. @architectures.
REFERENCE = re.compile(r'^@(\w+)\s*=\s*"([^"]+)"', re.M)


@dataclass
class Block:
    language: str
    body: str
    line: int
    # Only white space lies between this block and the one before.
    follows: bool

    def __str__(self):
        return f"line {self.line}"


def read_blocks(text):
    blocks = []
    end = None
    for match in FENCE.finditer(text):
        info = match["info"].split()
        blocks.append(
            Block(
                language=info[0].lower() if info else "",
                body=match["body"],
                line=text.count("\n", 0, match.start()) + 1,
                follows=end is not None and not text[end : match.start()].strip(),
            )
        )
        end = match.end()
    return blocks


# Tests that are copied away from the source tree are still collected.
TEXT = README.read_text(encoding="utf8") if README.exists() else ""
BLOCKS = read_blocks(TEXT)
CONFIG_BLOCKS = [block for block in BLOCKS if block.language in ("ini", "cfg")]


def run_blocks(blocks):
    """Run the python blocks in order, in one namespace, in the current folder.

    A block's output has to equal the plain block right after it, if there is one.
    """
    namespace = {"__name__": "__readme__"}
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language not in ("python", "py"):
            continue
        printed = io.StringIO()
        # Padded, so that errors show the line in the README.
        code = compile("\n" * block.line + block.body, str(README), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if after is not None and after.follows and after.language in OUTPUT_LANGUAGES:
            assert printed.getvalue().rstrip() == after.body.rstrip(), f"output at {after}"
        check_comments(block, printed.getvalue())


def check_comments(block, printed):
    """Lines that end in `# -> x`, or stand alone as one, are printed by the block in this order."""
    expected = re.findall(r"#\s*->\s?(.*)$", block.body, re.M)
    lines = printed.splitlines()
    for text in expected:
        assert text.rstrip() in lines, f"{text!r} at {block}; printed {printed!r}"
        del lines[: lines.index(text.rstrip()) + 1]


# The checks themselves


def test_blocks_are_read_with_language_line_and_neighbours():
    text = "a\n```python\nx = 1\n```\n\n```\n1\n```\nwords\n```ini\n[a]\n```\n"
    found = [(block.language, block.body, block.line, block.follows) for block in read_blocks(text)]
    assert found == [
        ("python", "x = 1\n", 2, False),
        ("", "1\n", 6, True),
        ("ini", "[a]\n", 10, False),
    ]


def test_output_that_differs_is_found():
    good = "```python\nprint(1)\n```\n```text\n1\n```\n```python\nprint(2)  # -> 2\n```\n"
    run_blocks(read_blocks(good))
    for bad in (good.replace("\n1\n", "\n7\n"), good.replace("-> 2", "-> 7")):
        with pytest.raises(AssertionError, match="7"):
            run_blocks(read_blocks(bad))
    with pytest.raises(NameError):
        run_blocks(read_blocks("```python\nundefined\n```\n"))


# The README


@pytest.mark.slow
def test_python_blocks_run_and_print_what_the_readme_says(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # Code may name files of the source tree, and must not write into it.
    for entry in conftest.REPOSITORY.iterdir():
        if not entry.name.startswith(".") and entry.name not in ("training", "corpus", "renders"):
            os.symlink(entry, tmp_path / entry.name)
    monkeypatch.chdir(tmp_path)
    run_blocks(BLOCKS)


def test_there_is_code_to_run():
    assert [block for block in BLOCKS if block.language in ("python", "py")]
    assert CONFIG_BLOCKS


def with_parent_sections(excerpt):
    """Declare the sections around an excerpt of a config, e.g. [components] for [components.x]."""
    sections = re.findall(r"^\[([\w.]+)\]", excerpt, re.M)
    parents = {
        section.rsplit(".", n)[0] for section in sections for n in range(1, section.count(".") + 1)
    }
    return "\n".join(f"[{parent}]" for parent in sorted(parents - set(sections))) + "\n" + excerpt


@pytest.mark.parametrize("block", CONFIG_BLOCKS, ids=str)
def test_config_blocks_parse_and_their_names_resolve(block):
    Config().from_str(with_parent_sections(block.body), interpolate=False)
    for registry, name in REFERENCE.findall(block.body):
        assert spacy.registry.has(registry, name), name
    for factory in re.findall(r'^factory\s*=\s*"([^"]+)"', block.body, re.M):
        # Entry points become factories when the first pipeline is made.
        assert spacy.blank("en").has_factory(factory), factory


def links_of(text):
    prose = FENCE.sub("", text)
    targets = re.findall(r"\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)", prose)
    targets += re.findall(r"""(?:src|href)=["']([^"']+)["']""", prose)
    targets += re.findall(r"^\[[^\]]+\]:\s*(\S+)", prose, re.M)
    return targets


def test_links_are_found():
    text = (
        '[a](b.md) ![c](d.png "title") [e](<f.md#part>) <img src="g.svg">\n[h]: i.md\n'
        "```\n[j](k)\n```\n"
    )
    assert links_of(text) == ["b.md", "d.png", "f.md#part", "g.svg", "i.md"]


def anchors_of(text):
    headings = re.findall(r"^#+\s+(.*?)\s*$", FENCE.sub("", text), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def test_relative_links_and_pictures_exist():
    missing = []
    for target in links_of(TEXT):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = conftest.REPOSITORY / path if path else README
        if not file.exists() or (
            anchor
            and file.suffix == ".md"
            and anchor not in anchors_of(file.read_text(encoding="utf8"))
        ):
            missing.append(target)
    assert missing == []


def test_registered_names_in_the_text_exist():
    import spacy_transformers  # noqa: F401 (makes two of the registries)

    registries = ("architectures", "misc", "scorers", "span_getters", "annotation_setters")
    for name in set(re.findall(r"spacy-spans\.\w+\.v\d+", TEXT)):
        assert any(spacy.registry.has(registry, name) for registry in registries), name


def test_commands_in_the_text_exist():
    from spacy.cli._util import app
    from typer.main import get_command

    # Entry points add themselves when they are loaded.
    spacy.registry.cli.get_all()
    commands = get_command(app).commands
    for command in re.findall(r"python -m spacy ([a-z-]+)", TEXT):
        assert command in commands, command
    for subcommand in re.findall(r"spacy spans ([a-z-]+)", TEXT):
        assert subcommand in commands["spans"].commands, subcommand


def test_make_targets_in_the_text_exist(repository):
    makefile = (repository / "Makefile").read_text(encoding="utf8")
    for target in re.findall(r"(?:^|[`\s])make ([a-z-]+)(?=[`\s]|$)", TEXT, re.M):
        if target in ("sure", "it", "the", "a"):
            continue
        assert re.search(rf"^{target}:", makefile, re.M), target
