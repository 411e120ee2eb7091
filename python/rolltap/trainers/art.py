"""Trajectories for OpenPipe ART (package `openpipe-art` 0.5.23), from an export or from agents that run live.

ART trains the `Choice`s of a trajectory that have vLLM's token ids. A choice here is a stretch of trained tokens of one
call, with all earlier tokens of its branch as its prompt. Its message has no text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import art
from openai.types.chat.chat_completion import Choice

from rolltap.client import AsyncClient
from rolltap.prepare import Prepare, earned, prepared_rows
from rolltap.row import Trial
from rolltap.trainers._runs import Run, call_runs
from rolltap.trial import Agent, run_trial


def trajectory(line: Mapping[str, Any]) -> art.Trajectory:
    """Returns the trajectory of an exported line."""
    fields = {name: value for name, value in line.items() if name != "choices"}
    return art.Trajectory(messages_and_choices=[_choice(**choice) for choice in line["choices"]], **fields)


def trajectory_groups(lines: Iterable[Mapping[str, Any]]) -> list[art.TrajectoryGroup]:
    """Returns the groups of an export, in the order of their first lines."""
    groups: dict[str, list[art.Trajectory]] = {}
    for line in lines:
        groups.setdefault(line["metadata"]["group_id"], []).append(trajectory(line))
    return [art.TrajectoryGroup(trajectories) for trajectories in groups.values()]


async def rollout(
    client: AsyncClient, agent: Agent, task: Mapping[str, Any], *, task_id: str, **opening: Any
) -> art.Trajectory:
    """Runs the agent as a trial and returns its trajectory, for `art.trajectory_group`.

    `opening` has further fields of `POST /v1/trials`. Raises RuntimeError if the reward does not measure the agent or
    nothing was sampled. ART keeps exceptions apart, and compares the group without them.
    """
    # ART records the calls that it sees inside a trajectory of its own, and a trajectory cannot have both forms.
    with art.no_capture():
        trial = await run_trial(client, agent, task, task_id=task_id, prepare=Prepare(), **opening)
    return trajectory(_line(trial))


def _line(trial: Trial) -> dict[str, Any]:
    reward = earned(trial)
    if reward is None:
        cause = trial["failure_cause"] or "nothing sampled"
        raise RuntimeError(f"trial {trial['trial_id']} has no valid reward: {cause}")
    rows = prepared_rows(trial)
    trained = [row for row in rows if any(row["loss_mask"])]
    return {
        "choices": [_fields(run) for run in call_runs(rows)],
        "reward": reward,
        "initial_policy_version": min((row["oldest_policy"] for row in trained), default=None),
        "final_policy_version": max((row["newest_policy"] for row in trained), default=None),
        "metrics": dict(trial["rewards"]),
        "metadata": {
            "trial_id": trial["trial_id"],
            "task_id": trial["task_id"],
            "group_id": trial["group_id"] or trial["trial_id"],
            "sample_index": trial["sample_index"],
        },
    }


_REASONS = ("stop", "length", "tool_calls", "content_filter", "function_call")
"""The finish reasons that OpenAI's `Choice` accepts."""


def _fields(run: Run) -> dict[str, Any]:
    return {
        "prompt_token_ids": run.prompt_ids,
        "token_ids": run.ids,
        "logprobs": run.logprobs,
        "finish_reason": run.finish_reason if run.finish_reason in _REASONS else "stop",
    }


def _choice(
    prompt_token_ids: list[int], token_ids: list[int], logprobs: list[float], finish_reason: str
) -> Choice:
    content: list[dict[str, Any]] = [
        {"token": f"token_id:{token}", "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token, logprob in zip(token_ids, logprobs, strict=True)
    ]
    return Choice.model_validate(
        {
            "index": 0,
            "finish_reason": finish_reason,
            "message": {"role": "assistant", "content": ""},
            "logprobs": {"content": content},
            "prompt_token_ids": prompt_token_ids,
            "token_ids": token_ids,
        }
    )
