"""The state of a reader of the feed, which continues from its cursor after a lost connection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import httpx

from rolltap.errors import passes
from rolltap.lines import LineBuffer
from rolltap.prepare import Prepare
from rolltap.retries import backoff
from rolltap.row import Trial


@dataclass
class Reading:
    """The parameters and the position of a reader. Each request continues after the last whole line."""

    after: str | None
    wait: float
    closed_groups: bool
    superseded: bool
    allow_gap: bool
    limit: int | None
    follow: bool
    """Whether to continue after the first answer, complete or cut off."""
    prepare: Prepare | None = None
    reward_version: str | None = None
    messages: bool = False
    """Whether the calls of the rows have their messages and tools."""
    failures: int = 0
    """The number of failed attempts since the last trial."""

    def params(self) -> dict[str, str]:
        """Returns the query of the next request."""
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
        if self.reward_version is not None:
            query["reward_version"] = self.reward_version
        if self.messages:
            query["messages"] = "true"
        return query if self.prepare is None else {**query, **self.prepare.params()}

    def timeout(self) -> httpx.Timeout:
        """Returns the timeouts. The read timeout exceeds `wait`, because the proxy may send nothing for that long."""
        return httpx.Timeout(30.0, read=self.wait + 60.0)

    def is_over(self) -> bool:
        """Returns whether the reader has as many trials as it requested."""
        return self.limit == 0

    def trials(self, buffer: LineBuffer, piece: bytes) -> list[Trial]:
        """Returns the trials that this piece completes."""
        return [_trial(json.loads(line)) for line in buffer.feed(piece)]

    def taken(self, trial: Trial) -> None:
        """Moves the position after this trial and resets the count of failures."""
        self.after = trial["cursor"]
        self.failures = 0
        if self.limit is not None:
            self.limit -= 1

    def pause(self, error: Exception) -> float:
        """Returns the seconds until the next attempt: 0.5, then doubled each time up to 10.

        Raises `error` if a retry cannot help, or without `follow`.
        """
        if not self.follow or not passes(error):
            raise error
        self.failures += 1
        return backoff(self.failures)


def _trial(line: dict[str, Any]) -> Trial:
    # A line has `rows` or `prepared`. Readers find the rows of both under `rows`.
    if "prepared" in line:
        line["rows"] = line["prepared"]["rows"]
    return cast("Trial", line)


def opening(task_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body that opens a trial. Omits fields that are None: the proxy has defaults for them."""
    return {"task_id": task_id, **{key: value for key, value in fields.items() if value is not None}}
