"""Outputs of an agent loop for verl (package `verl` 0.9.1), from an export or from agents that run live.

A line of `rolltap export --format verl` is the result of one `run` of an agent loop: an output per branch. Only verl's
trainer with a TransferQueue (`verl.trainer.ppo.v1`) accepts several outputs at once. For the other trainer, export with
`--on-fork longest`, and pass `several=False` to `AgentLoop`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from rolltap.client import DEFAULT_URL, AsyncClient
from rolltap.prepare import Prepare, earned, prepared_rows
from rolltap.row import PreparedRow, Trial, response
from rolltap.sampling import of_a_trial
from rolltap.trial import run_trial


def outputs(line: Mapping[str, Any]) -> list[AgentLoopOutput]:
    """Returns the outputs of an exported line."""
    return [AgentLoopOutput.model_validate(output) for output in line["outputs"]]


class AgentLoop(AgentLoopBase):
    """Runs an agent once per sample, as a trial. Name it in verl's configuration of agent loops:

    ```yaml
    - name: rolltap
      _target_: rolltap.trainers.verl.AgentLoop
      agent: my_module:my_agent   # an async function of (trial, task) that gives a reward
      url: http://127.0.0.1:7071
    ```

    The task of the agent is the sample's line of the data set. If the trial has no valid reward, `run` raises, and verl
    drops the whole prompt, because verl cannot represent a sample without a reward.
    """

    def __init__(
        self,
        *args: Any,
        agent: str,
        url: str = DEFAULT_URL,
        token: str | None = None,
        several: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        module, _, name = agent.partition(":")
        self._agent = getattr(importlib.import_module(module), name)
        self._url = url
        self._token = token
        self._several = several

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput] | AgentLoopOutput:
        """Runs one sample of one prompt. Raises RuntimeError if it has no valid reward or no trained token."""
        async with AsyncClient(self._url, token=self._token) as client:
            trial = await run_trial(
                client,
                self._agent,
                kwargs,
                task_id=str(kwargs.get("uid", "verl")),
                sampling=of_a_trial(sampling_params),
                prepare=Prepare(on_fork="all" if self._several else "longest"),
            )
        made = outputs(_line(trial))
        return made if self._several else made[0]


def _line(trial: Trial) -> dict[str, Any]:
    reward = earned(trial)
    if reward is None:
        raise RuntimeError(f"trial {trial['trial_id']} has no valid reward: {trial['failure_cause'] or 'nothing sampled'}")
    # verl reads the trial's score at a trained token of the last output, so each output needs one.
    trained = [row for row in prepared_rows(trial) if any(row["loss_mask"])]
    if not trained:
        raise RuntimeError(f"trial {trial['trial_id']} has nothing to train on")
    return {"outputs": [_output(row, reward, trial["rewards"]) for row in trained]}


def _output(row: PreparedRow, reward: float, rewards: Mapping[str, float]) -> dict[str, Any]:
    prompt_ids, response_ids, response_mask, logprobs = response(row)
    return {
        "prompt_ids": prompt_ids,
        "response_ids": response_ids,
        "response_mask": response_mask,
        "response_logprobs": logprobs,
        "reward_score": reward,
        "num_turns": 2 * len(row["calls"]),
        "metrics": {},
        "extra_fields": {
            "min_global_steps": row["oldest_policy"],
            "max_global_steps": row["newest_policy"],
            "reward_extra_info": dict(rewards),
        },
    }
