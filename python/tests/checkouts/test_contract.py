"""Compares the checkout that scripts/check-trainer names with the trainer's contract. The source is only parsed."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

import pytest
from trainer_code import Contracted, Line, checkout, contract, fields_of, named

ROOT = checkout().root
AGREED = contract(checkout().name)


def test_the_tests_run_on_the_checkout() -> None:
    file = (AGREED.classes or AGREED.lines)[0].file
    folder = next(folder for folder in AGREED.import_from if Path(file).is_relative_to(folder))
    package = Path(file).relative_to(folder).parts[0]
    found = importlib.util.find_spec(package)
    assert found is not None and all(Path(at).is_relative_to(ROOT) for at in found.submodule_search_locations or [])


def check_class(one: Contracted) -> None:
    theirs, ours = named(fields_of(ROOT / one.file, one.name)), named(one.fields)
    if one.is_complete:
        # The order counts, because the fields are written by their position.
        assert list(theirs.items()) == list(ours.items()), f"{one.file}: {one.name} has other fields"
    different = {name: (type, theirs.get(name)) for name, type in ours.items() if theirs.get(name) != type}
    assert not different, f"{one.file}: {one.name}, (contract, checkout) of each field"


def check_line(line: Line) -> None:
    lines = (ROOT / line.file).read_text().splitlines()
    digests = [hashlib.sha256(text.strip().encode()).hexdigest()[: len(line.digest)] for text in lines]
    around = "\n".join(lines[max(0, line.line - 4) : line.line + 3])
    assert line.digest in digests, f"{line.file}:{line.line} meant that {line.what}. It is now in other words:\n{around}"


@pytest.mark.parametrize(
    "point",
    [*AGREED.classes, *AGREED.lines],
    ids=[*(one.name for one in AGREED.classes), *(f"{one.file}:{one.line}" for one in AGREED.lines)],
)
def test_the_checkout_keeps_the_contract(point: Contracted | Line) -> None:
    if isinstance(point, Line):
        check_line(point)
    else:
        check_class(point)
