"""Finds the code of the trainers that the tests run, and compares it with the contract of each trainer.

A contract (`contracts/NAME.toml`) names a commit of a trainer, and the fields and lines on which our exports depend.
The tests of trainers that are in no package index run on the stand-ins in `schemas`, which have those fields only.
scripts/check-trainer runs the same tests on a checkout of the trainer: it sets ROLLTAP_TEST_CHECKOUT to `NAME=PATH`.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

TESTS = Path(__file__).parent
STAND_INS = TESTS / "schemas"
CONTRACTS = sorted(path.stem for path in (TESTS / "contracts").glob("*.toml"))


@dataclass(frozen=True)
class Checkout:
    """Is the source tree of a trainer: of `scripts/check-trainer NAME PATH`."""

    name: str
    root: Path


@dataclass(frozen=True)
class Field:
    """Is a field of a class in Python source. `annotation` is the text of its type."""

    line: int
    name: str
    annotation: str


@dataclass(frozen=True)
class Contracted:
    """Is a class of a contract. A complete one has no other fields, and its fields have this order."""

    file: str
    name: str
    is_complete: bool
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Line:
    """Is a line of a trainer's source on which an export depends. `line` counts from 1.

    `digest` is the start of the SHA-256 of the line without its indentation, and `what` says what the line means for us.
    """

    file: str
    line: int
    digest: str
    what: str


@dataclass(frozen=True)
class Contract:
    commit: str
    import_from: tuple[str, ...]
    classes: tuple[Contracted, ...]
    lines: tuple[Line, ...]


@cache
def contract(name: str) -> Contract:
    """Reads contracts/NAME.toml."""
    data = tomllib.loads((TESTS / "contracts" / f"{name}.toml").read_text())
    classes = (
        Contracted(one["file"], one["name"], one["is_complete"], tuple(Field(*field) for field in one["fields"]))
        for one in data.get("class", [])
    )
    lines = (Line(**one) for one in data.get("line", []))
    return Contract(data["commit"], tuple(data["import_from"]), tuple(classes), tuple(lines))


@cache
def checkout() -> Checkout | None:
    """Returns the checkout that ROLLTAP_TEST_CHECKOUT names, or None for the stand-ins."""
    given = os.environ.get("ROLLTAP_TEST_CHECKOUT")
    if given is None:
        return None
    name, _, root = given.partition("=")
    if name not in CONTRACTS or not Path(root).is_dir():
        raise ValueError(f"ROLLTAP_TEST_CHECKOUT is {given!r}; expected NAME=PATH, with a folder and one of {CONTRACTS}")
    return Checkout(name, Path(root))


def find_trainers() -> None:
    """Lets `import` find the checkout if there is one, else the stand-ins."""
    given = checkout()
    folders = [STAND_INS]
    if given is not None:
        folders = [given.root / folder for folder in contract(given.name).import_from]
    sys.path[:0] = [str(folder) for folder in folders]


def without_init(package: str) -> Path:
    """Makes the modules of an installed package importable without running its `__init__`, and returns its folder.

    AReaL's `__init__` imports its servers and launchers, which need GPU libraries. Its modules need them less.
    """
    if package not in sys.modules:
        found = importlib.util.find_spec(package)
        assert found is not None and found.submodule_search_locations, f"{package} is not installed: run scripts/testbed"
        module = ModuleType(package)
        module.__spec__, module.__path__ = found, list(found.submodule_search_locations)
        sys.modules[package] = module
    return Path(sys.modules[package].__path__[0])


def definition(file: Path, name: str, known: dict[str, Any]) -> Any:
    """Runs the definition of a function, method (`Class.name`) or class of a file alone, and returns what it defines.

    This is for files that cannot be imported without a GPU. `known` has the names that the definition uses. Annotations
    and decorators are left out, because they may use other names.
    """
    node: Any = ast.parse(file.read_text())
    for part in name.split("."):
        found = [one for one in node.body if getattr(one, "name", None) == part]
        assert found, f"{file} has no {name}"
        node = found[0]
    for inner in ast.walk(node):
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner.returns, inner.decorator_list = None, [one for one in inner.decorator_list if _is_static(one)]
            for argument in [*inner.args.args, *inner.args.kwonlyargs]:
                argument.annotation = None
    names = dict(known)
    exec(compile(ast.Module([node], []), str(file), "exec"), names)
    return names[node.name]


def _is_static(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id == "staticmethod"


def fields_of(file: Path, name: str) -> tuple[Field, ...]:
    """Returns the annotated fields of a class in their order. The file is only parsed."""
    classes = [one for one in ast.walk(ast.parse(file.read_text())) if isinstance(one, ast.ClassDef)]
    found = [one for one in classes if one.name == name]
    assert found, f"{file} has no class {name}"
    return tuple(
        Field(one.lineno, one.target.id, ast.unparse(one.annotation))
        for one in found[0].body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    )


def named(fields: tuple[Field, ...]) -> dict[str, str]:
    """Returns the types by name."""
    return {field.name: field.annotation for field in fields}
