"""Stores the state of a run in one file, which is written as a whole after each step.

One rename replaces weights, optimizer, cursor and the list of trained trials. A trainer that is killed at any moment is
therefore before a step or after it. A resumed run reads the feed from the stored cursor and trains exactly the trials
that follow.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch


@dataclass
class State:
    """Holds the state after `step` steps."""

    step: int
    optimizer: dict[str, Any]
    cursor: str | None = None
    """The cursor after the last trial that was taken from the feed."""
    trained: list[str] = field(default_factory=list)
    """Trials with trained tokens, in the order of their training."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Trials that were taken and not trained, with the reasons."""
    table: list[dict[str, float]] = field(default_factory=list)
    """One row per step."""
    recent: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)
    """The weights by version: the current ones, and older ones that sampled trials which may still arrive."""

    def model(self) -> dict[str, torch.Tensor]:
        """Returns the current weights."""
        return self.recent[self.step]

    def write(self, file: Path) -> None:
        """Replaces the file atomically and syncs it: after a crash the old or the new state is complete."""
        aside = file.with_suffix(".new")
        with aside.open("wb") as out:
            torch.save(vars(self), out)
            out.flush()
            os.fsync(out.fileno())
        aside.replace(file)


def read(file: Path) -> State | None:
    """Returns the last written state, or `None` if there is none."""
    return State(**torch.load(file, weights_only=True)) if file.exists() else None
