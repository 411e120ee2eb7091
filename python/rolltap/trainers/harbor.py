"""Rollout details and trajectories for Harbor (package `harbor` 0.25.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harbor.models.agent.rollout_detail import RolloutDetail
from harbor.models.trajectories import Trajectory
from pydantic import TypeAdapter

_DETAILS = TypeAdapter(list[RolloutDetail])


def rollout_details(line: Mapping[str, Any]) -> list[RolloutDetail]:
    """Returns the details of a line of `rolltap export --format harbor-details`, for an `AgentContext`."""
    return _DETAILS.validate_python(line["agent_result"]["rollout_details"])


def trajectory(line: Mapping[str, Any]) -> Trajectory:
    """Returns the trajectory of a line of `rolltap export --format atif`."""
    return Trajectory.model_validate(line)
