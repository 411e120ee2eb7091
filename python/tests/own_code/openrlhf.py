"""Runs OpenRLHF's own code, with stubs of what its modules import and no test calls."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

ENGINE = {"vllm": ["SamplingParams"], "vllm.inputs": ["TokensPrompt"], "vllm.utils": ["random_uuid"]}
"""The modules of the engine, each with the members that OpenRLHF imports."""

WORKERS: dict[str, list[str]] = {
    "deepspeed": [],
    "flash_attn": [],
    "flash_attn.bert_padding": ["index_first_axis", "pad_input", "rearrange", "unpad_input"],
    "flash_attn.utils": [],
    "flash_attn.utils.distributed": ["all_gather"],
    "openrlhf.models.actor": ["Actor"],
    "openrlhf.trainer.ray": [],
    "openrlhf.trainer.ray.launcher": ["RayActorGroup"],
}
"""The modules of CUDA kernels, and those of OpenRLHF that use them, each with the imported members."""


def imported(name: str, stubs: dict[str, list[str]]) -> ModuleType:
    """Returns this module of OpenRLHF. The stubs only exist while the module is imported."""
    with pytest.MonkeyPatch.context() as patch:
        for stub, members in stubs.items():
            module = ModuleType(stub)
            for member in members:
                setattr(module, member, object)
            patch.setitem(sys.modules, stub, module)
        return importlib.import_module(name)


def with_advantages(experiences: list[Any], estimator: str, group_size: int) -> list[Any]:
    """Returns the experiences with advantages. Each `group_size` consecutive experiences are a group."""
    maker = imported("openrlhf.trainer.ppo_utils.experience_maker", ENGINE | WORKERS).RemoteExperienceMaker
    advantage = SimpleNamespace(estimator=estimator, gamma=1.0, lambd=1.0, no_std_norm=True)
    reward = SimpleNamespace(clip_range=(-10, 10), overlong_buffer_len=None, stop_properly_penalty_coef=None)
    args = SimpleNamespace(
        algo=SimpleNamespace(advantage=advantage),
        rollout=SimpleNamespace(n_samples_per_prompt=group_size),
        reward=reward,
    )
    made = object.__new__(maker)
    made.strategy = SimpleNamespace(args=args)
    made.args, made.advantage_estimator, made.kl_ctl = args, estimator, SimpleNamespace(value=0.0)
    return made.compute_advantages_and_returns(experiences)


def experience(index: int, reward: float, mask: list[int]) -> Any:
    """Returns an Experience of one response. `mask` has the loss mask of the tokens after the first."""
    from openrlhf.trainer.ppo_utils.experience import Experience

    actions = torch.tensor([mask])
    return Experience(
        index=[index],
        rewards=torch.tensor([reward]),
        action_mask=actions,
        kl=torch.zeros(actions.shape),
        response_length=actions.sum(-1),
        truncated=torch.tensor([False]),
        info={},
    )


def advantages(rewards: list[float], estimator: str) -> list[float]:
    """Returns the advantages of one group with these rewards. Each response has one token."""
    experiences = [experience(at, reward, [1]) for at, reward in enumerate(rewards)]
    return [one.advantages.item() for one in with_advantages(experiences, estimator, len(rewards))]
