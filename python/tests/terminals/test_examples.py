"""Tests the examples that no other test runs, as users run them. One of them tests OpenEnv's server."""

from __future__ import annotations

import os
import subprocess
import sys

from conftest import limit

from .conftest import ROOT, TASK


def run(program: str, *arguments: str) -> str:
    environ = {**os.environ, "ROLLTAP_PROGRAM": program}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=ROOT / "python/examples", env=environ, capture_output=True, text=True, timeout=limit(240)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_gymnasium(program: str) -> None:
    said = run(program, "gymnasium_terminal.py", str(TASK), "docker")
    assert "Create the file /app/hello.txt" in said and "reward 1.0, all of {'reward': 1.0}" in said


def test_openenv(program: str) -> None:
    said = run(program, "openenv_terminal.py", str(TASK), "docker")
    assert "Create the file /app/hello.txt" in said and "reward 1.0, done True" in said


def test_verifiers(program: str, simulator: str) -> None:
    said = run(program, "verifiers_terminal.py", "sim", simulator, str(TASK))
    assert said.strip() == "hello-prebuilt: reward 1.0, 2 turns, agent_completed"
