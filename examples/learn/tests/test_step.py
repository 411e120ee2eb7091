"""Tests what a step changes and what it rejects."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import corruptions
import pytest
import step
import torch
from rollouts import Sample, discounted
from step import NotFinite, captured, logprobs


def improve(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, samples: list[Sample], penalty: float = 0.0
) -> list[torch.Tensor]:
    """Makes a step of a policy that is still the policy at the start."""
    with torch.no_grad():
        start = logprobs(model, samples)
    return step.improve(model, optimizer, samples, start, penalty)


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def test_what_was_rewarded_becomes_likelier(model: torch.nn.Module, samples: list[Sample]) -> None:
    before = improve(model, optimizer_of(model), samples)
    after = [new.detach() for new in logprobs(model, samples)]
    for old, new, sample in zip(before, after, samples):
        assert (new.sum() > old.sum()) == (sample.advantage > 0)


def test_the_penalty_draws_the_policy_back_to_where_it_began(model: torch.nn.Module, samples: list[Sample]) -> None:
    with torch.no_grad():
        start = logprobs(model, samples)
    optimizer = optimizer_of(model)
    for _ in range(3):
        step.improve(model, optimizer, samples, start, 0.0)

    def divergence() -> float:
        with torch.no_grad():
            apart = torch.cat(start) - torch.cat(logprobs(model, samples))
        return float((apart.exp() - 1 - apart).mean())

    gone = divergence()
    unweighed = corruptions.of_samples("zero", samples)
    for _ in range(10):
        step.improve(model, optimizer, unweighed, start, 1.0)
    assert gone > 1e-4 and divergence() < gone / 2


def test_logprobs_before_the_update_are_those_that_were_captured(model: torch.nn.Module, samples: list[Sample]) -> None:
    for old, sample in zip(improve(model, optimizer_of(model), samples), samples):
        assert torch.allclose(old, captured(sample), atol=1e-5)


def test_padding_and_order_change_nothing(model: torch.nn.Module, samples: list[Sample]) -> None:
    with torch.no_grad():
        together = logprobs(model, samples)
        for sample, of_all in zip(samples, together):
            assert torch.allclose(logprobs(model, [sample])[0], of_all, atol=1e-5)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_gradient_that_is_no_number_leaves_the_weights(
    model: torch.nn.Module, samples: list[Sample], bad: float
) -> None:
    spoilt = [replace(samples[0], logprobs=[bad] * len(samples[0].logprobs)), *samples[1:]]
    before = copy.deepcopy(model.state_dict())
    optimizer = optimizer_of(model)
    with pytest.raises(NotFinite):
        improve(model, optimizer, spoilt)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    # Sound samples train afterwards.
    improve(model, optimizer, samples)
    assert not all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())


def test_without_advantages_nothing_is_learned(model: torch.nn.Module, samples: list[Sample]) -> None:
    before = copy.deepcopy(model.state_dict())
    improve(model, optimizer_of(model), corruptions.of_samples("zero", samples))
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())


@pytest.mark.parametrize(("kind", "is_seen"), [("none", False), ("zero", False), ("shifted", True), ("mask", True)])
def test_recomputing_sees_what_is_damaged(
    model: torch.nn.Module, samples: list[Sample], kind: str, is_seen: bool
) -> None:
    damaged = corruptions.of_samples(kind, samples)
    with torch.no_grad():
        apart = max(float((new - captured(one)).abs().max()) for new, one in zip(logprobs(model, damaged), damaged))
    assert (apart > 1e-3) == is_seen


def test_permuted_worths_stay_in_their_group_and_are_as_many() -> None:
    """Regression: only rewards were permuted, before the discount for a trial's own turns. The policy learned to
    make short trials."""
    rows: list[Any] = [
        {
            "trial_id": f"{group}{at}",
            "group_id": group,
            "reward": float(at == 0),
            "rewards": {},
            "reward_valid": True,
            "failure_cause": None,
            "calls": [{"call_id": f"{branch}{turn}"} for turn in range(at + 1)],
        }
        for group in "ab"
        for at in range(8)
        for branch in "xy"
    ]
    worth = discounted(rows, 0.5)
    seen = set()
    for seed in range(20):
        made = corruptions.of_rows("permuted", worth, seed)
        assert [one["trial_id"] for one in made] == [one["trial_id"] for one in rows]
        for branches in zip(made[::2], made[1::2]):
            assert branches[0]["reward"] == branches[1]["reward"]
        for group in "ab":
            assert sorted(one["reward"] or 0.0 for one in made if one["group_id"] == group) == [0.0] * 14 + [0.25] * 2
        seen.add(tuple(one["reward"] for one in made))
    assert len(seen) > 5
