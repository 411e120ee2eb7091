"""Runs `rolltap sim`, a simulated vLLM."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rolltap import Client, Proxy


@contextmanager
def simulator(program: str) -> Iterator[str]:
    """Runs a simulator and yields its URL."""
    with subprocess.Popen([program, "sim", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


@contextmanager
def captured(program: str, data: Path) -> Iterator[Client]:
    """Runs a proxy in front of a simulator, and yields a client of it. The captures remain in `data`."""
    from conftest import limit

    with (
        simulator(program) as upstream,
        Proxy(upstream, data=data, program=program, timeout=limit(30)) as proxy,
        proxy.client() as client,
    ):
        yield client
