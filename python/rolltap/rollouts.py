"""The feed: complete trials as they come, from a cursor on, over every break of the connection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import httpx

from rolltap.errors import passes
from rolltap.lines import LineBuffer
from rolltap.prepare import Prepare
from rolltap.row import Trial

LONGEST_PAUSE = 10.0
"""Seconds between two attempts at most."""


@dataclass
class Reading:
    """Where a reader stands. Every reading of the feed is one of these, asked again from its last whole line."""

    after: str | None
    wait: float
    closed_groups: bool
    superseded: bool
    allow_gap: bool
    limit: int | None
    follow: bool
    """Beyond the first answer, whether that came whole or not."""
    prepare: Prepare | None = None
    failures: int = 0
    """Attempts in a row that brought nothing."""

    def params(self) -> dict[str, str]:
        """The query to go on with."""
        query: dict[str, str] = {"wait": f"{self.wait:g}"}
        if self.after is not None:
            query["after"] = self.after
        if self.closed_groups:
            query["closed_groups"] = "true"
        if self.superseded:
            query["superseded"] = "true"
        if self.allow_gap:
            query["allow_gap"] = "true"
        if self.limit is not None:
            query["limit"] = str(self.limit)
        return query if self.prepare is None else {**query, **self.prepare.params()}

    def timeout(self) -> httpx.Timeout:
        """The proxy is silent for as long as it was asked to wait."""
        return httpx.Timeout(30.0, read=self.wait + 60.0)

    def is_over(self) -> bool:
        """As many trials came as were asked for."""
        return self.limit == 0

    def trials(self, buffer: LineBuffer, piece: bytes) -> list[Trial]:
        """The trials that are whole with this piece."""
        return [_trial(json.loads(line)) for line in buffer.feed(piece)]

    def taken(self, trial: Trial) -> None:
        """The reader has had this one: what comes next comes after it."""
        self.after = trial["cursor"]
        self.failures = 0
        if self.limit is not None:
            self.limit -= 1

    def pause(self, error: Exception) -> float:
        """Seconds until the next attempt; raises what no further attempt would change."""
        if not self.follow or not passes(error):
            raise error
        self.failures += 1
        return min(LONGEST_PAUSE, 0.25 * 2.0 ** min(self.failures, 6))


def _trial(line: dict[str, Any]) -> Trial:
    # A line has either kind of rows; readers find both under one name.
    if "prepared" in line:
        line["rows"] = line["prepared"]["rows"]
    return cast("Trial", line)


def opening(task_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The body that opens a trial; what is None is left to the proxy."""
    return {"task_id": task_id, **{key: value for key, value in fields.items() if value is not None}}
