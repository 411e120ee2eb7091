"""Responses of an agent executor for OpenRLHF (package `openrlhf` 0.11.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def response(line: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the response of an exported line, in the form of an executor's `execute` for one sample."""
    return {**line, "action_ranges": [tuple(span) for span in line["action_ranges"]]}
