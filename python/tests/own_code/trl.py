"""Runs the advantages of TRL's own asynchronous worker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from accelerate import PartialState
from trl.experimental.async_grpo.async_rollout_worker import _AsyncRolloutLoop


def advantages(rewards: list[float]) -> list[float]:
    """Returns the advantages of one group with these rewards."""
    count = len(rewards)
    sequence = SimpleNamespace(input_ids=[1], completion_mask=[1], old_log_probs=[0.0])
    group = SimpleNamespace(
        completions=[[]] * count,
        prompts=[[]] * count,
        completions_ids=[[1]] * count,
        completions_sequences=[[sequence]] * count,
        reward_kwargs={},
        env_rewards=[],
        rollout_rewards=[],
        tool_call_counts=[0] * count,
        tool_failure_counts=[0] * count,
        model_version=0,
        group_id=0,
    )
    worker = SimpleNamespace(
        reward_funcs=[lambda **_: rewards],
        reward_func_names=["reward"],
        _env_reward_types=[],
        _provides_rollout_reward=False,
    )
    PartialState(cpu=True)  # TRL's logger requires it.
    samples = asyncio.run(_AsyncRolloutLoop._score_group(worker, group))
    return [sample.advantage for sample in samples]
