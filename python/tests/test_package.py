"""Tests the description of the package, whose mistakes would show only on an index page or in an installed wheel."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PYTHON = Path(__file__).parents[1]
PROJECT = tomllib.loads((PYTHON / "pyproject.toml").read_text())


def test_the_description_has_no_link_into_the_repository() -> None:
    text = (PYTHON / PROJECT["project"]["readme"]).read_text()
    assert re.findall(r"\]\((?!https?://)[^)]*\)", text) == []
    named = re.findall(r"`((?:docs)/[^`]*)`", text)
    assert named, "the description names pages of the repository"
    assert [path for path in named if not (PYTHON.parent / path).exists()] == []


def test_the_wheel_has_every_package_with_its_types_and_the_licence() -> None:
    packages = {path.parent.name for path in PYTHON.glob("*/__init__.py")} - {"tests"}
    assert set(PROJECT["tool"]["maturin"]["python-packages"]) == packages
    assert {path.parent.name for path in PYTHON.glob("*/py.typed")} == packages
    assert [path.name for path in PYTHON.glob("*.py")] == [], "a module outside the packages is in no wheel"
    for name in PROJECT["project"]["license-files"]:
        assert (PYTHON / name).read_text() == (PYTHON.parent / name).read_text()


def test_the_version_is_that_of_the_workspace_alone() -> None:
    assert "version" not in PROJECT["project"] and PROJECT["project"]["dynamic"] == ["version"]
    manifest = PYTHON / PROJECT["tool"]["maturin"]["manifest-path"]
    cargo = tomllib.loads(manifest.read_text())
    assert (
        cargo["package"]["version"] == {"workspace": True}
        and cargo["package"]["name"] == PROJECT["project"]["name"]
    )
