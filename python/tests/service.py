"""Runs `rolltap serve`, with agents that solve their tasks at once or that wait at a gate."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from simulated import simulator

from rolltap.program import Server

TASKS = Path(__file__).parents[2] / "examples" / "tasks"
STEP = 0.02
"""Seconds between two looks at a condition."""

T = TypeVar("T")


def until(condition: Callable[[], T | None], what: str) -> T:
    """Returns the first value of `condition` that is not None and not False."""
    from conftest import limit

    end = time.monotonic() + limit(60)
    while (value := condition()) is None or value is False:
        assert time.monotonic() < end, f"not {what} in time"
        time.sleep(STEP)
    return value


@dataclass(frozen=True)
class Service:
    """Has the URL of the admin plane, and the gate: a file that does not exist yet. Agents at the gate wait for it."""

    url: str
    gate: Path


ORACLE = ["-a", "oracle", "-n", "4"]


@contextmanager
def service(folder: Path, *options: str) -> Iterator[Service]:
    """Runs a service of the example tasks in front of a simulator.

    Without options, its agent waits at the gate, one sample runs at a time, and two may be queued.
    """
    gate = folder / "gate"
    waiting = f"until [ -e {shlex.quote(str(gate))} ]; do sleep {STEP}; done"
    at_gate = ["-a", "command", "--agent-command", waiting, "-n", "1", "--max-queued", "2"]
    program = os.environ["ROLLTAP_TEST_PROGRAM"]
    with simulator(program) as upstream:
        places = ["--upstream", upstream, "--admin", "127.0.0.1:0", "--jobs-dir", str(folder / "jobs")]
        command = [program, "serve", "-p", str(TASKS), "-e", "local", *(options or at_gate), *places]
        server = Server(command, {}, folder / "output", folder / "log")
        try:
            # The service prints its address when it takes submissions.
            yield Service(until(lambda: server.address("admin plane listens on "), "listening"), gate)
        finally:
            end(server, gate)


def end(server: Server, gate: Path) -> None:
    """Stops the service and its trials. Kills it if it does not stop."""
    try:
        server.terminate()
        until(lambda: server.ended() is not None, "ended")
    finally:
        # Agents of a service that had to be killed end at the open gate.
        gate.touch()
        server.kill()
