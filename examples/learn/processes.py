"""Manages the servers that a run starts. They are recorded on disk, so that the next run ends those that a killed
run left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Say = Callable[[str], None]


class Stopped(Exception):
    """The run cannot continue. The message has the reason and the remedy."""


def started_at(pid: int) -> str | None:
    """Returns the start time of a process, which identifies it if its pid is reused. Returns `None` if the process
    does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class Processes:
    """Starts and ends programs, and records those of this run and of the previous run in the same folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "processes.json"
        self._folder = folder / "logs"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._left: dict[str, list[Any]] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def end_leftovers(self, say: Say) -> None:
        """Ends the programs that the previous run left behind."""
        # "service" comes before "vllm", whose end would make its running trials fail.
        for name, (pid, start) in sorted(self._left.items()):
            if started_at(pid) == start:
                say(f"ending {name} (pid {pid}), which a killed run left behind")
                _end(pid)
            self._forget(name)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Starts a program in its own session, and appends its output to its log."""
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self._left[name] = [process.pid, started_at(process.pid)]
        self._write()
        return process

    def end(self, name: str, process: subprocess.Popen[bytes] | None) -> None:
        """Ends a program and all its child processes."""
        if process is not None:
            _end(process.pid, process)
            self._forget(name)

    def log(self, name: str) -> Path:
        """Returns the path of a program's log."""
        return self._folder / f"{name}.log"

    def tail(self, name: str, lines: int = 15) -> str:
        """Returns the last lines of a program's log."""
        return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])

    def _forget(self, name: str) -> None:
        self._left.pop(name, None)
        self._write()

    def _write(self) -> None:
        aside = self._file.with_suffix(".new")
        aside.write_text(json.dumps(self._left))
        aside.replace(self._file)


def _end(pid: int, process: subprocess.Popen[bytes] | None = None) -> None:
    """Sends SIGTERM, waits, sends SIGKILL, and kills all remaining processes of its session."""

    def is_gone() -> bool:
        return process.poll() is not None if process is not None else started_at(pid) is None

    for sent, patience in ((signal.SIGTERM, 30.0), (signal.SIGKILL, 10.0)):
        try:
            os.kill(pid, sent)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + patience
        while not is_gone() and time.monotonic() < deadline:
            time.sleep(0.1)
        if is_gone():
            break
    # vLLM's engine runs for a while after its server was killed.
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if process is not None:
        process.wait()


def free_ports(number: int) -> list[int]:
    """Returns `number` ports of 127.0.0.1 that are free now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [int(one.getsockname()[1]) for one in sockets]
