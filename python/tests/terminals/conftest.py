"""Has the fixtures of the tests with real terminals: `rolltap env` with its containers, at the task of tests/tasks.

tests/real/python_terminals.rs runs these tests and sets ROLLTAP_TEST_PROGRAM to the path of the program. The tests need
Docker and the testbed's image.
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
    """Returns the answer of a model that greets `word`. The word `world` solves the task."""
    keys = f"echo 'Hello, {word}!' > /app/hello.txt\n"
    commands = [{"keystrokes": keys, "duration": 0.2}]
    return json.dumps(
        {"analysis": "None.", "plan": "Write.", "commands": commands, "task_complete": complete}
    )


@pytest.fixture(scope="session")
def program() -> str:
    """Returns the path of the program `rolltap`."""
    return os.environ["ROLLTAP_TEST_PROGRAM"]


@pytest.fixture(scope="session")
def server(program: str) -> Iterator[str]:
    """Runs an environment server and yields its URL. The server removes its containers when it stops."""
    with serve(program=program) as url:
        yield url


@pytest.fixture
def simulator(program: str, tmp_path: Path) -> Iterator[str]:
    """Runs a simulated vLLM whose model solves the task in its second answer, and yields its base URL."""
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
