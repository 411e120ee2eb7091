"""OpenRLHF (package `openrlhf` 0.11.2): what an agent executor returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def response(line: Mapping[str, Any]) -> dict[str, Any]:
    """The response of an exported line, as an executor's `execute` returns it for one sample."""
    return {**line, "action_ranges": [tuple(span) for span in line["action_ranges"]]}
