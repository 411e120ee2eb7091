"""Controls: what a trainer must not learn from, or must notice. Each damages one thing between the feed and the step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from rollouts import Sample

from rolltap.row import Row, Trial

KINDS = {
    "none": "as it was captured",
    "permuted": "rewards change places within each group",
    "zero": "all advantages are 0",
    "shifted": "captured logprobs stand one token later",
    "mask": "masks stand one token later",
}


def of_trials(kind: str, trials: Sequence[Trial], seed: int) -> list[Trial]:
    """The damage to rewards, before they are weighed."""
    if kind != "permuted":
        return list(trials)
    chance = random.Random(seed)
    groups: dict[str | None, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial["group_id"], []).append(trial)
    return [
        _rewarded(trial, other)
        for group in groups.values()
        for trial, other in zip(group, chance.sample(group, len(group)))
    ]


def of_samples(kind: str, samples: Sequence[Sample]) -> list[Sample]:
    """The damage to what is trained."""
    if kind == "zero":
        return [replace(one, advantage=0.0) for one in samples]
    if kind == "shifted":
        return [replace(one, logprobs=[0.0, *one.logprobs[:-1]]) for one in samples]
    if kind == "mask":
        return [replace(one, mask=[0, *one.mask[:-1]]) for one in samples]
    return list(samples)


def _rewarded(trial: Trial, other: Trial) -> Trial:
    rows: list[Row] = [
        {
            **row,
            "reward": other["reward"],
            "rewards": other["rewards"],
            "reward_valid": other["reward_valid"],
            "failure_cause": other["failure_cause"],
        }
        for row in trial["rows"]
    ]
    return {**trial, "reward": other["reward"], "reward_valid": other["reward_valid"], "rows": rows}
