"""Tests how rLLM itself groups episodes and compares rewards."""

from __future__ import annotations

import numpy as np
import pytest
from job import Job, expected
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


@pytest.mark.parametrize("precomputed", [True, False])
def test_the_advantages_of_a_job_are_those_of_its_sound_trials(job: Job, precomputed: bool) -> None:
    lines = job.lines("rllm")
    groups, _ = transform_episodes_to_trajectory_groups([episode(line) for line in lines], TransformConfig())
    config = AlgorithmConfig(use_precomputed_advantage=precomputed)
    collect_reward_and_advantage_from_trajectory_groups(groups, config)
    names = {line["info"]["trial_id"]: (line["info"]["group_id"], line["info"]["sample_index"]) for line in lines}
    made = {
        names[one.uid]: float(np.unique(one.steps[0].advantage).item()) for group in groups for one in group.trajectories
    }
    right = expected(lambda rewards: calculate_grpo_advantages_per_group(np.array(rewards))[0])
    if not precomputed:
        # rLLM itself has no place for a reward without a step, so this group lacks one reward in its baseline.
        alone = calculate_grpo_advantages_per_group(np.array([1.0, 1.0, 0.0]))[0]
        right |= {("judged without tokens", at): advantage for at, advantage in enumerate(alone)}
    assert made == pytest.approx(right, abs=1e-5)
