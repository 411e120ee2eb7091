"""Tests the example for TRL: one step of the trainer on the CPU, with scripted answers and tools at real terminals."""

from __future__ import annotations

import json
import os
import pickle
import runpy
import sys
from pathlib import Path

import pytest
import torch
import trl
from accelerate import PartialState
from trl import GRPOTrainer

from rolltap.trainers.trl_terminal import environment_factory

from .conftest import ROOT, TASK

PartialState(cpu=True)


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def test_the_factory_can_be_pickled_and_its_terminals_know_their_state(server: str) -> None:
    make = pickle.loads(pickle.dumps(environment_factory(server, environment="docker")))
    made = make()
    with pytest.raises(RuntimeError, match="reset"):
        made.type_keys("ls\n")
    assert "Create the file /app/hello.txt" in made.reset(task_dir=str(TASK), prompt="of the row")
    assert "42" in made.type_keys("echo $((6 * 7))\n", 0.3)
    assert made.get_reward() == made.get_reward() == 0.0
    with pytest.raises(RuntimeError, match="over"):
        made.type_keys("ls\n")
    made.reset(task_dir=str(TASK))
    made.type_keys("echo 'Hello, world!' > /app/hello.txt\n", 0.3)
    assert "judged" in made.complete_task() and made.get_reward() == 1.0


def test_the_example_trains_on_what_the_verifier_gave(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The testbed's torch has stubs instead of CUDA's libraries, and the stubs fail on a query of streams.
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    keys = "echo 'Hello, world!' > /app/hello.txt\n"
    # The answers of each turn, one per rollout: the first solves and completes the task, the second gives up at once.
    turns = [
        [call("type_keys", keystrokes=keys, duration=0.3), "I do not know."],
        [call("complete_task")],
        ["It is done."],
    ]
    shown: list[str] = []

    def say(self: GRPOTrainer, prompt_ids: list[list[int]], *_: object, **__: object) -> tuple:
        shown.extend(self._tokenizer.decode(ids) for ids in prompt_ids)
        said = turns.pop(0)
        assert len(said) == len(prompt_ids)
        return [self._tokenizer.encode(f"{text}<|im_end|>") for text in said], None

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", say)
    monkeypatch.setenv("ROLLTAP_PROGRAM", program)
    arguments = {
        "--model": os.environ["ROLLTAP_TESTBED_MODEL"],
        "--chat-template": Path(trl.__file__).parent / "chat_templates/qwen2_5.jinja",
        "--task-dir": TASK,
        "--output": tmp_path,
        "--max-steps": 1,
        "--num-generations": 2,
        "--learning-rate": 1e-3,
    }
    words = [str(word) for pair in arguments.items() for word in pair]
    monkeypatch.setattr(sys, "argv", ["trl_terminal.py", *words, "--use-cpu"])
    trainer = runpy.run_path(str(ROOT / "python/examples/trl_terminal.py"))["trainer"]

    assert turns == []
    assert "Create the file /app/hello.txt" in shown[0] and "type_keys" in shown[0]
    assert "the work was judged" in shown[-1]
    (told, *_) = trainer.state.log_history
    assert told["reward"] == pytest.approx(0.5) and told["reward_std"] > 0
    assert told["tools/call_frequency"] == pytest.approx(1.0) and told["tools/failure_frequency"] == 0.0
    assert told["grad_norm"] > 0
