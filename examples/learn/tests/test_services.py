"""Tests the watch over vLLM and the service, with programs that end at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import services as module
from processes import Processes, Stopped
from services import Services


class Engine:
    """Simulates a vLLM that is alive after its start."""

    starts = 0
    alive = False

    def start(self) -> None:
        self.starts += 1
        self.alive = True

    def is_alive(self) -> bool:
        return self.alive

    def stop(self) -> None:
        self.alive = False


def services(folder: Path, said: list[str], engine: Engine, words: str = "no such key") -> Services:
    command = [sys.executable, "-c", f"raise SystemExit('{words}')"]
    # Nothing listens on port 1.
    return Services(command, "http://127.0.0.1:1", engine, Processes(folder), said.append)  # type: ignore[arg-type]


def test_a_service_that_cannot_start_stops_the_run_with_its_last_words(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(Stopped, match="service died 6 times; its last words:\n(.*\n)*no such key"):
        services(tmp_path, said, Engine()).start(0)
    assert said == ["service died (status 1); starting it again"] * module.DEATHS


def test_vllm_starts_before_the_service_where_both_have_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    engine = Engine()
    watched = services(tmp_path, said, engine)
    watched._service = subprocess.Popen(["true"])
    watched._service.wait()

    def start() -> None:
        assert engine.alive
        watched._service = None

    monkeypatch.setattr(watched, "_start_service", start)
    watched.watch()
    assert said == ["vllm died; starting it again", "service died (status 0); starting it again"]
