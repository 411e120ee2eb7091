"""Compares each stand-in of a trainer's code with the trainer's contract: it may have no other field and no other type.

checkouts/test_contract.py compares a checkout of the trainer with the contract.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from trainer_code import CONTRACTS, STAND_INS, Contracted, contract, fields_of, named


def stand_in(file: str) -> Path:
    """Returns the file of the stand-in of a trainer's file, whose folders begin with that of the package."""
    parts = Path(file).parts
    return STAND_INS.joinpath(*parts[parts.index("src") + 1 :] if "src" in parts else parts)


def of_stand_ins(name: str) -> list[Contracted]:
    """Returns the contracted classes that a stand-in has."""
    with_file = [one for one in contract(name).classes if stand_in(one.file).is_file()]
    return [one for one in with_file if f"class {one.name}" in stand_in(one.file).read_text()]


STOOD_IN = [(name, one) for name in CONTRACTS for one in of_stand_ins(name)]


@pytest.mark.parametrize(("name", "one"), STOOD_IN, ids=[f"{name}-{one.name}" for name, one in STOOD_IN])
def test_a_stand_in_has_the_fields_of_the_contract(name: str, one: Contracted) -> None:
    ours = named(fields_of(stand_in(one.file), one.name))
    agreed = named(one.fields)
    # The order of a complete class counts, because its fields are written by their position.
    assert list(ours.items()) == list(agreed.items()) if one.is_complete else ours.items() <= agreed.items()
