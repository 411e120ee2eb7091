"""Tests how groups are submitted and taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import loop
import pytest
from loop import Sampling
from processes import Stopped

from rolltap import RolltapError


class Service:
    """Simulates the service and its client. Each request fails with the first of `errors` while there are any."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.watched = 0
        self.keys: list[str] = []
        self.active: list[int] = []
        self.feed: list[dict[str, Any]] = []

    def watch(self) -> None:
        self.watched += 1

    @contextmanager
    def client(self) -> Iterator[Service]:
        yield self

    def submit(self, task: str, *, samples: int, metadata: dict[str, int], idempotency_key: str, patience: float) -> None:
        if self.errors:
            raise self.errors.pop(0)
        assert samples == 8 and patience == 0.0 and idempotency_key == f"step-{metadata['step']}-{task}"
        self.keys.append(idempotency_key)

    def submissions(self, *, active: bool) -> list[dict[str, Any]]:
        assert active
        return [{"request": {"metadata": {"step": step}}} for step in self.active]

    def rollouts(self, **_: Any) -> list[dict[str, Any]]:
        given, self.feed = self.feed, []
        return given


def sampling(service: Service, first: int = 0, steps: int = 3) -> Sampling:
    return Sampling(service, ["web-1", "web-2"], 8, first, steps)  # type: ignore[arg-type]


def test_each_group_is_submitted_once_and_none_after_the_last_step() -> None:
    service = Service()
    made = sampling(service, first=1)
    for last in (1, 1, 9):
        made.submit(last)
    assert service.keys == ["step-1-web-1", "step-1-web-2", "step-2-web-1", "step-2-web-2"]


def test_a_submission_is_repeated_while_the_service_restarts_or_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "WAIT", 0.0)
    service = Service(httpx.ConnectError("refused"), RolltapError(429, "full"), RolltapError(503, "starting"))
    sampling(service).submit(0)
    assert service.keys == ["step-0-web-1", "step-0-web-2"] and service.watched == 5
    with pytest.raises(RolltapError, match="409"):
        sampling(Service(RolltapError(409, "another request"))).submit(0)


def test_the_groups_of_later_steps_are_not_waited_for() -> None:
    service = Service()
    service.active = [2]
    made = sampling(service)
    assert made.is_sampling(2) and not made.is_sampling(1)
    service.feed = [{"cursor": "7", "trial_id": "t", "group_remaining": 0}]
    taken = made.take(1, None)
    assert taken.groups() == 1 and taken.cursor == "7"


def test_a_step_without_a_complete_trial_stops_the_run() -> None:
    with pytest.raises(Stopped, match="step 0 have no complete trial"):
        sampling(Service()).take(0, None)
