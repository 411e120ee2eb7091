"""Scored groups for the server of Atropos (package `atroposlib` 0.4.0)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import httpx
from atroposlib.api.server import ScoredData


def scored_data(line: Mapping[str, Any]) -> ScoredData:
    """Returns the group of an exported line."""
    return ScoredData.model_validate(line)


def post(lines: Iterable[Mapping[str, Any]], server: httpx.Client) -> int:
    """Posts groups to an Atropos server (`httpx.Client(base_url=…)`) and returns their number.

    Raises httpx.HTTPStatusError for the first group that the server rejects.
    """
    posted = 0
    for line in lines:
        server.post("/scored_data", json=scored_data(line).model_dump(exclude_none=True)).raise_for_status()
        posted += 1
    return posted
