"""Implements the controls. Each one damages one thing between the feed and the step, which a trainer must not learn
from or must notice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from rollouts import Sample

from rolltap.row import Row

KINDS = {
    "none": "as it was captured",
    "permuted": "what trials are worth changes places within each group",
    "zero": "all advantages are 0",
    "shifted": "captured logprobs stand one token later",
    "mask": "masks stand one token later",
    "retokenised": "rows made from the text, tokenised again",
}


def of_rows(kind: str, rows: Sequence[Row], seed: int) -> list[Row]:
    """Damages the rewards of trials, before the export computes advantages within the groups."""
    if kind != "permuted":
        return list(rows)
    groups: dict[str | None, dict[str, Row]] = {}
    for row in rows:
        groups.setdefault(row["group_id"], {})[row["trial_id"]] = row
    chance = random.Random(seed)
    given = {
        trial: other for group in groups.values() for trial, other in zip(group, chance.sample([*group.values()], len(group)))
    }
    return [_rewarded(row, given[row["trial_id"]]) for row in rows]


def of_samples(kind: str, samples: Sequence[Sample]) -> list[Sample]:
    """Damages the samples that are trained on. The trainer itself makes those of `retokenised` (retokenised.py)."""
    if kind == "zero":
        return [replace(one, advantage=0.0) for one in samples]
    if kind == "shifted":
        return [replace(one, logprobs=[0.0, *one.logprobs[:-1]]) for one in samples]
    if kind == "mask":
        return [replace(one, mask=[0, *one.mask[:-1]]) for one in samples]
    return list(samples)


def _rewarded(row: Row, other: Row) -> Row:
    return {
        **row,
        "reward": other["reward"],
        "rewards": other["rewards"],
        "reward_valid": other["reward_valid"],
        "failure_cause": other["failure_cause"],
    }
