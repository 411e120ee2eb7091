"""Starts and watches vLLM and the service of a run, and restarts either one if it dies."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence

import httpx
from engine import Engine
from processes import Processes, Say, Stopped

from rolltap import Client
from rolltap.errors import RolltapError

DEATHS = 5
"""Deaths of one server in one run before the run stops: a restart would not repair the cause."""

ATTEMPTS = 5
"""Attempts to hand weights over."""


class Services:
    """Manages the servers of a run: vLLM, and `rolltap serve`, which runs the agents and has the feed."""

    def __init__(self, command: Sequence[str], admin: str, engine: Engine, processes: Processes, say: Say) -> None:
        self.admin = admin
        self.engine = engine
        self.version = 0
        """The version of the served weights: the number of steps that made them."""
        self._written = 0
        """The version of the weights in the policy's folder, which vLLM reads at its start."""
        self.deaths = {"vllm": 0, "service": 0}
        self._command, self._processes, self._say = command, processes, say
        self._service: subprocess.Popen[bytes] | None = None

    def start(self, version: int) -> None:
        """Starts vLLM with the weights in the policy's folder, and the service, which continues its queue."""
        self._written = version
        self._start_engine()
        self._start_service()
        self.watch()

    def client(self) -> Client:
        """Returns a client of the admin plane."""
        return Client(self.admin)

    def watch(self) -> None:
        """Restarts a dead vLLM or service. While vLLM restarts, the service holds calls. The service continues its
        queue: it makes other attempts at the trials that were running."""
        while True:
            # The service asks vLLM for its model when it starts, so vLLM is first.
            if not self.engine.is_alive():
                self._restart_engine()
            if self._service is None or self._service.poll() is None:
                return
            self._died("service", self._service.returncode)
            self._start_service()

    def hand_over(self, version: int) -> None:
        """Makes vLLM reload the policy's folder while no call is in flight, and stamps the following tokens with the
        version."""
        self._written = version
        for _ in range(ATTEMPTS):
            self.watch()
            try:
                with self.client() as client:
                    client.pause(wait=True)
                    try:
                        self.engine.load()
                        self.version = version
                        client.set_policy(version)
                    finally:
                        client.resume()
                return
            except httpx.HTTPError as error:
                self._say(f"the new weights are not handed over ({error}); retrying")
                # A vLLM whose engine has died still answers with errors for a moment before it ends.
                time.sleep(2)
        raise Stopped(f"vLLM does not take the new weights; its last words:\n{self._processes.tail('vllm')}")

    def stop(self) -> None:
        """Ends the service and vLLM."""
        self._processes.end("service", self._service)
        self._service = None
        self.engine.stop()

    def _died(self, name: str, code: int | None) -> None:
        self.deaths[name] += 1
        if self.deaths[name] > DEATHS:
            raise Stopped(f"{name} died {self.deaths[name]} times; its last words:\n{self._processes.tail(name)}")
        self._say(f"{name} died{'' if code is None else f' (status {code})'}; starting it again")

    def _start_engine(self) -> None:
        self.engine.start()
        self.version = self._written

    def _restart_engine(self) -> None:
        self._died("vllm", None)
        with self.client() as client:
            # A service that does not answer is started after vLLM, with the same version.
            with contextlib.suppress(httpx.TransportError):
                client.pause()
            self.engine.stop()
            self._start_engine()
            with contextlib.suppress(httpx.TransportError):
                client.set_policy(self.version)
                client.resume()

    def _start_service(self) -> None:
        """Starts the service and names the weights. Returns early if the service ends."""
        self._service = self._processes.start("service", self._command, dict(os.environ))
        deadline = time.monotonic() + 60
        while self._service.poll() is None:
            try:
                with self.client() as client:
                    client.set_policy(self.version)
                return
            except (httpx.TransportError, RolltapError):
                if time.monotonic() > deadline:
                    raise Stopped(f"the service did not start:\n{self._processes.tail('service')}") from None
                # The service continues its queue at once, and the first call of a trial must find the right version.
                time.sleep(0.02)
