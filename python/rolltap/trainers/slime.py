"""Samples for slime (commit 624b824), from an export or from agents that run live.

A line of `rolltap export --format slime` is a `Sample`. For live agents, write a module and name its functions in
slime's arguments:

```python
# my_rollout.py: --custom-generate-function-path my_rollout.generate
#                --custom-reward-post-process-path my_rollout.post_process_rewards
from rolltap.trainers.slime import generate_with, post_process_rewards

generate = generate_with(my_agent)
```
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from slime.utils.types import Sample

from rolltap.client import DEFAULT_URL, AsyncClient
from rolltap.prepare import Prepare, earned, prepared_rows
from rolltap.row import PreparedRow, Trial, response
from rolltap.trial import Agent, run_trial


def sample(line: Mapping[str, Any]) -> Sample:
    """Returns the sample of an exported line."""
    return Sample.from_dict(dict(line))


def save_debug_data(lines: Iterable[Mapping[str, Any]], path: str | os.PathLike[str], rollout_id: int = 0) -> None:
    """Writes a file for `--load-debug-rollout-data`, with which slime trains on the file and starts no engine."""
    import torch

    torch.save({"rollout_id": rollout_id, "samples": [sample(line).to_dict() for line in lines]}, path)


def generate_with(
    agent: Agent, url: str = DEFAULT_URL, *, token: str | None = None, **opening: Any
) -> Callable[[Any, Sample, Mapping[str, Any]], Awaitable[list[Sample]]]:
    """Returns a function for `--custom-generate-function-path` that runs the agent once per sample, as a trial.

    The agent gets `prompt`, `label` and `metadata` of the sample. A forked trial gives several samples with one
    `rollout_id`, so that the loss counts the trial once. If the reward does not measure the agent, the samples are
    masked. `opening` has further fields of `POST /v1/trials`.
    """

    async def generate(args: Any, asked: Sample, sampling_params: Mapping[str, Any]) -> list[Sample]:
        task = {"prompt": asked.prompt, "label": asked.label, "metadata": asked.metadata}
        async with AsyncClient(url, token=token) as client:
            name = f"slime-{asked.group_index}"
            trial = await run_trial(client, agent, task, task_id=name, prepare=Prepare(), **opening)
        made = [sample({**asked.to_dict(), **_line(row, trial, asked)}) for row in prepared_rows(trial)]
        return made or [_failed(asked)]

    return generate


def post_process_rewards(args: Any, samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """Compares rewards within each group and counts each trial once, for `--custom-reward-post-process-path`.

    slime's own function compares the whole batch as one group as soon as one trial has forked. Returns the raw rewards
    and the compared rewards. The latter are 0 for removed samples.
    """
    raw = [sample.get_reward_value(args) for sample in samples]
    if args.advantage_estimator not in _COMPARED or not args.rewards_normalization:
        return raw, list(raw)
    # One reward per trial: a forked trial has several samples with the same reward.
    groups: dict[Any, dict[Any, float]] = {}
    for one, reward in zip(samples, raw):
        if not one.remove_sample:
            groups.setdefault(one.group_index, {})[_trial_of(one)] = reward
    scale = args.advantage_estimator in _SCALED and args.grpo_std_normalization
    rules = {group: _rule(list(rewards.values()), scale) for group, rewards in groups.items()}
    return raw, [
        0.0 if one.remove_sample else (reward - rules[one.group_index][0]) / rules[one.group_index][1]
        for one, reward in zip(samples, raw)
    ]


_COMPARED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
"""slime's estimators that subtract the mean of the group from the reward."""
_SCALED = ("grpo", "gspo", "cispo")
"""slime's estimators that also divide by the standard deviation, if `grpo_std_normalization` is set."""


def _rule(rewards: Sequence[float], scale: bool) -> tuple[float, float]:
    """Returns the number to subtract from each reward, and the divisor, by slime's rule."""
    deviation = stdev(rewards) if len(rewards) > 1 else 0.0
    return fmean(rewards), deviation + 1e-6 if scale else 1.0


def _trial_of(one: Sample) -> Any:
    return one.index if one.rollout_id is None else one.rollout_id


def _line(row: PreparedRow, trial: Trial, asked: Sample) -> dict[str, Any]:
    reward = earned(trial)
    prompt_ids, ids, mask, logprobs = response(row)
    return {
        "rollout_id": asked.index,
        "tokens": prompt_ids + ids,
        "response_length": len(ids),
        "loss_mask": mask,
        "rollout_log_probs": logprobs,
        "weight_versions": row["policy_names"],
        "reward": 0.0 if reward is None else reward,
        "remove_sample": reward is None,
        "status": _status(row, reward),
        "metadata": {**asked.metadata, "trial_id": row["trial_id"], "branch_index": row["branch_index"]},
    }


def _status(row: PreparedRow, reward: float | None) -> str:
    """Returns the status for slime, which puts the whole group back into its buffer if one sample is aborted.

    An aborted branch of a trial with a valid reward is therefore `truncated`.
    """
    return "truncated" if row["status"] == "aborted" and reward is not None else row["status"]


def _failed(asked: Sample) -> Sample:
    """Returns the sample of a trial without a sampled token. slime does not train it and may run it again."""
    asked.status = Sample.Status.ABORTED
    # slime requires a number. `remove_sample` excludes it from the comparison.
    asked.reward = 0.0
    asked.remove_sample = True
    return asked
