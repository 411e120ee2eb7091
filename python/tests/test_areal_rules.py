"""Tests how AReaL itself compares rewards, and what it makes of an advantage in the place of a reward.

The modules need numba and servers, so the classes and functions are run alone.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import Capture
from groups import SAMPLE, cases
from trainer_code import definition, without_init

AREAL = without_init("areal")
from rolltap.trainers.areal import tensors  # noqa: E402

NAMES = {"torch": torch, "np": np, "dist": torch.distributed}


def normalization(group_size: int):
    """Returns the normalization of AReaL's GRPO examples: mean and deviation of the group."""
    config = SimpleNamespace(
        mean_level="group", mean_leave1out=False, std_level="group", std_unbiased=True, group_size=group_size, eps=1e-5
    )
    return definition(AREAL / "utils/data.py", "Normalization", NAMES)(config)


@cases(SAMPLE)
def test_the_advantages_of_a_group(rewards: list[float], right: list[float]) -> None:
    made = normalization(len(rewards))(torch.tensor(rewards))
    assert made.tolist() == pytest.approx(right, abs=1e-3)


def test_a_group_of_another_size_shifts_the_next() -> None:
    # Groups are slices of `group_size` rows, so a group of three takes a row of the next one.
    made = normalization(4)(torch.tensor([1.0] * 3 + [0.0] * 4))
    assert made[:4].tolist() == pytest.approx([0.5, 0.5, 0.5, -1.5], abs=1e-3)


def actor(kl_ctl: float) -> SimpleNamespace:
    """Returns the parts of `PPOActor` that compute advantages, with GAE(1, 1) and without any normalization."""
    return SimpleNamespace(
        config=SimpleNamespace(overlong_reward_penalty=False, use_decoupled_loss=True, recompute_logprob=False),
        reward_bias=0.0,
        reward_scaling=1.0,
        reward_clip=20.0,
        reward_norm=None,
        adv_norm=None,
        kl_ctl=kl_ctl,
        kl_estimator=definition(AREAL / "utils/data.py", "KLEstimator", NAMES)("k1"),
        mask_no_eos_with_zero=False,
        discount=1.0,
        gae_lambda=1.0,
    )


def advantages(data: dict[str, torch.Tensor], kl_ctl: float) -> torch.Tensor:
    """Returns the advantages of the positions, each of which predicts the next token."""
    compute = definition(AREAL / "trainer/ppo/actor.py", "PPOActor._compute_advantages", NAMES)
    return compute(actor(kl_ctl), {name: tensor.clone() for name, tensor in data.items()})["advantages"]


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
