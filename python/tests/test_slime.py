"""Tests slime's Sample, its debug files, and its functions for rewards and agents, on a stand-in (trainer_code.py)."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import Capture, two_turns
from slime.utils.types import Sample

from rolltap import Client
from rolltap.trainers._slime_family import line
from rolltap.trainers.slime import generate_with, post_process_rewards, sample, save_debug_data


def check(one: Sample) -> None:
    """Asserts what slime asserts and expects before it trains on a sample."""
    assert set(vars(one)) == {field.name for field in fields(Sample)}, "slime keeps unknown keys as attributes"
    assert all(type(token) is int for token in one.tokens)
    assert 0 < one.response_length < len(one.tokens)
    assert one.loss_mask is not None and len(one.loss_mask) == one.response_length
    assert one.rollout_log_probs is not None and len(one.rollout_log_probs) == one.response_length
    assert all(mask in (0, 1) for mask in one.loss_mask)
    assert all(type(value) is float for value in one.rollout_log_probs)
    assert all(isinstance(version, str) for version in one.weight_versions)
    assert isinstance(one.reward, float)


def test_a_line_is_a_sample(capture: Capture) -> None:
    made = [sample(line) for line in capture.lines("slime")]
    assert len(made) == len(capture.rows)
    for row, one in zip(capture.rows, made):
        check(one)
        start = row["prompt_len"]
        assert one.tokens == row["token_ids"] and one.response_length == len(row["token_ids"]) - start
        assert one.loss_mask == (row["loss_mask"][start:] if row["reward_valid"] else [0] * one.response_length)
        captured = np.asarray(row["logprobs"][start:], np.float32)
        assert np.array_equal(np.asarray(one.rollout_log_probs, np.float32), captured)
        assert one.remove_sample is not row["reward_valid"]
        assert one.weight_versions == ["7"]
    assert [one.rollout_id for one in made] == [0, 1, 1, 2]
    assert [one.group_index for one in made] == [0] * 4


def test_the_file_that_slime_trains_from(capture: Capture, tmp_path) -> None:
    lines = capture.lines("slime")
    save_debug_data(lines, tmp_path / "5.pt", rollout_id=5)
    data = torch.load(tmp_path / "5.pt", weights_only=False)
    assert data["rollout_id"] == 5
    assert [Sample.from_dict(one) for one in data["samples"]] == [sample(line) for line in lines]


def grpo(**changed) -> SimpleNamespace:
    told = {"advantage_estimator": "grpo", "rewards_normalization": True, "grpo_std_normalization": True}
    return SimpleNamespace(**{**told, "reward_key": None, **changed})


def test_rewards_are_compared_in_their_group_and_each_trial_once(capture: Capture) -> None:
    made = [sample(line) for line in capture.lines("slime")]
    raw, rewards = post_process_rewards(grpo(), made)
    assert len(raw) == len(rewards) == 4
    # slime divides by the sample standard deviation, which is the square root of 0.5 for 1 and 0.
    assert rewards == pytest.approx([0.5**0.5, -(0.5**0.5), -(0.5**0.5), 0.0], abs=1e-5)
    _, unscaled = post_process_rewards(grpo(grpo_std_normalization=False), made)
    assert unscaled == [0.5, -0.5, -0.5, 0.0]
    raw, as_they_are = post_process_rewards(grpo(rewards_normalization=False), made)
    assert as_they_are == raw


def test_an_unforked_batch_is_normalised_as_slime_does_it() -> None:
    rewards = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    made = [Sample(index=at, group_index=at // 3, reward=reward) for at, reward in enumerate(rewards)]
    groups = torch.tensor(rewards).reshape(-1, 3)
    groups = groups - groups.mean(-1, keepdim=True)
    expected = (groups / (groups.std(-1, keepdim=True) + 1e-6)).flatten().tolist()
    assert post_process_rewards(grpo(), made)[1] == pytest.approx(expected, abs=1e-6)


def test_the_generate_function_runs_an_agent(admin: str) -> None:
    async def agent(trial, task):
        assert task["label"] == "four"
        await asyncio.to_thread(two_turns, trial, task["prompt"], "Leave it.")
        return 0.5

    asked = Sample(index=9, group_index=3, prompt="Open it.", label="four", metadata={"own": 1})
    made = asyncio.run(generate_with(agent, admin)(None, asked, {}))
    assert [(one.index, one.group_index, one.rollout_id) for one in made] == [(9, 3, 9)] * 2
    for one in made:
        check(one)
        assert one.status in (Sample.Status.COMPLETED, Sample.Status.TRUNCATED)
        assert (one.reward, one.label, one.metadata["own"]) == (0.5, "four", 1)


def test_an_agent_that_never_calls_is_aborted_unless_it_is_judged(admin: str) -> None:
    async def agent(trial, task):
        return task["metadata"]["reward"]

    def generated(reward: float | None) -> Sample:
        asked = Sample(index=1, metadata={"reward": reward})
        (made,) = asyncio.run(generate_with(agent, admin)(None, asked, {}))
        return made

    made = generated(None)
    assert made.status is Sample.Status.ABORTED and made.remove_sample and made.reward == 0.0
    # With a reward, it counts in the baseline of its group and trains nothing.
    judged = generated(0.5)
    check(judged)
    assert judged.status is Sample.Status.COMPLETED and not judged.remove_sample
    assert (judged.reward, judged.loss_mask) == (0.5, [0])


@pytest.mark.parametrize(("sample_index", "status"), [(0, "truncated"), (2, "aborted")])
def test_a_branch_that_broke_off_is_aborted_only_without_a_reward(client: Client, capture: Capture, sample_index, status) -> None:
    prepared = client.prepared(capture.of(sample_index)[0]["trial_id"])
    row = {**prepared["rows"][0], "status": "aborted"}
    trial = {"trial_id": row["trial_id"], "prepared": prepared}
    assert line(row, trial, Sample(index=1))["status"] == status
