"""Runs vLLM on the CPU. vLLM loads the policy's folder at its start and reloads it after each step."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from model import CONTEXT
from processes import Processes, Say, Stopped

SERVED = "policy"
START_SECONDS = 300.0


class Engine:
    """Represents one vLLM server."""

    def __init__(
        self, python: str, weights: Path, port: int, seed: int, flags: Sequence[str], processes: Processes, say: Say
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._python, self._weights, self._port, self._seed, self._flags = python, weights, port, seed, flags
        self._processes, self._say = processes, say
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts vLLM on the policy's folder, and waits until vLLM answers."""
        command = [
            *(self._python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(self._weights)),
            *("--served-model-name", SERVED, "--host", "127.0.0.1", "--port", str(self._port)),
            # float32 is exact on a CPU, and eager mode compiles nothing.
            *("--dtype", "float32", "--enforce-eager"),
            *("--max-model-len", str(CONTEXT), "--max-num-seqs", "32", "--seed", str(self._seed)),
            *self._flags,
        ]
        environment = {
            **os.environ,
            "VLLM_CPU_KVCACHE_SPACE": "1",
            # vLLM enables the endpoints that load weights only in its development mode.
            "VLLM_SERVER_DEV_MODE": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        }
        self._process = self._processes.start("vllm", command, environment)
        self._wait()

    def is_alive(self) -> bool:
        """Returns whether the server and its engine run. The server ends itself when the engine dies."""
        return self._process is not None and self._process.poll() is None

    def load(self) -> None:
        """Makes vLLM reload the weights from the policy's folder."""
        self._ask("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(self._weights)}})
        # The cached prefixes come from the old weights.
        self._ask("/reset_prefix_cache", None)

    def stop(self) -> None:
        """Ends vLLM."""
        self._processes.end("vllm", self._process)
        self._process = None

    def _wait(self) -> None:
        begin = time.monotonic()
        told = begin
        while not self._answers():
            if not self.is_alive():
                raise Stopped(f"vLLM ended before it answered:\n{self._processes.tail('vllm')}")
            if time.monotonic() - begin > START_SECONDS:
                raise Stopped(f"vLLM did not answer within {START_SECONDS:.0f} s; see {self._processes.log('vllm')}")
            if time.monotonic() - told > 10:
                told = time.monotonic()
                self._say(f"waiting for vLLM ({told - begin:.0f} s)")
            time.sleep(0.5)

    def _ask(self, path: str, body: dict[str, Any] | None) -> None:
        httpx.post(self.url + path, json=body, timeout=60.0, trust_env=False).raise_for_status()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5.0, trust_env=False).is_success
        except httpx.TransportError:
            return False
