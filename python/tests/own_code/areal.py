"""Runs AReaL's own comparison of rewards, and its own advantages.

The modules need numba and servers, so the classes and functions are run alone.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
from trainer_code import definition, without_init

AREAL = without_init("areal")
NAMES = {"torch": torch, "np": np, "dist": torch.distributed}


def normalization(group_size: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the normalization of AReaL's GRPO examples: mean and deviation of the group."""
    config = SimpleNamespace(
        mean_level="group",
        mean_leave1out=False,
        std_level="group",
        std_unbiased=True,
        group_size=group_size,
        eps=1e-5,
    )
    return definition(AREAL / "utils/data.py", "Normalization", NAMES)(config)


def advantages(data: dict[str, torch.Tensor], kl_ctl: float) -> torch.Tensor:
    """Returns the advantages of the positions, each of which predicts the next token."""
    compute = definition(AREAL / "trainer/ppo/actor.py", "PPOActor._compute_advantages", NAMES)
    return compute(_actor(kl_ctl), {name: tensor.clone() for name, tensor in data.items()})["advantages"]


def _actor(kl_ctl: float) -> SimpleNamespace:
    """Returns the parts of `PPOActor` that compute advantages: GAE(1, 1) without normalization."""
    config = SimpleNamespace(overlong_reward_penalty=False, use_decoupled_loss=True, recompute_logprob=False)
    return SimpleNamespace(
        config=config,
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
