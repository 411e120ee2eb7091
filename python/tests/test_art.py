"""Tests with ART's own trajectories and its own tokenization of groups, on which it trains."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from conftest import Capture, OneTrial, two_turns
from own_code.art import imported_adapter, tokenized

from rolltap import AsyncClient


@pytest.fixture(scope="module")
def adapter() -> Any:
    return imported_adapter()


def test_art_trains_what_was_captured(adapter: Any, capture: Capture) -> None:
    groups = adapter.trajectory_groups(capture.lines("art"))
    assert [[trajectory.reward for trajectory in group] for group in groups] == [[1.0, 0.0]]
    results = tokenized(groups)
    # ART divides by the standard deviation of the population, which is 0.5 for 1 and 0.
    for result, row, advantage in zip(results, capture.trained, [1.0, -1.0, -1.0], strict=True):
        assert result.token_ids == row["token_ids"]
        assert result.assistant_mask == row["loss_mask"]
        mask = np.array(row["loss_mask"]) == 1
        captured = np.asarray(row["logprobs"], np.float32)
        assert np.array_equal(np.asarray(result.logprobs, np.float32)[mask], captured[mask])
        assert result.advantage == pytest.approx(advantage, abs=1e-5)
    # The tokens of a trajectory weigh 1 together, with any number of branches.
    weights = {}
    for result in results:
        name = result.trajectory.metadata["trial_id"]
        weights[name] = weights.get(name, 0.0) + result.weight * sum(result.assistant_mask)
    assert list(weights.values()) == pytest.approx([1.0, 1.0], abs=1e-4)


def test_a_trajectory_is_identified(adapter: Any, capture: Capture) -> None:
    first, forked = (adapter.trajectory(line) for line in capture.lines("art"))
    assert (first.initial_policy_version, first.final_policy_version) == (7, 7)
    assert first.metrics == {"reward": 1.0, "style": 0.5}
    assert forked.metadata["trial_id"] == capture.of(1)[0]["trial_id"]
    assert forked.metadata["group_id"] == capture.group_id


def test_a_judged_trajectory_without_a_choice_is_in_the_baseline(adapter: Any, capture: Capture) -> None:
    lines = capture.lines("art")
    lines.append({**lines[0], "choices": [], "reward": 0.5})
    advantages = {result.advantage for result in tokenized(adapter.trajectory_groups(lines))}
    one = 0.5 / ((0.5 / 3) ** 0.5 + 1e-6)
    assert sorted(advantages) == pytest.approx([-one, one])


def live(adapter: Any, admin: str, outcome: object) -> Any:
    async def agent(trial, task):
        await asyncio.to_thread(two_turns, trial, task["question"], "Leave it.")
        return outcome

    async def run() -> Any:
        async with AsyncClient(admin) as client:
            return await adapter.rollout(client, agent, {"question": "Open it."}, task_id="art")

    return asyncio.run(run())


def test_the_rollout_runs_an_agent(adapter: Any, admin: str, capture: Capture) -> None:
    import art

    made = live(adapter, admin, {"reward": 0.5, "style": 1.0})
    assert (made.reward, made.metrics) == (0.5, {"reward": 0.5, "style": 1.0})
    other = live(adapter, admin, 1.0)
    results = tokenized([art.TrajectoryGroup([made, other])])
    assert len(results) == 4
    for first, fork in (results[:2], results[2:]):
        # The answer that both branches share is trained in the first one.
        assert sum(first.assistant_mask) > sum(fork.assistant_mask) > 0
        assert all(value <= 0 for value, mask in zip(first.logprobs, first.assistant_mask) if mask)


def test_a_live_trajectory_is_the_exported_one(adapter: Any, ends_masked: OneTrial) -> None:
    line = adapter._line(ends_masked.prepared())
    assert len(line["choices"]) == 1, "the last answer is not trained"
    assert line == ends_masked.line("art")


def test_a_trial_without_a_reward_is_an_exception_of_its_group(adapter: Any, admin: str) -> None:
    import art

    async def agent(trial, task):
        await asyncio.to_thread(two_turns, trial, "Open it.")
        if task["reward"] is None:
            raise TimeoutError
        return task["reward"]

    async def run() -> art.TrajectoryGroup:
        async with AsyncClient(admin) as client:
            runs = [adapter.rollout(client, agent, {"reward": one}, task_id="art") for one in (1.0, None, 0.0)]
            return await art.trajectory_group(runs, return_exceptions=True)

    group = asyncio.run(run())
    assert [made.reward for made in group] == [1.0, 0.0]
    (failure,) = group.exceptions
    assert "RuntimeError" in failure.type and "TimeoutError" in failure.message
    assert [result.advantage for result in tokenized([group])] == pytest.approx([1.0, -1.0], abs=1e-5)
