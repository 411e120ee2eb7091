"""Completed rollouts for Agent Lightning (package `agentlightning` 1.0.2), from an export or from agents that run live.

A line of `rolltap export --format agent-lightning` is a `CompletedRollout`. For live agents, name a subclass of
`Runner` in the trainer's configuration (`agentlightning.local.agent_class`). Agent Lightning's controller runs it once per
rollout.
"""

from __future__ import annotations

import copy
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import httpx
from agentlightning.verl.agl_rollout_manager import CompletedRollout

from rolltap.client import DEFAULT_URL, AsyncClient, OpenedTrial
from rolltap.prepare import Prepare, earned, prepared_rows
from rolltap.row import Trial
from rolltap.trainers._runs import Run, call_runs
from rolltap.trial import Outcome, run_trial


def completed_rollout(line: Mapping[str, Any]) -> CompletedRollout:
    """Returns the rollout of an exported line, for `RolloutAdapter.get_train_data_batch`.

    The lists are copies, because the adapter appends to them at its level `trajectory`.
    """
    return CompletedRollout.model_validate(copy.deepcopy(dict(line)))


class Runner(ABC):
    """Runs an agent as a trial behind the proxy, in a process that Agent Lightning's controller starts.

    ```yaml
    agentlightning:
      local:
        agent_class: my_module:MyRunner     # a subclass with `agent`, and `url` if the proxy is elsewhere
        env_map: {ROLLTAP_TASK: input}      # the sample of the data set, which the agent gets as its task
    ```

    The model calls go through the proxy and not through Agent Lightning's gateway. The runner reports each stretch of
    trained tokens as a `model_request`, and then the reward. A trial without a valid reward fails the rollout, and the
    trainer then skips it.
    """

    url: str = DEFAULT_URL
    """The proxy's admin plane."""
    token: str | None = None

    @abstractmethod
    async def agent(self, trial: OpenedTrial, task: Mapping[str, Any]) -> Outcome:
        """Does the task, and returns the outcome."""

    async def run(self) -> None:
        """Runs one rollout. Raises RuntimeError if its reward does not measure the agent."""
        task = json.loads(os.environ.get("ROLLTAP_TASK", "{}"))
        async with AsyncClient(self.url, token=self.token) as client:
            trial = await run_trial(client, self.agent, task, task_id="agent-lightning", prepare=Prepare())
        key = os.environ.get("AGL_KEY")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(headers=headers, timeout=120.0) as server:
            for event in events(trial):
                (await server.post(os.environ["AGL_EVENT_URL"], json=event)).raise_for_status()


def events(trial: Trial) -> list[dict[str, Any]]:
    """Returns the trial as events of Agent Lightning's server: a `model_request` per run, and the reward.

    Raises RuntimeError if the reward does not measure the agent or nothing was sampled.
    """
    reward = earned(trial)
    if reward is None:
        cause = trial["failure_cause"] or "nothing sampled"
        raise RuntimeError(f"trial {trial['trial_id']} has no valid reward: {cause}")
    requests = [{"event_type": "model_request", "data": _request(run)} for run in call_runs(prepared_rows(trial))]
    return [*requests, {"event_type": "reward", "data": {"value": reward}}]


def _request(run: Run) -> dict[str, Any]:
    logprobs = {"content": [{"logprob": logprob} for logprob in run.logprobs]}
    return {
        "status": "ok",
        "http_status": 200,
        "server": {"model": run.model, "version": run.policy},
        "response": {
            "prompt_token_ids": run.prompt_ids,
            "choices": [{"token_ids": run.ids, "logprobs": logprobs, "finish_reason": run.finish_reason}],
        },
    }
