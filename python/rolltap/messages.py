"""Addresses, requests and answers of the admin plane, for both clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rolltap.lines import LineBuffer
from rolltap.row import Row

DEFAULT_URL = "http://127.0.0.1:7071"


@dataclass(frozen=True)
class OpenedTrial:
    """A trial that takes calls."""

    trial_id: str
    key: str
    """What an agent gives as its API key; it is in the base URLs already."""
    base_urls: Mapping[str, str]
    """`openai`, `anthropic` and `gemini`: what an agent of that kind is pointed at."""


def opened_trial(answer: Mapping[str, Any]) -> OpenedTrial:
    """The trial of the answer to `POST /v1/trials`."""
    return OpenedTrial(answer["trial_id"], answer["key"], answer["base_urls"])


def headers(token: str | None) -> dict[str, str]:
    """The headers of every request."""
    return {} if token is None else {"authorization": f"Bearer {token}"}


def of_trial(trial_id: str, what: str = "") -> str:
    """The path of a trial, or of a part of it."""
    return f"/v1/trials/{quote(trial_id, safe='')}{what}"


def of_group(group_id: str, what: str = "") -> str:
    """The path of a group, or of a part of it."""
    return f"/v1/groups/{quote(group_id, safe='')}{what}"


def reward_body(
    rewards: Mapping[str, float], reward: float | None, valid: bool | None, failure_cause: str | None
) -> dict[str, Any]:
    """The body that sets a reward. The proxy fills in what is None."""
    given = {"reward": reward, "valid": valid, "failure_cause": failure_cause}
    return {"rewards": dict(rewards), **{key: value for key, value in given.items() if value is not None}}


def rows_of(body: bytes) -> list[Row]:
    """The rows of an answer of lines."""
    return [json.loads(line) for line in LineBuffer().feed(body)]
