"""Trials after the rules of an export: what a trainer asks the proxy for, and what it gets.

The proxy decides what is trained, with the functions of `rolltap export`. Nothing here decides again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from rolltap.row import Prepared, PreparedRow


@dataclass(frozen=True)
class Prepare:
    """The choices of a preparation, under the names of the admin plane; see docs/reference/admin-api.md."""

    extent: Literal["train", "mask"] = "train"
    """`mask` returns every chosen branch whole; `train` only branches that train something, up to their last trained token."""
    on_fork: Literal["all", "longest", "error"] = "all"
    failed: Literal["mask", "zero"] = "mask"
    train_constrained: bool = False

    def params(self) -> dict[str, str]:
        """The query that asks for it."""
        query = {"prepare": self.extent, "on_fork": self.on_fork, "failed": self.failed}
        return {**query, "train_constrained": "true"} if self.train_constrained else {**query}


def usable(prepared: Prepared) -> Prepared:
    """The same, unless the proxy refused the trial: then it raises ValueError with the proxy's reason."""
    if prepared["refused"] is not None:
        raise ValueError(prepared["refused"])
    return prepared


def _of(trial: Mapping[str, Any]) -> Prepared:
    if "prepared" not in trial:
        raise ValueError(
            f"trial {trial['trial_id']} has its rows as they were captured: read it with prepare=Prepare(), so that the "
            "proxy applies the rules about masks"
        )
    return usable(cast("Prepared", trial["prepared"]))


def prepared_rows(trial: Mapping[str, Any]) -> list[PreparedRow]:
    """The branches to train. Empty if the trial sampled nothing. Raises ValueError if the trial is refused."""
    return _of(trial)["rows"]


def earned(trial: Mapping[str, Any]) -> float | None:
    """The number to train on. None if the reward does not measure the agent, or nothing was sampled."""
    return _of(trial)["reward"]
