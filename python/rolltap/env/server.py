"""Starts and stops an environment server (`rolltap env`) for the program that needs it."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from rolltap.program import find_program

READY = "listening on "
"""The text before the address, in the line that `rolltap env` prints once it accepts calls."""

GRACE = 60.0
"""Seconds for a stopping server to remove its containers, before it is killed."""


@contextmanager
def serve(
    arguments: Sequence[str] = (), *, program: str | os.PathLike[str] | None = None, timeout: float = 60.0
) -> Iterator[str]:
    """Starts `rolltap env` at a free port and yields its address. Stops the server and its environments at the end.

    `arguments` are further arguments of the program (`["-e", "local"]`). The program is `program`, else the value of
    the variable ROLLTAP_PROGRAM, else the `rolltap` of this Python's environment, else `rolltap` on PATH. The server
    inherits the standard error of this process.

    Raises RuntimeError if there is no such program, if it ends early, or if it does not listen within `timeout`
    seconds.
    """
    command = [find_program(program), "env", "--listen", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        yield _address(process, timeout)
    finally:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            # The next server, or `rolltap clean`, removes the containers that are left.
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[str], timeout: float) -> str:
    assert process.stdout is not None
    lines: queue.Queue[str | None] = queue.Queue()
    # The thread reads to the end, so that the server never blocks on a full pipe.
    threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True).start()
    until = time.monotonic() + timeout
    while True:
        try:
            line = lines.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            raise RuntimeError(f"`rolltap env` did not listen within {timeout:g} s") from None
        if line is None:
            raise RuntimeError(
                f"`rolltap env` ended with {process.wait()} before it listened; its words are above"
            )
        if READY in line:
            return line.split(READY, 1)[1].split()[0]


def _pass_on(output: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in output:
        lines.put(line)
    lines.put(None)
