"""rLLM (commit 9beb6e0): episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllm.types import Episode


def episode(line: Mapping[str, Any]) -> Episode:
    """The episode of an exported line: one trajectory, a step per stretch that is trained."""
    return Episode.from_dict(dict(line))
