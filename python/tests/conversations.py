"""Has conversations with tools, captured by a proxy of its own, and exports of their words."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from simulated import captured

from rolltap import Client

TOOLS = [
    {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {"command": {}}}}},
    {"type": "function", "function": {"name": "stop", "description": "Ends."}},
]
"""Two tools with different keys, as a column of them is no plain struct."""


@dataclass(frozen=True)
class Conversations:
    """Has the data directory of a proxy with two groups of two trials, of which each called tools."""

    data: Path
    program: str

    def path(self, format: str, *arguments: str) -> Path:
        """Exports the trials in this format and returns the path."""
        path = self.data.parent / f"{format}.{uuid.uuid4().hex[:8]}.jsonl"
        command = [self.program, "export", str(self.data), "--quiet", "--format", format, "-o", str(path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return path


def ask(trial, messages: list[dict]) -> dict:
    """Makes a call with tools, and returns the message of the answer."""
    from conftest import chat

    return chat(trial, messages, tools=TOOLS)


def converse(trial, task: str) -> None:
    """Has a conversation of two answers, before which a tool was called with arguments of different keys."""
    arguments = [{"command": "ls"}, {"command": "cat notes", "timeout": 3}]
    calls = [
        {"id": f"t{index}", "type": "function", "function": {"name": "bash", "arguments": json.dumps(given)}}
        for index, given in enumerate(arguments)
    ]
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": task}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": call["id"], "content": "notes"} for call in calls),
    ]
    messages.append(ask(trial, messages))
    ask(trial, [*messages, {"role": "user", "content": "Go on."}])


@pytest.fixture(scope="session")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversations]:
    """Captures the conversations. tests/conftest.py makes this fixture known to all tests."""
    program = os.environ["ROLLTAP_TEST_PROGRAM"]
    data = tmp_path_factory.mktemp("conversations") / "data"
    with captured(program, data) as client:
        for group in ("first", "second"):
            for index in range(2):
                _run(client, group, index)
    yield Conversations(data, program)


def _run(client: Client, group: str, index: int) -> None:
    trial = client.open_trial(f"org/{group}", group_id=group, group_size=2, sample_index=index)
    converse(trial, f"Look into {group}.")
    client.seal(trial.trial_id)
    client.reward(trial.trial_id, {"reward": float(index)})
