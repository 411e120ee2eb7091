"""Tests how rLLM itself groups episodes and compares rewards."""

from __future__ import annotations

import numpy as np
import pytest
from groups import POPULATION, cases
from conftest import Capture
from rllm.trainer.algorithms.advantage import collect_reward_and_advantage_from_trajectory_groups
from rllm.trainer.algorithms.config import AlgorithmConfig, TransformConfig
from rllm.trainer.algorithms.rl_algo import calculate_grpo_advantages_per_group
from rllm.trainer.algorithms.transform import transform_episodes_to_trajectory_groups

from rolltap.trainers.rllm import episode


@cases(POPULATION)
def test_the_advantages_of_a_group(rewards: list[float], right: list[float]) -> None:
    made, _ = calculate_grpo_advantages_per_group(np.array(rewards))
    assert made.tolist() == pytest.approx(right, abs=1e-3)


def advantages(capture: Capture, *arguments: str, config: AlgorithmConfig) -> list[list[float]]:
    """Returns the advantage of each step, by trial. A list of one value per token becomes this value."""
    episodes = [episode(line) for line in capture.lines("rllm", "--failed", "mask", *arguments)]
    groups, _ = transform_episodes_to_trajectory_groups(episodes, TransformConfig())
    (group,) = groups
    assert group.task_id == capture.group_id and len(group.trajectories) == 2, "the failed trial has no steps"
    collect_reward_and_advantage_from_trajectory_groups(groups, config)
    return [[float(np.unique(step.advantage).item()) for step in one.steps] for one in group.trajectories]


def test_a_group_is_compared_by_rllm(capture: Capture) -> None:
    first, forked = advantages(capture, config=AlgorithmConfig())
    assert first == pytest.approx([1.0] * len(first), abs=1e-3)
    assert forked == pytest.approx([-1.0] * len(forked), abs=1e-3)


def test_the_advantages_of_the_export_are_used(capture: Capture) -> None:
    config = AlgorithmConfig(use_precomputed_advantage=True)
    first, forked = advantages(capture, "--advantage", "grpo", config=config)
    assert first == pytest.approx([0.5**0.5] * len(first), abs=1e-3)
    assert forked == pytest.approx([-(0.5**0.5)] * len(forked), abs=1e-3)
