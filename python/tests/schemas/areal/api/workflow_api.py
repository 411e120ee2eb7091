"""Has the members of `areal.api.workflow_api` that a workflow needs (AReaL 4aef98d, which is in no package index)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class RolloutWorkflow(ABC):
    @abstractmethod
    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the tensors, or `None` if the episode is rejected."""
