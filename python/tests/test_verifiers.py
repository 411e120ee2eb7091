"""Tests with verifiers' own Trace: the branches of its graph, and the exact floats of its records."""

from __future__ import annotations

import asyncio
import sys
from itertools import compress
from types import ModuleType

import numpy as np
import pytest
from conftest import Capture, OneTrial, two_turns
from verifiers.v1.agent import Agent
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.task import Task, TaskData
from verifiers.v1.trace import Trace, WireTrace
from verifiers.v1.utils.decorators import reward

from rolltap.trainers.verifiers import trace
from rolltap.trainers.verifiers_run import _nodes as run_nodes


def test_a_line_is_a_trace_whose_branches_are_ours(capture: Capture) -> None:
    for index, line in enumerate(capture.lines("verifiers")):
        made = trace(line)
        rows = capture.of(index)
        assert made.ok is rows[0]["reward_valid"]
        assert len(made.branches) == len(rows)
        for branch, row in zip(made.branches, rows):
            assert branch.token_ids == row["token_ids"]
            # A shared answer is one node, which is in the mask of each branch. A trainer trains it in the first branch.
            mask = row["trainable_mask"] if row["reward_valid"] else [0] * len(row["token_ids"])
            assert [int(trained) for trained in branch.sampled_mask] == mask
            captured = np.asarray(row["logprobs"], np.float32) * np.asarray(mask, np.float32)
            assert np.array_equal(np.asarray(branch.logprobs, np.float32), captured)
        if made.ok:
            assert made.reward == rows[0]["reward"]


def test_the_wire_and_an_exact_record_bring_back_the_same(capture: Capture) -> None:
    for line in capture.lines("verifiers"):
        made = trace(line)
        again = WireTrace.model_validate(made.to_record(float_decimals=None))
        assert [node.logprobs for node in again.nodes] == [node.logprobs for node in made.nodes]
        assert [node.token_ids for node in again.nodes] == [node.token_ids for node in made.nodes]


class Folder(Task[TaskData]):
    """Is a task whose reward depends on the number of captured turns."""

    @reward
    async def two_of_three(self, trace: Trace) -> float:
        return 2.0 / trace.num_turns


async def forks(trial, task) -> None:
    await asyncio.to_thread(two_turns, trial, task["prompt"], "Leave it.")


def test_verifiers_own_agent_runs_the_harness(admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("rolltap_test_agent")
    module.agent = forks
    monkeypatch.setitem(sys.modules, "rolltap_test_agent", module)
    harness = {"id": "rolltap_harness", "agent": "rolltap_test_agent:agent", "url": admin}
    config = AgentConfig.model_validate({"model": "sim", "harness": harness, "runtime": {"type": "subprocess"}})

    async def run() -> Trace:
        return await Agent(config).run(Folder(TaskData(idx=0, name="folder", prompt="Open it.")))

    made = asyncio.run(run())
    assert made.ok, made.errors
    assert made.reward == pytest.approx(2 / 3)
    assert len(made.branches) == 2
    first, second = made.branches
    shared = sum(len(node.token_ids) for node in made.nodes[:2])
    assert first.token_ids[:shared] == second.token_ids[:shared] != []
    for branch in made.branches:
        logprobs = list(compress(branch.logprobs, branch.sampled_mask))
        assert len(branch.token_ids) == len(branch.sampled_mask) == len(branch.logprobs)
        assert sum(branch.sampled_mask) > sum(made.nodes[1].mask) > 0
        assert all(value < 0 for value in logprobs)


def test_a_run_has_its_nodes_from_the_export(ends_masked: OneTrial) -> None:
    (row,) = ends_masked.trial["rows"]
    nodes = asyncio.run(run_nodes(ends_masked.program, ends_masked.folder / "rollouts.jsonl", 3))
    assert [node.parent for node in nodes] == [None, 3, 4, 5], "numbered after the three that are there"
    assert [id for node in nodes for id in node.token_ids] == row["token_ids"]
    assert [any(node.mask) for node in nodes] == [False, True, False, False], "the last answer was constrained"
