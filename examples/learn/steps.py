"""What a trainer's run leaves: a line per step, in OUT/steps.jsonl and on the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

from processes import Say, Stopped
from rollouts import Taken
from table import of_trials

from rolltap.row import Trial


class Steps:
    """The steps of one run."""

    def __init__(self, folder: Path, say: Say) -> None:
        self._file, self._say = folder / "steps.jsonl", say
        # The captures of a run that was killed are of weights that are gone.
        if (folder / "captures").exists():
            raise Stopped(f"{folder} holds a run already; choose another --out")

    def write(self, step: int, taken: Taken, trainer: dict[str, Any]) -> None:
        """What the feed says of the trials of a step, and what the trainer does: its `trained_tokens`, and
        `logprob_diff_max`, the largest distance of a captured logprob from the trainer's own."""
        row = {"step": step, **of_trials(taken), "versions": versions(taken.trials), **trainer}
        with self._file.open("a") as out:
            # A mean of nothing is no number.
            print(json.dumps({name: None if value != value else value for name, value in row.items()}), file=out)
        self._say(
            f"step {step}: reward {row['reward']:.2f}, {row['turns']:.1f} turns, {row['trained_tokens']:.0f} tokens "
            f"of version {', '.join(map(str, row['versions']))}, logprobs apart {row['logprob_diff_max']:.1e} at most"
        )


def versions(trials: Sequence[Trial]) -> list[int]:
    """That are stamped on the tokens to train. The label of each is the step of the trainer that named it."""
    return sorted(
        {
            int(row["version_labels"].get(str(version), version))
            for trial in trials
            for row in trial["rows"]
            for version in set(compress(row["token_version"], row["loss_mask"]))
        }
    )
