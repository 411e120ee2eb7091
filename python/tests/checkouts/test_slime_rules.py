"""Tests how slime itself compares rewards, and that its training data are ours.

`RolloutManager` needs SGLang, so its methods are run alone.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from job import Job, expected
from groups import SAMPLE, cases
from conftest import Capture
from slime.observability.rollout_data_utils import load_debug_rollout_data
from slime.utils.types import Sample
from trainer_code import checkout, definition

from rolltap.trainers.slime import post_process_rewards, sample, save_debug_data

ROLLOUT = checkout().root / "slime/ray/rollout.py"


def manager(n: int, prompts: int, function=None) -> SimpleNamespace:
    args = SimpleNamespace(
        advantage_estimator="grpo",
        rewards_normalization=True,
        grpo_std_normalization=True,
        reward_key=None,
        n_samples_per_prompt=n,
        rollout_batch_size=prompts,
    )
    made = SimpleNamespace(
        args=args, custom_reward_post_process_func=function, custom_convert_samples_to_train_data_func=None
    )
    method = definition(ROLLOUT, "RolloutManager._post_process_rewards", {"torch": torch})
    made._post_process_rewards = lambda samples: method(made, samples)
    return made


def compared(rewards: list[float], n: int, prompts: int = 1) -> list[float]:
    return manager(n, prompts)._post_process_rewards([Sample(reward=reward) for reward in rewards])[1]


@cases(SAMPLE)
def test_the_advantages_of_a_group(rewards: list[float], right: list[float]) -> None:
    made = compared(rewards, len(rewards))
    if len(rewards) == 1:
        assert math.isnan(made[0]), "the sample deviation of one reward"
    else:
        assert made == pytest.approx(right, abs=1e-3)


def test_groups_of_different_sizes_are_one_group() -> None:
    # Two groups of equal rewards get advantages as soon as one of them has a trial less.
    assert compared([1.0] * 3 + [0.0] * 4, 4, 2)[0] == pytest.approx(1.069, abs=1e-3)
    assert compared([1.0] * 4 + [0.0] * 4, 4, 2) == [0.0] * 8


def test_removed_samples_are_compared_all_the_same() -> None:
    samples = [Sample(reward=1.0), Sample(reward=0.0), Sample(reward=0.0, remove_sample=True)]
    assert manager(3, 1)._post_process_rewards(samples)[1][0] == pytest.approx(1.1547, abs=1e-3)


def test_the_training_data_are_ours(capture: Capture, tmp_path) -> None:
    save_debug_data(capture.lines("slime", "--failed", "mask"), tmp_path / "0.pt")
    made = load_debug_rollout_data(str(tmp_path / "{rollout_id}.pt"), rollout_id=0)
    assert made == [sample(line) for line in capture.lines("slime", "--failed", "mask")]
    known = {"torch": torch, "Sample": Sample, "get_source": lambda sample: ""}
    convert = definition(ROLLOUT, "RolloutManager._convert_samples_to_train_data", known)
    data = convert(manager(3, 1, post_process_rewards), made)
    assert data["rewards"] == pytest.approx([0.5**0.5, -(0.5**0.5), -(0.5**0.5), 0.0], abs=1e-3)
    starts = [row["prompt_len"] for row in capture.rows]
    assert data["tokens"] == [row["token_ids"] for row in capture.rows]
    masks = [row["loss_mask"] if row["reward_valid"] else [0] * len(row["loss_mask"]) for row in capture.rows]
    assert data["loss_masks"] == [mask[start:] for mask, start in zip(masks, starts)]
    # The loss divides by the trained tokens of the whole trial.
    sums = [sum(mask) for mask in masks]
    assert data["rollout_mask_sums"] == [sums[0], sums[1] + sums[2], sums[1] + sums[2], 0]


@pytest.mark.parametrize("function", [None, post_process_rewards], ids=["its own rule", "our function"])
def test_the_advantages_of_a_job_are_those_of_its_sound_trials(job: Job, function) -> None:
    samples = [sample(line) for line in job.lines("slime")]
    made = manager(4, len(samples) // 4, function)._post_process_rewards(samples)[1]
    of_trained = {
        (one.metadata["group_id"], one.metadata["sample_index"]): advantage
        for one, advantage in zip(samples, made, strict=True)
        if any(one.loss_mask)
    }
    assert of_trained == pytest.approx(expected(lambda rewards: compared(rewards, len(rewards))), abs=1e-5)
