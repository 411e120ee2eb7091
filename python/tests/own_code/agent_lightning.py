"""Runs Agent Lightning's own adapter to verl, and its own advantages."""

from __future__ import annotations

from typing import Any

import torch
from agentlightning.verl.rollout_adapter import RolloutAdapter
from agentlightning.verl.rollout_level_advantage import compute_rollout_level_advantage
from verl import DataProto
from verl.trainer.ppo.core_algos import AdvantageEstimator

from rolltap.trainers.agent_lightning import completed_rollout


def adapter(level: str) -> RolloutAdapter:
    """Returns the adapter that makes rows of this level: `transition` or `trajectory`."""
    return RolloutAdapter(
        max_prompt_length=512,
        max_response_length=512,
        device=torch.device("cpu"),
        pad_token_id=0,
        trace_aggregator_level=level,
    )


def with_advantages(lines: list[dict[str, Any]], group_size: int) -> DataProto:
    """Returns the batch of these lines of an export, a row for each branch, with the advantages of GRPO."""
    batch, _ = adapter("trajectory").get_train_data_batch([completed_rollout(line) for line in lines])
    batch.batch["token_level_rewards"] = batch.batch["token_level_scores"].float()
    made, _ = compute_rollout_level_advantage(
        batch, adv_estimator=AdvantageEstimator.GRPO, gamma=1.0, lam=1.0, num_repeat=group_size
    )
    return made
