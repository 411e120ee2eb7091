"""Paths, requests and answers of the admin plane, for both clients."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rolltap.lines import LineBuffer
from rolltap.row import Row

DEFAULT_URL = "http://127.0.0.1:7071"


@dataclass(frozen=True)
class OpenedTrial:
    """A trial that accepts calls."""

    trial_id: str
    key: str
    """The API key of the agent. The base URLs contain it already."""
    base_urls: Mapping[str, str]
    """The base URL for each kind of client: `openai`, `anthropic` and `gemini`."""


def opened_trial(answer: Mapping[str, Any]) -> OpenedTrial:
    """Returns the trial from the answer to `POST /v1/trials`."""
    return OpenedTrial(answer["trial_id"], answer["key"], answer["base_urls"])


def headers(token: str | None) -> dict[str, str]:
    """Returns the headers of every request."""
    return {} if token is None else {"authorization": f"Bearer {token}"}


def of_trial(trial_id: str, what: str = "") -> str:
    """Returns the path of a trial, or of a part of the trial."""
    return f"/v1/trials/{quote(trial_id, safe='')}{what}"


def of_group(group_id: str, what: str = "") -> str:
    """Returns the path of a group, or of a part of the group."""
    return f"/v1/groups/{quote(group_id, safe='')}{what}"


def reward_body(
    rewards: Mapping[str, float],
    reward: float | None,
    valid: bool | None,
    failure_cause: str | None,
    suspicious: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Returns the body that sets a reward. Omits members that are None: the proxy has defaults for them."""
    reasons = None if suspicious is None else list(suspicious)
    given = {"reward": reward, "valid": valid, "failure_cause": failure_cause, "suspicious": reasons}
    return {"rewards": dict(rewards), **{key: value for key, value in given.items() if value is not None}}


def rows_of(body: bytes) -> list[Row]:
    """Returns the rows of an NDJSON answer."""
    return [json.loads(line) for line in LineBuffer().feed(body)]
