"""Tests AReaL's tensors by its executor's own check, and its workflow.

AReaL's package is installed alone (scripts/testbed.d/trainers-alone.txt). Modules that need more are not imported:
their functions are run alone.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import Capture, OneTrial, chat, masked_end, two_turns
from trainer_code import definition, without_init

from rolltap import Prepare

AREAL = without_init("areal")
from rolltap.trainers.areal import Workflow, _line, tensors  # noqa: E402

# No value of a test is an interaction with token logprobs, the other result that a workflow may have.
_known = {"torch": torch, "InteractionWithTokenLogpReward": type("Interaction", (), {})}
_check = definition(AREAL / "infra/workflow_executor.py", "check_trajectory_format", _known)


def check_trajectory_format(data: dict) -> None:
    """Runs AReaL's own check of the result of a workflow, which must not even warn."""
    complaints: list[str] = []
    logger = SimpleNamespace(warning=complaints.append, info=complaints.append)
    assert _check(data, logger=logger) and complaints == []


def test_a_line_is_the_tensors_of_an_episode(capture: Capture) -> None:
    lines = capture.lines("areal", "--advantage", "grpo", "--on-fork", "all")
    one = 0.5 / (0.5**0.5 + 1e-6)
    for index, (line, weight) in enumerate(zip(lines, [one, -one, 0.0], strict=True)):
        made = tensors(line)
        check_trajectory_format(made)
        rows = capture.of(index)
        assert made["rewards"].tolist() == np.full(len(rows), weight, np.float32).tolist()
        for at, row in enumerate(rows):
            length = len(row["token_ids"])
            assert made["attention_mask"][at].sum().item() == length
            assert made["input_ids"][at, :length].tolist() == row["token_ids"]
            mask = row["loss_mask"] if row["reward_valid"] else [0] * length
            assert made["loss_mask"][at].sum().item() == sum(mask)
            assert made["loss_mask"][at, :length].tolist() == mask
            captured = np.asarray(row["logprobs"], np.float32)
            assert made["logprobs"][at, :length].numpy().tobytes() == captured.tobytes()
            sampled = [7 if version >= 0 else -1 for version in row["token_version"]]
            assert made["versions"][at].tolist() == sampled + [-1] * (made["versions"].shape[1] - length)


def test_the_workflow_runs_an_agent(admin: str, client, capture: Capture) -> None:
    async def agent(trial, task):
        await asyncio.to_thread(two_turns, trial, task["question"], "Leave it.")
        return task["reward"]

    workflow = Workflow(agent, admin)
    made = asyncio.run(workflow.arun_episode(None, {"question": "Open it.", "reward": 0.5}))
    check_trajectory_format(made)
    assert made["rewards"].tolist() == [0.5]
    mask = made["loss_mask"] == 1
    assert mask.sum() > 0 and (made["logprobs"][mask] < 0).all()
    assert ((made["versions"] == 7) == mask).all()
    assert asyncio.run(workflow.arun_episode(None, {"question": "Open it.", "reward": None})) is None


def test_the_workflow_ends_with_what_is_trained_as_the_export_does(admin: str, ends_masked: OneTrial) -> None:
    async def agent(trial, task):
        await asyncio.to_thread(masked_end, trial)
        return 1.0

    made = asyncio.run(Workflow(agent, admin).arun_episode(None, {}))
    # AReaL puts the reward on the last token, and ignores the reward if that token is masked.
    assert made["loss_mask"][0, -1] == 1
    exported = tensors(ends_masked.line("areal", "--advantage", "none"))
    live = tensors(_line(ends_masked.prepared(Prepare(on_fork="longest"))))
    assert {name: tensor.tolist() for name, tensor in live.items()} == {
        name: tensor.tolist() for name, tensor in exported.items()
    }


@pytest.mark.parametrize("calls", [0, 1])
def test_a_judged_episode_that_trains_nothing_counts_in_the_baseline(admin: str, calls: int) -> None:
    async def agent(trial, task):
        asked = {"messages": [{"role": "user", "content": "List it."}], "response_format": {"type": "json_object"}}
        for _ in range(calls):
            await asyncio.to_thread(chat, trial, **asked)
        return 1.0

    made = asyncio.run(Workflow(agent, admin).arun_episode(None, {}))
    check_trajectory_format(made)
    assert made["rewards"].tolist() == [1.0] and made["loss_mask"].sum() == 0


def test_weights_whose_name_is_no_number_are_counted(admin: str, unnumbered: int) -> None:
    async def agent(trial, task):
        await asyncio.to_thread(two_turns, trial, "Open it.")
        return 1.0

    made = asyncio.run(Workflow(agent, admin).arun_episode(None, {}))
    mask = made["loss_mask"] == 1
    assert mask.any() and (made["versions"][mask] == unnumbered).all() and (made["versions"][~mask] == -1).all()
