"""Tests verl's AgentLoopOutput, its tensors, and verl's own advantage over several outputs of a sample."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import own_code.verl
import pytest
from conftest import Capture, OneTrial, two_turns
from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from rolltap.trainers.verl import AgentLoop, _line, outputs


def test_a_line_is_the_outputs_of_a_run(capture: Capture) -> None:
    lines = capture.lines("verl")
    assert [(line["uid"], line["session_id"]) for line in lines] == [(capture.group_id, index) for index in range(len(lines))]
    made = [output for line in lines for output in outputs(line)]
    rows = [row for row in capture.rows if row["sample_index"] < len(lines)]
    assert len(made) == len(rows)
    for row, output in zip(rows, made):
        start = row["prompt_len"]
        tensors = output.as_dict()
        assert tensors["prompts"].tolist() == row["token_ids"][:start]
        assert tensors["responses"].tolist() == row["token_ids"][start:]
        trained = row["loss_mask"][start:] if row["reward_valid"] else [0] * (len(row["token_ids"]) - start)
        assert tensors["response_mask"].tolist() == trained
        captured = np.asarray(row["logprobs"][start:], np.float32)
        assert tensors["rollout_log_probs"].numpy().tobytes() == captured.tobytes()
        expected = 0.5 if row["reward"] is None else row["reward"]
        assert tensors["rm_scores"].sum().item() == tensors["rm_scores"][-1].item() == expected
        assert tensors["extra_fields"]["min_global_steps"] == tensors["extra_fields"]["max_global_steps"] == 7


def test_verls_own_advantage_counts_a_forked_trial_once(capture: Capture) -> None:
    lines = capture.lines("verl")
    exported = own_code.verl.exported(lines)
    made = own_code.verl.with_advantages(exported, "grpo")
    rewards = np.array([line["outputs"][-1]["reward_score"] for line in lines])
    expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
    place = 0
    for line, advantage in zip(lines, expected):
        for output in outputs(line):
            mask = np.asarray(output.response_mask)
            given = made.batch["advantages"][place, : len(mask)].numpy()
            assert given == pytest.approx(mask * advantage, abs=1e-5)
            place += 1
    assert place == len(exported) > len(lines)


def loop(
    admin: str, agent, several: bool, prompt_length: int = 4096, response_length: int = 4096, **options
) -> AgentLoop:
    """Returns an agent loop without the set-up of its base class, which needs a model. `run` does not use it."""
    module = ModuleType("rolltap_test_agent")
    module.agent = agent
    sys.modules["rolltap_test_agent"] = module
    started = AgentLoopBase.__init__
    AgentLoopBase.__init__ = lambda self, *args, **kwargs: None
    try:
        made = AgentLoop(agent="rolltap_test_agent:agent", url=admin, several=several, **options)
    finally:
        AgentLoopBase.__init__ = started
        del sys.modules["rolltap_test_agent"]
    made.rollout_config = SimpleNamespace(prompt_length=prompt_length, response_length=response_length)
    return made


async def forks(trial, task):
    await asyncio.to_thread(two_turns, trial, "Open it.", task["raw_prompt"])
    return {"reward": 0.5, "style": 1.0}


def test_the_agent_loop_runs_an_agent(admin: str) -> None:
    sampling = {"temperature": 0.7, "logprobs": True}
    made = asyncio.run(loop(admin, forks, several=True).run(sampling, raw_prompt="Leave it.", uid="u"))
    assert len(made) == 2
    assert all(output.reward_score == 0.5 for output in made)
    assert made[-1].extra_fields["reward_extra_info"] == {"reward": 0.5, "style": 1.0}
    one = asyncio.run(loop(admin, forks, several=False).run(sampling, raw_prompt="Leave it.", uid="u"))
    assert one.response_mask[0] == one.response_mask[-1] == 1
    assert sum(one.response_mask) > sum(made[-1].response_mask)


def test_a_sample_without_a_reward_fails(admin: str) -> None:
    async def fails(trial, task):
        await asyncio.to_thread(two_turns, trial, "Open it.")
        raise TimeoutError

    with pytest.raises(RuntimeError, match="TimeoutError"):
        asyncio.run(loop(admin, fails, several=True).run({}, uid="u"))


def test_a_judged_sample_without_a_token_counts_and_trains_nothing(admin: str) -> None:
    async def silent(trial, task):
        return 0.25

    (made,) = asyncio.run(loop(admin, silent, several=True).run({}, uid="u", global_steps=3))
    assert (made.reward_score, made.response_mask) == (0.25, [0])
    assert (made.extra_fields["min_global_steps"], made.extra_fields["max_global_steps"]) == (3, 3)
    assert made.as_dict()["rm_scores"].sum().item() == 0.25


def test_the_agent_loop_keeps_to_verls_lengths(admin: str) -> None:
    whole = asyncio.run(loop(admin, forks, several=True).run({}, raw_prompt="Leave it.", uid="u"))
    longest = max(len(output.response_ids) for output in whole)
    prompt = len(whole[0].prompt_ids)
    made = asyncio.run(loop(admin, forks, True, prompt, 5).run({}, raw_prompt="Leave it.", uid="u"))
    # Five tokens are within the first answer, which only the first branch trains.
    (cut,) = made
    assert len(cut.response_ids) == 5 and cut.response_mask == [1] * 5 and longest > 5
    assert cut.extra_fields["rolltap_cut_tokens"] > 0 and cut.extra_fields["rolltap_left_out_branches"] == 1
    none = asyncio.run(loop(admin, forks, True, prompt - 1).run({}, raw_prompt="Leave it.", uid="u"))
    assert [sum(output.response_mask) for output in none] == [0], "no shorter prompt has the captured logprobs"
    assert none[0].extra_fields["rolltap_left_out_branches"] == 2 and none[0].reward_score == 0.5


def test_every_sample_has_the_same_names_of_rewards(admin: str, capture: Capture) -> None:
    names = ["reward", "style", "speed"]
    made = asyncio.run(loop(admin, forks, True, reward_names=names).run({}, raw_prompt="Leave it.", uid="u"))
    assert made[-1].extra_fields["reward_extra_info"] == {"reward": 0.5, "style": 1.0, "speed": None}
    # verl indexes every sample by the names of the first one. The failed trial has no reward of its own.
    lines = capture.lines("verl", "--failed", "mask")
    infos = [output["extra_fields"]["reward_extra_info"] for line in lines for output in line["outputs"]]
    assert {tuple(info) for info in infos} == {("reward", "style")} and infos[-1] == {"reward": None, "style": None}


def test_a_live_output_is_the_exported_one(ends_masked: OneTrial) -> None:
    (live,), (exported,) = outputs(_line(ends_masked.prepared())), outputs(ends_masked.line("verl"))
    assert live.response_mask[-1] == 1
    cut = {name: live.extra_fields.pop(f"rolltap_{name}") for name in ("cut_tokens", "left_out_branches")}
    assert cut == {"cut_tokens": 0, "left_out_branches": 0}
    assert live.model_dump() == exported.model_dump()


def test_weights_whose_name_is_no_number_are_counted(admin: str, unnumbered: int) -> None:
    made = asyncio.run(loop(admin, forks, several=True).run({}, raw_prompt="Leave it.", uid="u"))
    steps = [(one.extra_fields["min_global_steps"], one.extra_fields["max_global_steps"]) for one in made]
    assert steps == [(unnumbered, unnumbered)] * 2
