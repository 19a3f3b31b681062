"""Which module may import which, what must be installed, and what the front doors cost."""

import ast
import importlib
import json
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

import spacy_spans

pytestmark = pytest.mark.installed

PACKAGE = "spacy_spans"
FOLDER = Path(spacy_spans.__file__).parent

# kernels <- modules <- architectures <- pipeline <- factories, cli.
LAYERS = ["kernels", "modules", "architectures", "pipeline", "factories", "cli"]
RANKS = {"kernels": 0, "modules": 1, "architectures": 2, "pipeline": 3, "factories": 4, "cli": 4}
# Asks components what they can learn.
RANKS["debugging"] = 3
# Import nothing of the package but each other, and may be imported from everywhere.
FOUNDATIONS = {"errors", "types"}
# Everything else (groups, alignment, candidates, converters, ...) may use kernels and modules.
RANK_OF_THE_REST = 2
HEAVY = {"torch", "transformers", "spacy_transformers", "safetensors", "tokenizers"}


def module_name(path):
    parts = path.relative_to(FOLDER.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(FOLDER.rglob("*.py"))}


def is_type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def walk_imports(node, *, inside_functions):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            if inside_functions:
                yield from walk_imports(child, inside_functions=True)
        elif is_type_checking(child) and not inside_functions:
            for other in child.orelse:
                yield from walk_imports(other, inside_functions=False)
        else:
            yield from walk_imports(child, inside_functions=inside_functions)


