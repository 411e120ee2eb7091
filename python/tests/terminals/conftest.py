"""Real terminals: `rolltap env` with its containers, at the task of tests/tasks.

tests/real/python_terminals.rs runs these and says in the environment where the program is: ROLLTAP_TEST_PROGRAM. They
need Docker and the testbed's image.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rolltap.env import serve

ROOT = Path(__file__).parents[3]
TASK = ROOT / "tests/tasks/hello-prebuilt"


def answer(word: str, *, complete: bool = True) -> str:
    """What a model says that greets so: the task is solved with `world`."""
    keys = f"echo 'Hello, {word}!' > /app/hello.txt\n"
    commands = [{"keystrokes": keys, "duration": 0.2}]
    return json.dumps(
        {"analysis": "None.", "plan": "Write.", "commands": commands, "task_complete": complete}
    )


@pytest.fixture(scope="session")
def program() -> str:
    """The program `rolltap`."""
    return os.environ["ROLLTAP_TEST_PROGRAM"]


@pytest.fixture(scope="session")
def server(program: str) -> Iterator[str]:
    """An environment server, whose containers are gone once it is."""
    with serve(program=program) as url:
        yield url


@pytest.fixture
def simulator(program: str, tmp_path: Path) -> Iterator[str]:
    """A simulated vLLM whose model looks around first and then solves the task; its base URL."""
    script = tmp_path / "script.toml"
    turns = (answer("nobody", complete=False), answer("world"), answer("world"))
    script.write_text(
        "[[conversation]]\n"
        + "".join(
            f"[[conversation.turn]]\n[[conversation.turn.answer]]\ncontent = {json.dumps(said)}\n"
            for said in turns
        )
    )
    command = [program, "sim", "--listen", "127.0.0.1:0", "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "sim listens on " in line, line
            yield f"{line.split()[-1]}/v1"
        finally:
            process.terminate()
