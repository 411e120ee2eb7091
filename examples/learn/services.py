"""Starts and watches vLLM and the proxy of a run, and restarts either one if it dies."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

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
    """Manages the servers of the agents and the trainer: vLLM and the proxy."""

    def __init__(
        self, program: str, engine: Engine, folder: Path, ports: tuple[int, int], processes: Processes, say: Say
    ) -> None:
        agents, admin = ports
        self.admin = f"http://127.0.0.1:{admin}"
        self.engine = engine
        self.version = 0
        """The version of the served weights: the number of steps that made them."""
        self._written = 0
        """The version of the weights in the policy's folder, which vLLM reads at its start."""
        self.deaths = {"vllm": 0, "proxy": 0}
        self._command = [
            *(program, "proxy", "--upstream", engine.url, "--data", str(folder / "captures")),
            *("--listen", f"127.0.0.1:{agents}", "--admin", f"127.0.0.1:{admin}"),
        ]
        self._processes, self._say = processes, say
        self._proxy: subprocess.Popen[bytes] | None = None

    def start(self, version: int) -> None:
        """Starts vLLM and the proxy with the weights in the policy's folder."""
        self._written = version
        self._start_engine()
        self._start_proxy()

    def client(self) -> Client:
        """Returns a client of the admin plane."""
        return Client(self.admin)

    def watch(self) -> None:
        """Restarts a dead proxy or vLLM. While vLLM restarts, the proxy holds calls. The proxy resumes from its
        captures."""
        if self._proxy is not None and self._proxy.poll() is not None:
            self._died("proxy", self._proxy.returncode)
            self._start_proxy()
        if not self.engine.is_alive():
            self._died("vllm", None)
            with self.client() as client:
                client.pause()
                try:
                    self.engine.stop()
                    self._start_engine()
                    client.set_policy(self.version)
                finally:
                    client.resume()

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
                        self.engine.load(version)
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
        """Ends the proxy and vLLM."""
        self._processes.end("proxy", self._proxy)
        self._proxy = None
        self.engine.stop()

    def _died(self, name: str, code: int | None) -> None:
        self.deaths[name] += 1
        if self.deaths[name] > DEATHS:
            raise Stopped(f"{name} died {self.deaths[name]} times; its last words:\n{self._processes.tail(name)}")
        self._say(f"{name} died{'' if code is None else f' (status {code})'}; starting it again")

    def _start_engine(self) -> None:
        self.engine.start(self._written)
        self.version = self._written

    def _start_proxy(self) -> None:
        self._proxy = self._processes.start("proxy", self._command, dict(os.environ))
        deadline = time.monotonic() + 60
        while True:
            try:
                with self.client() as client:
                    client.set_policy(self.version)
                return
            except (httpx.TransportError, RolltapError):
                if self._proxy.poll() is not None or time.monotonic() > deadline:
                    raise Stopped(f"the proxy did not start:\n{self._processes.tail('proxy')}") from None
                time.sleep(0.1)