def imported_by(source, name, *, is_package=False, inside_functions=True):
    """Full names of everything that a module's source imports.

    `from a import b` gives a.b if that is a module of this package, otherwise a.
    """
    found = set()
    for node in walk_imports(ast.parse(source), inside_functions=inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            continue
        base = node.module or ""
        if node.level:
            parents = name.split(".")
            kept = len(parents) - node.level + is_package
            base = ".".join([*parents[:kept], *([base] if base else [])])
        for alias in node.names:
            full = f"{base}.{alias.name}"
            found.add(full if full in MODULES else base)
    return found


def imports_of(name, **settings):
    path = MODULES[name]
    is_package = path.name == "__init__.py"
    return imported_by(path.read_text(encoding="utf8"), name, is_package=is_package, **settings)


def part_of(name):
    """The folder or file of the package that a module belongs to; "" for its __init__."""
    return name.split(".")[1] if "." in name else ""


def rank_of(part):
    if part in FOUNDATIONS or not part:
        return -1
    return RANKS.get(part, RANK_OF_THE_REST)


def is_ours(name):
    return name.split(".")[0] == PACKAGE


def test_the_reader_of_imports_sees_all_kinds():
    source = """
import os.path, json as j
from typing import TYPE_CHECKING
from spacy_spans import kernels, __version__
from spacy_spans.kernels import targets
from . import losses
from ..modules import span_classifier
try:
    import a
except ImportError:
    import b
if TYPE_CHECKING:
    import typing_only
def f():
    from c.d import e
class C:
    import f
    def g(self):
        import h
"""
    everywhere = imported_by(source, "spacy_spans.kernels.decoding")
    assert everywhere == {
        *["os.path", "json", "typing", "a", "b", "typing_only", "c.d", "f", "h"],
        *["spacy_spans", "spacy_spans.kernels", "spacy_spans.kernels.targets"],
        *["spacy_spans.kernels.losses", "spacy_spans.modules.span_classifier"],
    }
    at_import = imported_by(source, "spacy_spans.kernels.decoding", inside_functions=False)
    assert everywhere - at_import == {"typing_only", "c.d", "h"}
    relative = imported_by("from .targets import x", "spacy_spans.kernels", is_package=True)
    assert relative == {"spacy_spans.kernels.targets"}


def test_every_layer_is_there():
    assert {part_of(name) for name in MODULES} >= {*LAYERS, *FOUNDATIONS}


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_one_way(name):
    part = part_of(name)
    # The front door shows what users call, and may import what stands beside the layers.
    rank = rank_of(part) if part else RANK_OF_THE_REST
    wrong = [
        other
        for other in imports_of(name)
        if is_ours(other) and part_of(other) != part and rank_of(part_of(other)) > rank
    ]
    assert wrong == []


@pytest.mark.parametrize("name", [name for name in MODULES if part_of(name) == "kernels"])
def test_kernels_import_only_numpy_kernels_and_types(name):
    allowed = {"numpy", *sys.stdlib_module_names}
    wrong = []
    for other in imports_of(name):
        if is_ours(other):
            if part_of(other) not in {"kernels", *FOUNDATIONS}:
                wrong.append(other)
        elif other.split(".")[0] not in allowed:
            wrong.append(other)
    assert wrong == []


@pytest.mark.parametrize("name", [name for name in MODULES if part_of(name) == "modules"])
def test_modules_import_only_torch_and_modules(name):
    # Not types either: it imports spaCy.
    allowed = {"torch", *sys.stdlib_module_names}
    wrong = []
    for other in imports_of(name):
        if is_ours(other):
            if part_of(other) not in {"modules", "errors"}:
                wrong.append(other)
        elif other.split(".")[0] not in allowed:
            wrong.append(other)
    assert wrong == []


@pytest.mark.parametrize("name", [name for name in MODULES if part_of(name) in FOUNDATIONS])
def test_errors_and_types_import_no_other_part(name):
    ours = {other for other in imports_of(name) if is_ours(other)}
    assert {part_of(other) for other in ours} <= FOUNDATIONS


# An extra: what needs it says so where it is missing.
OPTIONAL = {"matplotlib"}


def plain(distribution):
    return re.sub(r"[-_.]+", "-", distribution).lower()


@cache
def required():
    """Distributions that are installed along with this package, extras left out, and its own."""
    found, waiting = set(), {"spacy-spans"}
    while waiting:
        found.add(name := waiting.pop())
        # Those for other systems and versions of Python are not there.
        with suppress(PackageNotFoundError):
            lines = [line for line in requires(name) or () if "extra ==" not in line]
            waiting |= {plain(re.match(r"[\w.-]+", line)[0]) for line in lines} - found
    return found


@cache
def distributions():
    """What each top-level module is installed by."""
    return {name: set(map(plain, own)) for name, own in packages_distributions().items()}


@pytest.mark.parametrize("name", MODULES)
def test_modules_import_only_what_is_installed_along(name):
    importlib.import_module(name)
    missing = []
    for other in imports_of(name):
        top = other.split(".")[0]
        if is_ours(other):
            found = other in MODULES
        else:
            found = top in {*sys.stdlib_module_names, *OPTIONAL} or (
                distributions().get(top, set()) & required()
            )
        if not found:
            missing.append(other)
    assert missing == []


def with_parents(name):
    parts = name.split(".")
    return {".".join(parts[: i + 1]) for i in range(len(parts))}


def at_import(name):
    """Modules of this package, and others, that importing a module imports along."""
    ours, others, waiting = set(), set(), with_parents(name)
    while waiting:
        current = waiting.pop()
        ours.add(current)
        for other in imports_of(current, inside_functions=False):
            if is_ours(other):
                waiting |= {module for module in with_parents(other) if module in MODULES} - ours
            else:
                others.add(other.split(".")[0])
    return ours, others


@pytest.mark.parametrize("name", ["spacy_spans", "spacy_spans.factories", "spacy_spans.cli"])
def test_front_doors_import_nothing_heavy_at_the_top(name):
    ours, others = at_import(name)
    assert others & HEAVY == set()
    assert {part_of(module) for module in ours} & {"pipeline", "architectures", "modules"} == set()


SCRIPT = """
import json, sys
blocked = json.loads(sys.argv[1])
for name in blocked:
    sys.modules[name] = None
import spacy
{baseline}
before = {{name.split(".")[0] for name in sys.modules}}
import {module}
print(json.dumps(sorted({{name.split(".")[0] for name in sys.modules}} - before)))
"""


def newly_imported(module, baseline="", blocked=()):
    """Top-level modules that importing a module adds, in a fresh process."""
    script = SCRIPT.format(module=module, baseline=baseline)
    result = subprocess.run(
        [sys.executable, "-c", script, json.dumps(blocked)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("module", "baseline"),
    [("spacy_spans.factories", ""), ("spacy_spans.cli", "import spacy.cli._util")],
)
def test_importing_a_front_door_adds_nothing_but_this_package(module, baseline):
    # spaCy itself imports torch where there is one (through thinc), so what counts is what is new.
    added = newly_imported(module, baseline)
    assert PACKAGE in added
    assert added - set(sys.stdlib_module_names) == {PACKAGE}


@pytest.mark.parametrize(
    ("module", "baseline"),
    [("spacy_spans.factories", ""), ("spacy_spans.cli", "import spacy.cli._util")],
)
def test_a_front_door_opens_where_torch_cannot_be_imported(module, baseline):
    assert PACKAGE in newly_imported(module, baseline, blocked=sorted(HEAVY))
