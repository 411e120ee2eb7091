"""Tests the sampling while the trainer steps."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from loop import Sampling
from processes import Stopped

from rolltap import RolltapError


class Jobs:
    """Simulates batches that end as soon as they are polled. The first `failures` batches fail."""

    def __init__(self, failures: int = 0) -> None:
        self.begun: list[int] = []
        self.failures = failures

    def start(self, number: int) -> subprocess.Popen[bytes]:
        self.begun.append(number)
        return self  # type: ignore[return-value]

    def poll(self) -> int:
        return 0

    def is_done(self, *_: Any) -> bool:
        self.failures -= 1
        return self.failures < 0

    def last_words(self) -> str:
        return "no proxy"

    groups: tuple[str, ...] = ()

    def results(self, _: int) -> list[dict[str, Any]]:
        return [{"config": {"rolltap": {"group_id": group}}} for group in self.groups]


class Services:
    """Counts the calls of `watch`. Its proxy has the group `opened` only."""

    watched = 0

    def __init__(self) -> None:
        self.closed: list[str] = []

    def watch(self) -> None:
        self.watched += 1

    @contextmanager
    def client(self) -> Iterator[Services]:
        yield self

    def close_group(self, group: str) -> None:
        if group != "opened":
            raise RolltapError(404 if group == "lost" else 409, "no")
        self.closed.append(group)


class Watched(Sampling):
    """Completes the trainer's step at the eighth call of `go_on`."""

    step_done: Future[dict[str, float]]
    times = 0

    def go_on(self, step: int) -> None:
        super().go_on(step)
        self.times += 1
        if self.times == 8:
            self.step_done.set_result({"reward": 0.5})


def test_as_many_batches_as_it_may_be_ahead_begin_while_the_trainer_steps() -> None:
    """Regression: a batch ends a moment after its last group, when the trainer is already busy, so no batch was ever
    ahead."""
    for ahead in (0, 1, 2):
        jobs = Jobs()
        sampling = Watched(jobs, None, 0, 10, ahead, print)  # type: ignore[arg-type]
        sampling.step_done = Future()
        assert sampling.go_on_until(sampling.step_done, 0) == {"reward": 0.5}
        assert jobs.begun == list(range(ahead + 1))


def test_a_batch_whose_job_could_not_begin_is_begun_again() -> None:
    """Regression: a proxy that was killed when the job began stopped the run, although the proxy was restarted."""
    jobs, services = Jobs(failures=2), Services()
    sampling = Sampling(jobs, services, 0, 2, 0, print)  # type: ignore[arg-type]
    for _ in range(4):
        sampling.go_on(0)
    assert jobs.begun == [0, 0, 0] and services.watched == 2 and not sampling.is_sampling(0)


def test_a_group_that_no_trial_opened_is_passed_over() -> None:
    """Regression: the proxy was killed before the trials of a group began, and closing the group stopped the run."""
    jobs, services = Jobs(), Services()
    jobs.groups = ("lost", "opened")
    sampling = Sampling(jobs, services, 0, 1, 0, print)  # type: ignore[arg-type]
    for _ in range(2):
        sampling.go_on(0)
    assert services.closed == ["opened"]
    jobs.groups = ("refused",)
    sampling = Sampling(jobs, services, 0, 1, 0, print)  # type: ignore[arg-type]
    with pytest.raises(RolltapError, match="409"):
        for _ in range(2):
            sampling.go_on(0)


def test_a_batch_that_fails_again_and_again_stops_the_run_with_its_last_words() -> None:
    sampling = Sampling(Jobs(failures=9), Services(), 0, 2, 0, print)  # type: ignore[arg-type]
    with pytest.raises(Stopped, match="batch-000 failed 3 times; its last words:\nno proxy"):
        for _ in range(9):
            sampling.go_on(0)
