"""Tests how AReaL itself compares rewards, and what it makes of an advantage in the place of a reward."""

from __future__ import annotations

import pytest
import torch
from conftest import Capture
from groups import SAMPLE, cases
from own_code.areal import advantages, normalization

from rolltap.trainers.areal import tensors


@cases(SAMPLE)
def test_the_advantages_of_a_group(rewards: list[float], right: list[float]) -> None:
    made = normalization(len(rewards))(torch.tensor(rewards))
    assert made.tolist() == pytest.approx(right, abs=1e-3)


def test_a_group_of_another_size_shifts_the_next() -> None:
    # Groups are slices of `group_size` rows, so a group of three takes a row of the next one.
    made = normalization(4)(torch.tensor([1.0] * 3 + [0.0] * 4))
    assert made[:4].tolist() == pytest.approx([0.5, 0.5, 0.5, -1.5], abs=1e-3)


def test_an_advantage_in_the_place_of_a_reward_reaches_each_trained_token(capture: Capture) -> None:
    for line in capture.lines("areal", "--advantage", "grpo", "--on-fork", "all"):
        made = tensors(line)
        computed = advantages(made, kl_ctl=0.0)
        for at, advantage in enumerate(made["rewards"].tolist()):
            trained = made["loss_mask"][at, 1:] == 1
            assert computed[at, :-1][trained].tolist() == pytest.approx([advantage] * int(trained.sum()))


def test_the_default_penalty_without_a_reference_model_changes_advantages() -> None:
    data = {
        "input_ids": torch.ones(1, 5, dtype=torch.int32),
        "attention_mask": torch.ones(1, 5, dtype=torch.bool),
        "loss_mask": torch.tensor([[0, 0, 1, 1, 1]]),
        "logprobs": torch.tensor([[0.0, 0.0, -1.0, -2.0, -3.0]]),
        "rewards": torch.tensor([0.5]),
    }
    # The penalty is a tenth of the logprobs, since those of a missing reference model are 0.
    assert advantages(data, kl_ctl=0.1)[0, 1:4].tolist() == pytest.approx([1.1, 1.0, 0.8])
