"""Prepared trials: trials after the rules of an export, as a trainer requests them from the proxy.

The proxy decides which tokens are trained, with the functions of `rolltap export`. This package only reads the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from rolltap.row import Prepared, PreparedRow


@dataclass(frozen=True)
class Prepare:
    """The options of a preparation, by the names of the admin plane (docs/reference/admin-api.md)."""

    extent: Literal["train", "mask"] = "train"
    """`mask` returns each selected branch whole. `train` returns only branches with trained tokens, and cuts each
    after its last trained token.
    """
    on_fork: Literal["all", "longest", "error"] = "all"
    failed: Literal["mask", "zero"] = "mask"
    train_constrained: bool = False
    reward: str | None = None
    """The rule that makes the number to train on: the name of a reward, `mean`, `sum`, or `NAME=WEIGHT,NAME=WEIGHT`.
    None for the reward of the trial.
    """

    def params(self) -> dict[str, str]:
        """Returns the query that requests this preparation."""
        query: dict[str, str] = {"prepare": self.extent, "on_fork": self.on_fork, "failed": self.failed}
        if self.train_constrained:
            query["train_constrained"] = "true"
        if self.reward is not None:
            query["reward"] = self.reward
        return query


def usable(prepared: Prepared) -> Prepared:
    """Returns `prepared` unchanged. Raises ValueError with the proxy's reason if the proxy refused the trial."""
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
    """Returns the branches to train. Empty if the trial sampled nothing.

    Raises ValueError if the proxy refused the trial, or if the trial was read without `prepare`.
    """
    return _of(trial)["rows"]


def earned(trial: Mapping[str, Any]) -> float | None:
    """Returns the number to train on, or None if the reward does not measure the agent or nothing was sampled.

    Raises ValueError as `prepared_rows` does.
    """
    return _of(trial)["reward"]
