"""Tests with SkyRL's own validation, merging and advantages of step-wise output."""

from __future__ import annotations

import asyncio

import numpy as np
import own_code.skyrl
import pytest
from conftest import Capture, two_turns

from skyrl.train.generators.base import GeneratorOutput, TrajectoryID
from skyrl.train.generators.utils import merge_stepwise_output
from skyrl.train.utils.trainer_utils import validate_generator_output

from rolltap import Client, RolltapError
from rolltap.trainers.skyrl import Generator, generator_output


def test_lines_are_generator_output(capture: Capture) -> None:
    made = generator_output(capture.lines("skyrl"))
    validate_generator_output(2, made, step_wise=True)
    # The failed trial is left out of its group.
    rows = capture.trained
    assert len(made["response_ids"]) == len(rows) == 3
    for step, row in enumerate(rows):
        start = row["prompt_len"]
        assert made["prompt_token_ids"][step] + made["response_ids"][step] == row["token_ids"]
        assert len(made["prompt_token_ids"][step]) == start
        assert made["loss_masks"][step] == row["loss_mask"][start:]
        captured = np.asarray(row["logprobs"][start:], np.float32)
        assert np.array_equal(np.asarray(made["rollout_logprobs"][step], np.float32), captured)
        assert made["trajectory_ids"][step] == TrajectoryID(capture.group_id, row["sample_index"])
    assert made["is_last_step"] == [True, False, True]
    assert made["rewards"] == [1.0, 0.0, 0.0]


def advantages(made: GeneratorOutput) -> list[set[float]]:
    """Returns the advantages that SkyRL's own trainer gives the tokens in a loss, for each step."""
    batch = own_code.skyrl.with_advantages(made, group_size=3)
    steps = zip(batch["advantages"], batch["loss_mask"], strict=True)
    return [{round(value.item(), 4) for value in values[mask.bool()]} for values, mask in steps]


def test_skyrl_compares_trials_not_branches(capture: Capture) -> None:
    made = generator_output(capture.lines("skyrl"))
    # The two trials have 1 and 0. Three branches would have other statistics.
    assert advantages(made) == [{0.7071}, {-0.7071}, {-0.7071}]
    without = generator_output(capture.lines("skyrl"))
    without["is_last_step"] = [True] * 3
    assert advantages(without) != [{0.7071}, {-0.7071}, {-0.7071}], "what is shown is that of is_last_step"


def by_turns(rows) -> dict:
    """Returns a trial's calls in the form of SkyRL's own agents: each call has its whole prompt."""
    calls = [(row, call) for row in rows for call in row["calls"]]
    ids = TrajectoryID("x", 0)
    return {
        "prompt_token_ids": [row["token_ids"][: call["start"]] for row, call in calls],
        "response_ids": [row["token_ids"][call["start"] : call["end"]] for row, call in calls],
        "rewards": [1.0] * len(calls),
        "loss_masks": [[1] * (call["end"] - call["start"]) for _, call in calls],
        "stop_reasons": [call["finish_reason"] for _, call in calls],
        "rollout_logprobs": [row["logprobs"][call["start"] : call["end"]] for row, call in calls],
        "trajectory_ids": [ids] * len(calls),
        "is_last_step": [place == len(calls) - 1 for place in range(len(calls))],
        "rollout_metrics": None,
    }


def test_skyrls_own_merge_makes_a_branch_of_its_calls(capture: Capture) -> None:
    (row,) = capture.of(0)
    merged = merge_stepwise_output(by_turns([row]))
    assert merged["prompt_token_ids"] == [row["token_ids"][: row["prompt_len"]]]
    assert merged["response_ids"] == [row["token_ids"][row["prompt_len"] :]]
    assert merged["loss_masks"] == [row["loss_mask"][row["prompt_len"] :]]
    assert merged["rollout_logprobs"] == [row["logprobs"][row["prompt_len"] :]]


def generate(admin: str, agent, instances: list[str]) -> dict:
    batch = {
        "prompts": [[{"role": "user", "content": "Open it."}] for _ in instances],
        "env_classes": ["folder"] * len(instances),
        "env_extras": [{"place": place} for place in range(len(instances))],
        "sampling_params": {"temperature": 0.5, "logprobs": 1, "max_tokens": 1, "top_k": None},
        "trajectory_ids": [TrajectoryID(name, instances[:at].count(name)) for at, name in enumerate(instances)],
        "batch_metadata": None,
    }
    return asyncio.run(Generator(agent, admin).generate(batch))


def test_the_generator_runs_agents(admin: str, client: Client) -> None:
    async def agent(trial, task):
        place = task["env_extras"]["place"]
        await asyncio.to_thread(two_turns, trial, "Open it.", *["Leave it."][: place % 2])
        if place == 2:
            raise TimeoutError
        return float(place)

    seen = []

    async def watched(trial, task):
        seen.append(trial.trial_id)
        return await agent(trial, task)

    made = generate(admin, watched, ["a", "a", "b", "b"])
    calls = [call for name in seen for row in client.rollout(name) for call in row["calls"]]
    # The agent's calls get SkyRL's temperature, but not `max_tokens`, which is a limit for an engine.
    assert {call["temperature"] for call in calls} == {0.5} and max(call["end"] - call["start"] for call in calls) > 1
    validate_generator_output(4, made, step_wise=True)
    # One of two trajectories of b failed. SkyRL would train the other on its raw reward, so that b only keeps its place.
    assert [name.to_string() for name in made["trajectory_ids"]] == ["a_0", "a_1", "a_1", "b_0"]
    assert made["rewards"][:3] == [0.0, 1.0, 1.0]
    assert [any(mask) for mask in made["loss_masks"]] == [True, True, True, False]
    assert made["is_last_step"] == [True, False, True, True]


def test_a_trial_that_sampled_nothing_does_not_end_the_batch(admin: str) -> None:
    async def agent(trial, task):
        if task["env_extras"]["place"] == 1:
            raise ConnectionError
        if task["env_extras"]["place"] > 1:
            await asyncio.to_thread(two_turns, trial, "Open it.")
        return 0.0 if task["env_extras"]["place"] == 0 else 1.0

    made = generate(admin, agent, ["a", "a", "a", "a"])
    validate_generator_output(4, made, step_wise=True)
    # The first sampled nothing and counts with its reward of 0. The second failed and is left out.
    assert [name.repetition_id for name in made["trajectory_ids"]] == [0, 2, 3]
    assert [any(mask) for mask in made["loss_masks"]] == [False, True, True]
    assert made["rewards"] == [0.0, 1.0, 1.0]
    assert made["stop_reasons"][0] == "nothing_sampled"


def test_a_refused_trial_lets_the_others_end(admin: str, client: Client) -> None:
    begun: list[str] = []

    async def agent(trial, task):
        begun.append(trial.trial_id)
        await asyncio.to_thread(two_turns, trial, "Open it.")
        return 1.0

    with pytest.raises(RolltapError):
        generate(admin, agent, ["a", ""])
    (name,) = begun
    assert client.rollout(name)[0]["reward"] == 1.0
