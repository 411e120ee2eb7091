"""Tests with verifiers' own Trace: the branches of its graph, and the exact floats of its records."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from itertools import compress
from pathlib import Path
from types import ModuleType

import numpy as np
import pydantic
import pytest
from conftest import Capture, OneTrial, limit, two_turns
from verifiers.v1.agent import Agent
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.task import Task, TaskData
from verifiers.v1.trace import Trace, WireTrace
from verifiers.v1.utils.decorators import reward
from verifiers.v1.utils.loaders import default_harness_id, harness_config_type, taskset_class

from rolltap.trainers.verifiers import AgentMode, trace
from rolltap.trainers.verifiers_run import RunMode
from rolltap.trainers.verifiers_run import _nodes as run_nodes
from rolltap.trainers.verifiers_terminal import HarborTaskset, HarborTasksetConfig, TerminalMode


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


def test_one_id_names_the_taskset_and_the_harness_of_all_modes() -> None:
    name = "rolltap-verifiers"  # As verifiers' own ids, with the hyphen that its loader replaces.
    assert taskset_class(name) is HarborTaskset and default_harness_id(name) == name
    config = harness_config_type(name)

    def mode(**fields: object) -> object:
        return config.model_validate({"id": name, "mode": fields}).mode

    assert config.model_validate({"id": name}).mode == TerminalMode()
    assert mode(server="http://127.0.0.1:9") == TerminalMode(server="http://127.0.0.1:9")
    assert mode(type="run", max_turns=3) == RunMode(max_turns=3)
    assert mode(type="agent", agent="module:agent") == AgentMode(agent="module:agent")
    with pytest.raises(pydantic.ValidationError, match="max_turns"):
        mode(type="terminal", max_turns=3)
    with pytest.raises(pydantic.ValidationError, match="agent"):
        mode(type="agent")


def test_the_command_line_takes_the_fields_of_a_mode(tmp_path: Path) -> None:
    flags = {
        "--env.taskset.tasks_dir": "tasks",
        "--env.agent.harness.id": "rolltap_verifiers",
        "--env.agent.harness.mode.type": "agent",
        "--env.agent.harness.mode.agent": "module:agent",
        "--env.agent.runtime.type": "subprocess",
        "--model": "sim",
        "--run.dir": "run",
    }
    words = [word for flag in flags.items() for word in flag]
    command = [str(Path(sys.executable).parent / "vf-eval"), "rolltap_verifiers", *words, "--no-rich", "--dry-run"]
    # The tests' own path may be relative.
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=limit(60)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    env = json.loads((tmp_path / "outputs/run/configs/resolved/eval.json").read_text())["env"]
    assert env["taskset"]["id"] == "rolltap_verifiers" and env["taskset"]["tasks_dir"] == "tasks"
    mode = env["agent"]["harness"]["mode"]
    assert (mode["type"], mode["agent"]) == ("agent", "module:agent")
    with pytest.raises(ValueError, match="tasks_dir"):
        list(HarborTaskset(HarborTasksetConfig(id="rolltap_verifiers")).load())


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
    mode = {"type": "agent", "agent": "rolltap_test_agent:agent", "url": admin}
    harness = {"id": "rolltap_verifiers", "mode": mode}
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
