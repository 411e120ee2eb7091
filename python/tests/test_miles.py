"""Tests miles' Sample, its debug files, and the functions for rewards and agents that it shares with slime, on a stand-in
(trainer_code.py).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Capture, two_turns
from miles.utils.types import Sample

from rolltap.trainers.miles import generate_with, post_process_rewards, sample, save_debug_data


def normalized_by_rollout(samples: Sequence[Sample]) -> list[float]:
    """Returns the rewards compared within `group_index`, each `rollout_id` once, with the sample standard deviation.

    This is the rule of miles/ray/rollout/train_data_conversion.py:207; checkouts/test_miles_rules.py runs that file.
    """
    made = []
    for one in samples:
        rewards = {other.rollout_id: other.reward for other in samples if other.group_index == one.group_index}
        spread = stdev(rewards.values()) if len(rewards) > 1 else 0.0
        made.append((one.reward - fmean(rewards.values())) / (spread + 1e-6 if spread else 1.0))
    return made


def is_legacy_generate_function(function: Callable[..., Any]) -> bool:
    """Returns whether miles calls the function with the arguments, the sample and the sampling parameters."""
    names = list(inspect.signature(function).parameters)
    return len(names) >= 3 and names[0] != "input"


ARGS = SimpleNamespace(
    advantage_estimator="grpo", rewards_normalization=True, grpo_std_normalization=True, reward_key=None
)


def test_a_line_is_a_sample(capture: Capture) -> None:
    for row, line in zip(capture.rows, capture.lines("miles", "--failed", "mask"), strict=True):
        made = sample(line)
        made.validate()
        assert set(vars(made)) == {field.name for field in fields(Sample)}, "miles keeps unknown keys as attributes"
        start = row["prompt_len"]
        assert made.tokens == row["token_ids"] and len(made.tokens) - made.response_length == start
        assert made.loss_mask == (row["loss_mask"][start:] if row["reward_valid"] else [0] * made.response_length)
        captured = np.asarray(row["logprobs"][start:], np.float32)
        assert np.array_equal(np.asarray(made.rollout_log_probs, np.float32), captured)
        # miles groups the samples of a trial by this id, so that each trial counts once.
        assert made.rollout_id == row["sample_index"]


def test_the_file_that_miles_trains_from(capture: Capture, tmp_path) -> None:
    lines = capture.lines("miles", "--failed", "mask")
    save_debug_data(lines, tmp_path / "5.pt", rollout_id=5)
    data = torch.load(tmp_path / "5.pt", weights_only=False)
    assert [Sample.from_dict(one) for one in data["samples"]] == [sample(line) for line in lines]


def test_valid_trials_are_compared_as_miles_does_it(capture: Capture) -> None:
    made = [sample(line) for line in capture.lines("miles", "--failed", "mask")]
    raw, rewards = post_process_rewards(ARGS, made)
    valid = [one for one in made if not one.remove_sample]
    expected = normalized_by_rollout(valid)
    assert rewards == pytest.approx([*expected, 0.0], abs=1e-6)
    assert raw == [one.reward for one in made]
    # miles' own rule has the failed trial in the mean and in the deviation.
    assert normalized_by_rollout(made)[0] != pytest.approx(expected[0], abs=0.1)


def test_the_generate_function_runs_an_agent(admin: str) -> None:
    async def agent(trial, task):
        await asyncio.to_thread(two_turns, trial, task["prompt"], "Leave it.")
        return 0.5

    generate = generate_with(agent, admin)
    assert is_legacy_generate_function(generate)
    made = asyncio.run(generate(None, Sample(index=9, group_index=3, prompt="Open it."), {}))
    assert [(one.index, one.group_index, one.rollout_id, one.reward) for one in made] == [(9, 3, 9, 0.5)] * 2
    for one in made:
        one.validate()


def test_an_aborted_sample_has_tokens_that_are_not_trained(admin: str) -> None:
    async def agent(trial, task):
        return None

    (made,) = asyncio.run(generate_with(agent, admin)(None, Sample(index=1), {}))
    made.validate()
    assert made.status is Sample.Status.ABORTED and made.remove_sample
    assert made.response_length == 1 and made.loss_mask == [0] and len(made.tokens) == 2
