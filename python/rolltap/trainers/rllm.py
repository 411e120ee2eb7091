"""Episodes for rLLM (commit 9beb6e0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllm.types import Episode


def episode(line: Mapping[str, Any]) -> Episode:
    """Returns the episode of an exported line: one trajectory, with a step per run of trained tokens."""
    return Episode.from_dict(dict(line))
