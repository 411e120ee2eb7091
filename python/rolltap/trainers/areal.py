"""Tensors of episodes for AReaL (package `areal` 1.0.4), from an export or from a workflow that runs agents.

An export has the advantages as rewards: train it without `reward_norm` and `adv_norm`. A workflow gives the rewards of
the agents, and AReaL compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from areal.api.workflow_api import RolloutWorkflow

from rolltap.client import DEFAULT_URL, AsyncClient
from rolltap.prepare import Prepare, earned, prepared_rows
from rolltap.row import Trial, stand_in
from rolltap.trial import Agent, run_trial

_PER_TOKEN = {
    "input_ids": (torch.int32, 0),
    "loss_mask": (torch.int32, 0),
    "logprobs": (torch.float32, 0.0),
    "versions": (torch.int32, -1),
}
"""The type and the padding of each tensor with a value per token."""


def tensors(line: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Returns the tensors of an exported line: a row per branch, padded to the longest branch."""
    lengths = [len(ids) for ids in line["input_ids"]]
    width = max(lengths)
    made = {name: _filled(line[name], width, *how) for name, how in _PER_TOKEN.items()}
    attended = [[1] * length for length in lengths]
    return {
        **made,
        "attention_mask": _filled(attended, width, torch.bool, 0),
        "rewards": torch.tensor(line["rewards"], dtype=torch.float32),
    }


def _filled(rows: Sequence[Sequence[Any]], width: int, dtype: torch.dtype, filling: Any) -> torch.Tensor:
    return torch.tensor([[*row, *[filling] * (width - len(row))] for row in rows], dtype=dtype)


class Workflow(RolloutWorkflow):
    """Runs the agent once per episode, as a trial. The agent gets the episode's data.

    AReaL compares rewards by their place in the batch, so a forked trial gives the branch with the most trainable
    tokens. A trial is rejected if its reward does not measure the agent. AReaL then requests another. A trial with a
    reward and without a sampled token gives two tokens that train nothing, because it counts in the baseline.
    """

    def __init__(
        self, agent: Agent, url: str = DEFAULT_URL, *, token: str | None = None, **opening: Any
    ) -> None:
        self._agent = agent
        self._url = url
        self._token = token
        self._opening = {"task_id": "areal", **opening}

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, torch.Tensor] | None:
        """Runs one episode. Does not use `engine`, because the agent calls vLLM through the proxy.

        Returns None to reject the episode.
        """
        async with AsyncClient(self._url, token=self._token) as client:
            trial = await run_trial(client, self._agent, data, prepare=Prepare(on_fork="longest"), **self._opening)
        line = _line(trial)
        return None if line is None else tensors(line)


def _line(trial: Trial) -> dict[str, Any] | None:
    reward, rows = earned(trial), prepared_rows(trial)
    if reward is None:
        return None
    if not rows:
        prompt_ids, ids, mask, logprobs = stand_in()
        return {
            "input_ids": [prompt_ids + ids],
            "loss_mask": [[0] * len(prompt_ids) + mask],
            "logprobs": [[0.0] * len(prompt_ids) + logprobs],
            "versions": [[-1] * len(prompt_ids + ids)],
            "rewards": [reward],
        }
    # `on_fork="longest"` leaves one branch.
    (row,) = rows
    return {
        "input_ids": [row["token_ids"]],
        "loss_mask": [row["loss_mask"]],
        "logprobs": [row["logprobs"]],
        "versions": [row["policy_numbers"]],
        "rewards": [reward],
    }
