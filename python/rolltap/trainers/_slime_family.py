"""The adapters of slime and miles. Both have the same `Sample`, the same debug files and the same hooks."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from rolltap.client import DEFAULT_URL, AsyncClient
from rolltap.prepare import Prepare, earned, prepared_rows
from rolltap.row import PreparedRow, Trial, response, stand_in
from rolltap.trial import Agent, run_trial

Generate = Callable[[Any, Any, Mapping[str, Any]], Awaitable[list[Any]]]
"""A function for `--custom-generate-function-path`: of the arguments, a sample, and the sampling parameters."""


class Family:
    """The functions for one trainer, made for its class `Sample`.

    slime generates a group with an aborted sample again. miles does so only with a filter, and would train on the
    sample, so `aborted_has_tokens` gives it two tokens that are not trained.
    """

    def __init__(self, sample_type: Any, name: str, *, aborted_has_tokens: bool) -> None:
        self._type = sample_type
        self._name = name
        self._aborted_has_tokens = aborted_has_tokens

    def sample(self, line: Mapping[str, Any]) -> Any:
        """Returns the sample of an exported line."""
        return self._type.from_dict(dict(line))

    def save_debug_data(
        self, lines: Iterable[Mapping[str, Any]], path: str | os.PathLike[str], rollout_id: int = 0
    ) -> None:
        """Writes a file for `--load-debug-rollout-data`, from which the trainer trains without an engine."""
        import torch

        samples = [self.sample(line).to_dict() for line in lines]
        torch.save({"rollout_id": rollout_id, "samples": samples}, path)

    def generate_with(
        self, agent: Agent, url: str = DEFAULT_URL, *, token: str | None = None, **opening: Any
    ) -> Generate:
        """Returns a function for `--custom-generate-function-path` that runs the agent once per sample, as a trial.

        The agent gets `prompt`, `label` and `metadata` of the sample. A forked trial gives several samples with one
        `rollout_id`, so that the loss counts the trial once. If the reward does not measure the agent, the samples are
        masked. `opening` has further fields of `POST /v1/trials`.
        """

        async def generate(args: Any, asked: Any, sampling_params: Mapping[str, Any]) -> list[Any]:
            task = {"prompt": asked.prompt, "label": asked.label, "metadata": asked.metadata}
            async with AsyncClient(url, token=token) as client:
                name = f"{self._name}-{asked.group_index}"
                trial = await run_trial(client, agent, task, task_id=name, prepare=Prepare(), **opening)
            rows, fields = prepared_rows(trial), asked.to_dict()
            made = [self.sample({**fields, **line(row, trial, asked)}) for row in rows]
            return made or [self._without_tokens(asked, earned(trial))]

        return generate

    def _without_tokens(self, asked: Any, reward: float | None) -> Any:
        """Returns the sample of a trial without a sampled token, which trains nothing.

        With a reward, it counts in the baseline. Without one, the trainer may run it again.
        """
        is_failed = reward is None
        asked.status = self._type.Status.ABORTED if is_failed else self._type.Status.COMPLETED
        # Both trainers require a number. `remove_sample` excludes it from the comparison.
        asked.reward = 0.0 if reward is None else reward
        asked.remove_sample = is_failed
        if not is_failed or self._aborted_has_tokens:
            prompt_ids, ids, mask, logprobs = stand_in()
            asked.tokens, asked.response_length = prompt_ids + ids, len(ids)
            asked.loss_mask, asked.rollout_log_probs = mask, logprobs
        return asked


def post_process_rewards(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Compares rewards within each group and counts each trial once, for `--custom-reward-post-process-path`.

    Returns the raw rewards and the compared rewards. The latter are 0 for removed samples, which are in no mean. slime's
    own function compares the whole batch as one group as soon as one trial has forked. miles' own counts each trial
    once, and removed samples too.
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
"""The estimators that subtract the mean of the group from the reward. miles has no `cispo`."""
_SCALED = ("grpo", "gspo", "cispo")
"""The estimators that also divide by the standard deviation, if `grpo_std_normalization` is set."""


def _rule(rewards: Sequence[float], scale: bool) -> tuple[float, float]:
    """Returns the number to subtract from each reward, and the divisor, by the trainers' rule."""
    deviation = stdev(rewards) if len(rewards) > 1 else 0.0
    return fmean(rewards), deviation + 1e-6 if scale else 1.0


def _trial_of(one: Any) -> Any:
    return one.index if one.rollout_id is None else one.rollout_id


def line(row: PreparedRow, trial: Trial, asked: Any) -> dict[str, Any]:
    """Returns the fields of a sample that a live trial sets, as an export writes them."""
    reward = earned(trial)
    prompt_ids, ids, mask, logprobs = response(row)
    return {
        "rollout_id": _trial_of(asked),
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
    """Returns the status for the trainer, which drops or repeats a whole group if one sample is aborted.

    An aborted branch of a trial with a valid reward is therefore `truncated`.
    """
    return "truncated" if row["status"] == "aborted" and reward is not None else row["status"]
