"""Tinker (packages `tinker` 0.38.0 and `tinker-cookbook` 0.6.1).

A line of `rolltap export --format tinker` is a `Datum`, ready for `forward_backward`. From the feed, `trajectory_group`
(of trials that were read with `prepare=Prepare()`) makes what the cookbook's own loop works on; it centres the rewards, merges the turns and makes the data itself.
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
    """The datum of an exported line."""
    tensors = {name: tinker.TensorData(**tensor) for name, tensor in line["loss_fn_inputs"].items()}
    return tinker.Datum(tinker.ModelInput.model_validate(line["model_input"]), tensors)


def trajectory(trial: Trial) -> Trajectory:
    """A trial as the cookbook's trajectory; the reward is not in it, but in its group.

    A transition is a run of tokens that are trained, after all that stands before it. The cookbook joins those that
    continue each other and begins a datum where one does not. What a branch shares with one before it is observation
    there, so that it is trained once.
    """
    made = [transition for row in prepared_rows(trial) for transition in _transitions(row)]
    if made:
        made[-1].episode_done = True
    return Trajectory(transitions=made, final_ob=tinker.ModelInput.empty())


def trajectory_group(trials: Sequence[Trial]) -> TrajectoryGroup:
    """The trials of a closed group whose rewards measure the agent."""
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
