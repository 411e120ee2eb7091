"""Tests verifiers' own agent at real terminals, with the harness that types and with trials of `rolltap run`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from verifiers.v1.agent import Agent
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.trace import Trace
from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

from conftest import limit

from .conftest import ROOT, TASK


def taskset(tasks_dir: Path) -> Any:
    config = taskset_config_type("rolltap_verifiers")
    return load_taskset(config.model_validate({"id": "rolltap_verifiers", "tasks_dir": tasks_dir}))


def run(base_url: str, mode: dict[str, Any], tasks_dir: Path = TASK, **fields: Any) -> Trace:
    (task,) = taskset(tasks_dir)
    config = AgentConfig.model_validate(
        {
            "model": "sim",
            "client": {"type": "eval", "base_url": base_url},
            "harness": {"id": "rolltap_verifiers", "mode": mode},
            "runtime": {"type": "subprocess"},
            "sampling": {"max_tokens": 300},
            **fields,
        }
    )
    return asyncio.run(Agent(config).run(task))


def test_a_directory_of_tasks_is_a_taskset(tmp_path: Path) -> None:
    tasks = list(taskset(ROOT / "tests/tasks"))
    assert [task.key for task in tasks] == [task.data.name for task in tasks] and len(tasks) > 1
    (only,) = taskset(TASK)
    assert only.key == "hello-prebuilt" and "Hello, world!" in only.data.prompt
    with pytest.raises(ValueError, match="no task directory"):
        list(taskset(tmp_path))


def test_the_harness_types_what_the_model_says(server: str, simulator: str) -> None:
    made = run(simulator, {"type": "terminal", "server": server})
    assert made.ok, made.errors
    assert (made.reward, made.num_turns) == (1.0, 2)
    assert made.metrics["reward"] == 1.0
    roles = [node.message.role for node in made.nodes]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert "Create the file /app/hello.txt" in made.nodes[0].message.content


def test_what_verifiers_ends_is_judged_all_the_same(server: str, simulator: str) -> None:
    made = run(simulator, {"type": "terminal", "server": server}, max_turns=1)
    assert made.ok, made.errors
    assert (made.reward, made.num_turns, made.stop_condition) == (0.0, 1, "max_turns")


def test_tasks_of_another_harness_are_not_judged() -> None:
    (task,) = taskset(TASK)
    with pytest.raises(RuntimeError, match="no verifier ran"):
        asyncio.run(task.reward(SimpleNamespace(info={})))


def test_a_trial_of_rolltap_is_a_rollout_with_its_tokens(
    program: str, simulator: str, tmp_path: Path
) -> None:
    mode = {
        "type": "run",
        "program": program,
        "environment": "docker",
        "max_turns": 5,
        "jobs_dir": tmp_path,
    }
    made = run(simulator, mode)
    assert made.ok, made.errors
    assert (made.reward, made.metrics["reward"]) == (1.0, 1.0)
    sampled = [node for node in made.nodes if node.sampled]
    assert len(sampled) == 3, "the terminal agent looked around, solved the task, and confirmed it"
    for branch in made.branches:
        assert len(branch.token_ids) == len(branch.sampled_mask) == len(branch.logprobs)
    for node in sampled:
        assert len(node.logprobs) == sum(node.mask) > 0 and all(value <= 0 for value in node.logprobs)
    assert (tmp_path / made.id / "result.json").is_file()


def task_with_tmux(folder: Path) -> None:
    """Writes a task whose image has this machine's tmux, which Harbor's Terminus-2 needs.

    The build of the image then needs no network.
    """
    lib = folder / "environment/lib"
    lib.mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "task.toml").write_text('[task]\nname = "rolltap/terminus"\n[agent]\ntimeout_sec = 1200.0\n')
    (folder / "instruction.md").write_text("Write 'Hello, world!' to /app/hello.txt.")
    solved = "grep -q 'Hello, world!' /app/hello.txt && echo 1 > /logs/verifier/reward.txt\n"
    (folder / "tests/test.sh").write_text(f"#!/bin/sh\n{solved}")
    (folder / "environment/Dockerfile").write_text(
        f"FROM {os.environ['ROLLTAP_TESTBED_IMAGE']}\nCOPY tmux /usr/bin/tmux\nCOPY lib/ /usr/lib/x86_64-linux-gnu/\n"
        "ENV LANG=C.UTF-8\nWORKDIR /app\n"
    )
    tmux = shutil.which("tmux")
    assert tmux is not None
    shutil.copy(tmux, folder / "environment/tmux")
    for word in subprocess.check_output(["ldd", tmux], text=True).split():
        # The image has its own C library.
        if word.startswith("/lib/") and not Path(word).name.startswith(("libc.so", "libm.so", "libresolv.so")):
            shutil.copy(word, lib)


def test_harbor_runs_the_trial_where_it_is_asked_to(
    program: str, simulator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_with_tmux(tmp_path / "task")
    monkeypatch.setenv("ROLLTAP_HARBOR_PYTHON", f"{os.environ['ROLLTAP_TESTBED_CLIENTS']}/python")
    mode = {
        "type": "run",
        "program": program,
        "environment": "harbor",
        "harbor_env": "docker",
        "agent": "terminus-2",
        "agent_kwargs": {"record_terminal_session": False, "enable_summarize": False},
    }
    made = run(simulator, mode, tasks_dir=tmp_path / "task")
    assert made.ok, made.errors
    assert made.reward == 1.0 and len([node for node in made.nodes if node.sampled]) == 3


def test_a_trial_that_cannot_run_is_an_error(program: str, simulator: str) -> None:
    made = run(simulator, {"type": "run", "program": program, "agent": "nobody"})
    assert not made.ok and "nobody" in str(made.errors)


def test_the_configuration_runs_trials_of_a_directory(program: str, simulator: str, tmp_path: Path) -> None:
    flags = {
        "--client.base-url": simulator,
        "--model": "sim",
        "--env.taskset.tasks-dir": TASK,
        "--env.agent.harness.mode.program": program,
        "--env.agent.harness.mode.jobs-dir": tmp_path / "jobs",
        "--output-dir": tmp_path / "outputs",
        "--run.dir": "run",
        "--num-rollouts": 2,
    }
    words = [str(word) for flag in flags.items() for word in flag]
    command = [
        str(Path(sys.executable).parent / "vf-eval"),
        "@",
        str(ROOT / "configs/verifiers.toml"),
        *words,
        "--no-rich",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=limit(240))
    assert done.returncode == 0, done.stdout + done.stderr
    episodes = [json.loads(line) for line in (tmp_path / "outputs/run/traces.jsonl").read_text().splitlines()]
    assert len(episodes) == 2 and len(list((tmp_path / "jobs").iterdir())) == 2
    for episode in episodes:
        (trace,) = episode["traces"]
        assert trace["ok"] and trace["rewards"]["reward"]["score"] == 1.0
        assert len(trace["nodes"]) == 6 and all(node["token_ids"] for node in trace["nodes"])
