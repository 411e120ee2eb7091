"""What a run knows of itself: one file, written whole after each step.

Weights, optimizer, cursor and the trials that were trained change in one rename. A trainer that is killed at any moment is
before a step or after it: what came after the cursor is asked for again and trained then, and nothing else.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch


@dataclass
class State:
    """After so many steps."""

    step: int
    optimizer: dict[str, Any]
    cursor: str | None = None
    """After the last trial that was taken from the feed."""
    trained: list[str] = field(default_factory=list)
    """Trials of which tokens were trained, in their order."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Trials that were taken and not trained, and why."""
    table: list[dict[str, float]] = field(default_factory=list)
    """A row per step."""
    recent: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)
    """The weights by version: the present ones, and those that sampled what may still come."""

    def model(self) -> dict[str, torch.Tensor]:
        """The present weights."""
        return self.recent[self.step]

    def write(self, file: Path) -> None:
        """In the place of what was there, or not at all."""
        aside = file.with_suffix(".new")
        with aside.open("wb") as out:
            torch.save(vars(self), out)
            out.flush()
            os.fsync(out.fileno())
        aside.replace(file)


def read(file: Path) -> State | None:
    """What was written last, if anything was."""
    return State(**torch.load(file, weights_only=True)) if file.exists() else None
