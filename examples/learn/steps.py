"""Reports the steps of another trainer's run: one line per step, in OUT/steps.jsonl and on the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

from job import SERVICE
from processes import Say, Stopped
from rollouts import Taken
from table import of_trials

from rolltap.row import Trial


class Steps:
    """Writes the steps of one run."""

    def __init__(self, folder: Path, say: Say) -> None:
        self._file, self._say = folder / "steps.jsonl", say
        # The captures of a killed run come from weights that no longer exist.
        if (folder / SERVICE).exists():
            raise Stopped(f"{folder} holds a run already; choose another --out")

    def write(self, step: int, taken: Taken, trainer: dict[str, Any]) -> None:
        """Writes the feed's figures of a step and the trainer's own figures.

        `trainer` has `trained_tokens` and `logprob_diff_max`, the largest distance of a captured logprob from the
        trainer's own.
        """
        row = {"step": step, **of_trials(taken), "versions": versions(taken.trials), **trainer}
        with self._file.open("a") as out:
            # The mean of an empty list is NaN, which JSON does not have.
            print(json.dumps({name: None if value != value else value for name, value in row.items()}), file=out)
        self._say(
            f"step {step}: reward {row['reward']:.2f}, {row['turns']:.1f} turns, {row['trained_tokens']:.0f} tokens "
            f"of version {', '.join(map(str, row['versions']))}, logprobs apart {row['logprob_diff_max']:.1e} at most"
        )


def versions(trials: Sequence[Trial]) -> list[int]:
    """Returns the versions of the tokens to train. The label of each is the trainer's step that named it."""
    return sorted(
        {
            int(row["version_labels"].get(str(version), version))
            for trial in trials
            for row in trial["rows"]
            for version in set(compress(row["token_version"], row["loss_mask"]))
        }
    )
