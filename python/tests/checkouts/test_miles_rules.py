"""Tests how miles itself compares rewards, and that its training data are ours."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from job import Job, expected
from groups import SAMPLE, cases
from conftest import Capture
from miles.ray.rollout.train_data_conversion import _post_process_rewards, convert_samples_to_train_data
from miles.utils.types import Sample

from rolltap.trainers.miles import sample

ARGS = SimpleNamespace(
    advantage_estimator="grpo",
    rewards_normalization=True,
    grpo_std_normalization=True,
    reward_key=None,
    n_samples_per_prompt=4,
    rollout_batch_size=2,
    use_dynamic_global_batch_size=False,
)


def samples(rewards: list[float], group: int = 0) -> list[Sample]:
    return [Sample(group_index=group, rollout_id=10 * group + at, reward=one) for at, one in enumerate(rewards)]


@cases(SAMPLE)
def test_the_advantages_of_a_group(rewards: list[float], right: list[float]) -> None:
    assert _post_process_rewards(ARGS, samples(rewards), None)[1] == pytest.approx(right, abs=1e-3)


def test_groups_of_different_sizes_stay_apart() -> None:
    made = _post_process_rewards(ARGS, samples([1.0] * 3) + samples([1.0, 0.0], 1), None)[1]
    assert made == pytest.approx([0, 0, 0, 0.7071, -0.7071], abs=1e-3)


def test_removed_samples_are_compared_all_the_same() -> None:
    made = samples([1.0, 0.0, 0.0])
    made[2].remove_sample = True
    assert _post_process_rewards(ARGS, made, None)[1][0] == pytest.approx(1.1547, abs=1e-3)


def test_the_training_data_are_ours(capture: Capture) -> None:
    made = [sample(line) for line in capture.lines("miles", "--failed", "mask")]
    data = convert_samples_to_train_data(ARGS, made, {}, None, None)
    starts = [row["prompt_len"] for row in capture.rows]
    masks = [row["loss_mask"] if row["reward_valid"] else [0] * len(row["loss_mask"]) for row in capture.rows]
    assert data["tokens"] == [row["token_ids"] for row in capture.rows]
    assert data["loss_masks"] == [mask[start:] for mask, start in zip(masks, starts)]
    # A forked trial counts once, and both of its branches have its advantage.
    assert data["rollout_ids"] == [0, 1, 1, 2] and data["rewards"][1] == data["rewards"][2]
    sums = [sum(mask) for mask in masks]
    assert data["rollout_mask_sums"] == [sums[0], sums[1] + sums[2], sums[1] + sums[2], 0]


def test_the_advantages_of_a_job_are_those_of_its_sound_trials(job: Job) -> None:
    exported = [sample(line) for line in job.lines("miles")]
    made = _post_process_rewards(ARGS, exported, None)[1]
    of_trained = {
        (one.metadata["group_id"], one.metadata["sample_index"]): advantage
        for one, advantage in zip(exported, made, strict=True)
        if any(one.loss_mask)
    }
    rule = lambda rewards: _post_process_rewards(ARGS, samples(rewards), None)[1]
    assert of_trained == pytest.approx(expected(rule), abs=1e-5)
