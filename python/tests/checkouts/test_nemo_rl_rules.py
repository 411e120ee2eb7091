"""Tests how NeMo-RL itself compares rewards, and what it trains of our results.

The modules import GPU libraries, so the functions are run alone.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from job import Job, expected
from groups import OTHERS, cases
from conftest import Capture, longest
from trainer_code import checkout, definition

from rolltap.trainers.nemo_rl import result

ALGORITHMS = checkout().root / "nemo_rl/algorithms"


def advantages(prompts: list[int], rewards: list[float]) -> list[float]:
    name = "calculate_baseline_and_std_per_prompt"
    baseline = definition(ALGORITHMS / "utils.py", name, {"torch": torch})
    known = {"torch": torch, name: baseline}
    estimator = definition(ALGORITHMS / "advantage_estimator.py", "GRPOAdvantageEstimator", known)
    config = SimpleNamespace(use_leave_one_out_baseline=True, normalize_rewards=True)
    ids = torch.tensor(prompts).unsqueeze(1)
    made = estimator(config, None).compute_advantage(ids, torch.tensor(rewards), torch.ones(len(rewards), 1))
    return made[:, 0].tolist()


@cases(OTHERS)
def test_the_advantages_of_a_group(rewards: list[float], right: list[float]) -> None:
    assert advantages([7] * len(rewards), rewards) == pytest.approx(right, abs=1e-3)


def test_groups_of_different_sizes_stay_apart() -> None:
    assert advantages([7, 7, 7, 8, 8], [1.0, 1.0, 1.0, 1.0, 0.0]) == pytest.approx([0, 0, 0, 1, -1], abs=1e-3)


def test_it_trains_the_captured_tokens(capture: Capture) -> None:
    made = [result(line) for line in capture.lines("nemo-rl", "--failed", "mask", "--on-fork", "longest")]
    function = "add_grpo_token_loss_masks_and_generation_logprobs"
    # Our results have no routed experts, so there are none to fill in.
    known = {"torch": torch, "cast": cast, "backfill_missing_routed_experts": lambda logs: None}
    add = definition(ALGORITHMS / "grpo.py", function, known)
    add([one["message_log"] for one in made])
    for index, one in enumerate(made):
        row = longest(capture.of(index))
        mask = row["loss_mask"] if row["reward_valid"] else [0] * len(row["token_ids"])
        assert torch.cat([message["token_loss_mask"] for message in one["message_log"]]).tolist() == mask
        logprobs = torch.cat([message["generation_logprobs"] for message in one["message_log"]]).numpy()
        assert np.array_equal(logprobs, np.asarray(row["logprobs"], np.float32) * np.asarray(mask, np.float32))


def test_the_advantages_of_a_job_are_those_of_its_sound_trials(job: Job) -> None:
    lines = job.lines("nemo-rl")
    # NeMo-RL finds the groups by the prompts.
    prompts = [tuple(line["message_log"][0]["token_ids"]) for line in lines]
    numbers = [sorted(set(prompts)).index(prompt) for prompt in prompts]
    made = advantages(numbers, [line["full_result"]["reward"] for line in lines])
    of_trained = {
        (line["group_id"], line["sample_index"]): advantage
        for line, advantage in zip(lines, made, strict=True)
        if line["loss_multiplier"] == 1.0
    }
    assert of_trained == pytest.approx(expected(lambda rewards: advantages([7] * len(rewards), rewards)), abs=1e-5)
