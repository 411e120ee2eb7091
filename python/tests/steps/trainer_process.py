"""Runs a trainer's own process, with Ray in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from conftest import limit

TESTS = Path(__file__).parent.parent
FEW_PROCESSES = {
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Without these two, Ray starts a process for each CPU of `num_cpus`.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}


@contextmanager
def ray_folder() -> Iterator[Path]:
    """Yields a folder for Ray and removes it. Its path is short, because Ray's sockets have at most 107 characters."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(arguments: Sequence[str], log: Path, **environment: str) -> None:
    """Runs `python ARGUMENTS` until it ends, and fails with the end of its output if it does.

    The process gets a session, so that all processes of Ray end with it.
    """
    search = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    own = {"PYTHONPATH": search, **FEW_PROCESSES, **environment}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **own},
            cwd=log.parent,
            start_new_session=True,
        )
        try:
            code = process.wait(limit(240))
        finally:
            end_session(process.pid)
            process.wait()
    assert code == 0, log.read_text()[-6000:]


def end_session(session: int) -> None:
    """Kills each process that is left of the session. Ray's processes have process groups of their own."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The fields after the name, which is in parentheses, are: state, parent, group, session.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                os.kill(int(entry.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue
