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


def actor(reward_norm) -> SimpleNamespace:
    """Returns the parts of `PPOActor` that compute advantages, without a KL penalty and with GAE(1, 1)."""
    return SimpleNamespace(
        config=SimpleNamespace(overlong_reward_penalty=False, use_decoupled_loss=True, recompute_logprob=False),
        reward_bias=0.0,
        reward_scaling=1.0,
        reward_clip=20.0,
        reward_norm=reward_norm,
        adv_norm=None,
        kl_ctl=0.0,
        kl_estimator=lambda old, reference: torch.zeros_like(old),
        mask_no_eos_with_zero=False,
        discount=1.0,
        gae_lambda=1.0,
    )


def test_an_advantage_in_the_place_of_a_reward_reaches_each_trained_token(capture: Capture) -> None:
    compute = definition(AREAL / "trainer/ppo/actor.py", "PPOActor._compute_advantages", NAMES)
    for line in capture.lines("areal", "--advantage", "grpo", "--on-fork", "all"):
        made = tensors(line)
        data = compute(actor(None), {name: tensor.clone() for name, tensor in made.items()})
        for at, advantage in enumerate(made["rewards"].tolist()):
            # AReaL shifts the mask to the position that predicts the token.
            trained = made["loss_mask"][at, 1:] == 1
            assert data["advantages"][at, :-1][trained].tolist() == pytest.approx([advantage] * int(trained.sum()))
