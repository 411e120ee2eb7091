"""Turns the feed into samples: reads closed groups by cursor, and gets advantages and masks from `rolltap
export`."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from processes import Stopped

from rolltap import Client, Prepare
from rolltap.errors import RolltapError, passes
from rolltap.row import Row, Trial

WAIT = 0.3
"""Seconds for which a request to the feed waits for a trial."""
MAX_STALENESS = 2
"""In versions. A trial with an older trainable token is left out."""


@dataclass
class Taken:
    """Holds what a step takes from the feed: whole groups, and the cursor after them."""

    cursor: str | None
    trials: list[Trial] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """Trials that became complete after their group had closed. The trials to compare them with are already trained."""

    def groups(self) -> int:
        """Returns the number of whole groups."""
        return sum(trial.get("group_remaining") == 0 for trial in self.trials)


def take(
    client: Client,
    cursor: str | None,
    groups: int,
    nothing_yet: Callable[[], bool],
    prepare: Prepare | None = None,
    messages: bool = False,
) -> Taken:
    """Takes the next `groups` closed groups after the cursor. The rows are as captured, or as `prepare` makes them.
    `messages` adds the words of each call to captured rows.

    Calls `nothing_yet` when the feed has no further trial. Takes fewer groups once it returns that no more will come.
    """
    taken = Taken(cursor)
    is_over = False
    while taken.groups() < groups:
        before = taken.cursor
        was_answered = _read(client, taken, groups, prepare, messages)
        came = taken.cursor != before
        if is_over and was_answered and not came:
            break
        # The feed is read once more after that, because a group may have closed in the meantime.
        is_over = not came and nothing_yet()
    return taken


def _read(client: Client, taken: Taken, groups: int, prepare: Prepare | None, messages: bool) -> bool:
    """Takes the trials of one answer. Returns `False` if there was no answer, for example while the service is down."""
    try:
        asked = client.rollouts(
            after=taken.cursor, wait=WAIT, closed_groups=True, follow=False, prepare=prepare, messages=messages
        )
        for trial in asked:
            taken.cursor = trial["cursor"]
            if trial.get("late"):
                taken.late.append(trial["trial_id"])
            else:
                taken.trials.append(trial)
            if taken.groups() == groups:
                break
    except (httpx.TransportError, RolltapError) as error:
        if not passes(error):
            raise
        # An answer without trials takes as long.
        time.sleep(WAIT)
        return False
    return True


def is_read(client: Client, cursor: str | None) -> bool:
    """Returns whether no closed group follows the cursor. Returns `False` if the service does not answer."""
    try:
        following = client.rollouts(after=cursor, wait=WAIT, closed_groups=True, follow=False)
        return all(trial.get("late") for trial in following)
    except (httpx.TransportError, RolltapError) as error:
        if not passes(error):
            raise
        return False


@dataclass(frozen=True)
class Sample:
    """Holds a branch to train on. All lists have the length of `ids`."""

    trial_id: str
    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    versions: list[int]
    advantage: float
    branch: int = 0
    """The index of the branch in its trial."""


def earned(trial: Trial) -> float | None:
    """Returns the reward, or `None` if it does not measure the agent or no token was sampled."""
    return trial["reward"] if trial["reward_valid"] and trial["rows"] else None


def rows_of(trials: Sequence[Trial]) -> list[Row]:
    """Returns the branches of all trials."""
    return [row for trial in trials for row in trial["rows"]]


def discounted(rows: Sequence[Row], discount: float) -> list[Row]:
    """Multiplies each reward by `discount` for each turn of its trial, so that shorter trials are worth more."""
    turns: dict[str, set[str]] = {}
    for row in rows:
        turns.setdefault(row["trial_id"], set()).update(call["call_id"] for call in row["calls"])
    return [
        row if row["reward"] is None else {**row, "reward": row["reward"] * discount ** len(turns[row["trial_id"]])}
        for row in rows
    ]


def export(program: str, rows: Sequence[Row], folder: Path, version: int) -> list[Sample]:
    """Runs `rolltap export` to mask the branches and to compute advantages within their groups. The result lacks
    trials that are too old."""
    folder.mkdir(parents=True, exist_ok=True)
    given, made = folder / "rows.jsonl", folder / "weighed.jsonl"
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [
        *(program, "export", str(given), "--format", "jsonl", "--advantage", "mean", "--force", "-o", str(made)),
        # The feed returns closed groups only, which a file cannot state.
        *("--open-groups", "--max-staleness", str(MAX_STALENESS)),
        # The ordinal of a version is one more than its label: version 0 of the service has no label.
        *("--policy-version", str(version + 1)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        # For example, no trial has a reward, or all trials are too old.
        if "nothing to export" in done.stderr:
            return []
        raise Stopped(f"the export was refused:\n{done.stderr}")
    return [_sample(json.loads(line)) for line in made.read_text().splitlines()]


def _sample(row: dict[str, Any]) -> Sample:
    labels = row["version_labels"]
    versions = [int(labels[str(one)]) if one >= 0 else -1 for one in row["token_version"]]
    return Sample(
        row["trial_id"],
        row["token_ids"],
        row["loss_mask"],
        row["logprobs"],
        versions,
        row["advantage"] or 0.0,
        row["branch_index"],
    )
