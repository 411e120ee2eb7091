"""From the proxy's feed to samples: closed groups by cursor, advantages and masks by `rolltap export`."""

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
"""Seconds that an answer of the feed waits for a trial."""
CLOSING = 5.0
"""Seconds within which the groups of a job that has ended are closed."""
MAX_STALENESS = 2
"""Versions; a trial with an older token that would be trained is left out."""


@dataclass
class Taken:
    """What a step takes from the feed: whole groups, and where the reader stands after them."""

    cursor: str | None
    trials: list[Trial] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """Complete only after their group had closed: what they would be compared with is trained already."""

    def groups(self) -> int:
        """Whole ones."""
        return sum(trial.get("group_remaining") == 0 for trial in self.trials)


def take(
    client: Client, cursor: str | None, groups: int, nothing_yet: Callable[[], bool], prepare: Prepare | None = None
) -> Taken:
    """The next so many closed groups after the cursor, their rows as captured or after the rules of an export.

    `nothing_yet` is called where none is there; fewer groups are taken once it says that no more will come.
    """
    taken = Taken(cursor)
    is_over = False
    while taken.groups() < groups:
        before = taken.cursor
        was_answered = _read(client, taken, groups, prepare)
        came = taken.cursor != before
        if is_over and was_answered and not came:
            break
        # Asked once more after that: what was closed meanwhile is there now.
        is_over = not came and nothing_yet()
    return taken


def _read(client: Client, taken: Taken, groups: int, prepare: Prepare | None) -> bool:
    """Takes what is in one answer; whether there was one, as there is not while the proxy is down."""
    try:
        asked = client.rollouts(after=taken.cursor, wait=WAIT, closed_groups=True, follow=False, prepare=prepare)
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
        # As long as an answer without trials takes.
        time.sleep(WAIT)
        return False
    return True


def is_read(client: Client, cursor: str | None) -> bool:
    """Whether no closed group follows the cursor; False where the proxy does not answer.

    Asked after a job's end, it waits a moment for the groups that the job's last rewards close.
    """
    try:
        following = client.rollouts(after=cursor, wait=CLOSING, closed_groups=True, follow=False)
        return all(trial.get("late") for trial in following)
    except (httpx.TransportError, RolltapError) as error:
        if not passes(error):
            raise
        return False


@dataclass(frozen=True)
class Sample:
    """A branch as it is trained. All lists have the length of `ids`."""

    trial_id: str
    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    versions: list[int]
    advantage: float


def earned(trial: Trial) -> float | None:
    """The reward; None if it does not measure the agent, or nothing was sampled."""
    return trial["reward"] if trial["reward_valid"] and trial["rows"] else None


def rows_of(trials: Sequence[Trial]) -> list[Row]:
    """The branches of all."""
    return [row for trial in trials for row in trial["rows"]]


def discounted(rows: Sequence[Row], discount: float) -> list[Row]:
    """What comes sooner is worth more: rewards shrink with each turn of their trial."""
    turns: dict[str, set[str]] = {}
    for row in rows:
        turns.setdefault(row["trial_id"], set()).update(call["call_id"] for call in row["calls"])
    return [
        row if row["reward"] is None else {**row, "reward": row["reward"] * discount ** len(turns[row["trial_id"]])}
        for row in rows
    ]


def export(program: str, rows: Sequence[Row], folder: Path, version: int) -> list[Sample]:
    """Has the branches masked and weighed within their groups; those of trials that are too old are not among them."""
    folder.mkdir(parents=True, exist_ok=True)
    given, made = folder / "rows.jsonl", folder / "weighed.jsonl"
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [
        *(program, "export", str(given), "--format", "jsonl", "--advantage", "mean", "--force", "-o", str(made)),
        # The feed hands out closed groups alone, which a file cannot say.
        *("--open-groups", "--max-staleness", str(MAX_STALENESS), "--policy-version", str(version)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        # None has a reward, say, or all are too old.
        if "nothing to export" in done.stderr:
            return []
        raise Stopped(f"the export was refused:\n{done.stderr}")
    return [_sample(json.loads(line)) for line in made.read_text().splitlines()]


def _sample(row: dict[str, Any]) -> Sample:
    labels = row["version_labels"]
    versions = [int(labels[str(one)]) if one >= 0 else -1 for one in row["token_version"]]
    return Sample(
        row["trial_id"], row["token_ids"], row["loss_mask"], row["logprobs"], versions, row["advantage"] or 0.0
    )
