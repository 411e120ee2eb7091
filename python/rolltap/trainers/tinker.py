"""Data and trajectories for Tinker (packages `tinker` 0.38.0 and `tinker-cookbook` 0.6.1).

A line of `rolltap export --format tinker` is a `Datum`, ready for `forward_backward`. `trajectory_group` converts
trials of the feed, read with `prepare=Prepare()`, for the cookbook's own loop. That loop centres the rewards, merges
the turns and makes the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

from rolltap.prepare import earned, prepared_rows
from rolltap.row import PreparedRow, Trial


def datum(line: Mapping[str, Any]) -> tinker.Datum:
    """Returns the datum of an exported line."""
    tensors = {name: tinker.TensorData(**tensor) for name, tensor in line["loss_fn_inputs"].items()}
    return tinker.Datum(tinker.ModelInput.model_validate(line["model_input"]), tensors)


def trajectory(trial: Trial) -> Trajectory:
    """Returns the trial as a trajectory of the cookbook. Its rewards are 0: the group has the reward.

    A transition is a run of trained tokens, with all earlier tokens of the branch as its observation. The cookbook
    joins transitions that continue each other, and begins a new datum at any other. Tokens that a branch shares with
    an earlier branch are observation in the later one, so that they are trained once.
    """
    made = [transition for row in prepared_rows(trial) for transition in _transitions(row)]
    if made:
        made[-1].episode_done = True
    return Trajectory(transitions=made, final_ob=tinker.ModelInput.empty())


def trajectory_group(trials: Sequence[Trial]) -> TrajectoryGroup:
    """Returns the trials of a closed group whose rewards measure the agent. Leaves the others out."""
    valid = [(trial, reward) for trial in trials if (reward := earned(trial)) is not None]
    return TrajectoryGroup(
        trajectories_G=[trajectory(trial) for trial, _ in valid],
        final_rewards_G=[reward for _, reward in valid],
        metrics_G=[dict(trial["rewards"]) for trial, _ in valid],
    )


def _transitions(row: PreparedRow) -> Iterator[Transition]:
    ids, mask = row["token_ids"], row["loss_mask"]
    start = 0
    while 1 in mask[start:]:
        start = mask.index(1, start)
        end = mask.index(0, start) if 0 in mask[start:] else len(mask)
        yield Transition(
            ob=tinker.ModelInput.from_ints(ids[:start]),
            ac=TokensWithLogprobs(tokens=ids[start:end], maybe_logprobs=row["logprobs"][start:end]),
            reward=0.0,
            episode_done=False,
        )
        start = end
