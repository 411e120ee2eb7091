"""Runs ART's own tokenization of groups, on which it trains."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def imported_adapter() -> ModuleType:
    """Returns rolltap.trainers.art, with a stub of polars, which ART imports for reports that no test makes.

    `datasets` cannot be imported while the stub exists, so only running tests call this, after all imports.
    """
    sys.modules.setdefault("polars", ModuleType("polars"))
    return importlib.import_module("rolltap.trainers.art")


class NoTokenizer:
    """Fails if ART renders or encodes a text, because exact ids need neither."""

    name_or_path = "none"

    def __call__(self, *args: object, **kwargs: object) -> None:
        raise AssertionError("ART encoded a text")

    apply_chat_template = __call__

    def decode(self, token: int) -> str:
        return str(token)


def tokenized(groups: list[Any]) -> list[Any]:
    """Returns ART's results for these groups of trajectories: ids, masks, logprobs and advantages."""
    from art.preprocessing.tokenize import tokenize_trajectory_groups

    made = tokenize_trajectory_groups(NoTokenizer(), groups, False, True, shuffle_group_trajectories=False)
    return list(made)
