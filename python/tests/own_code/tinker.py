"""Runs the advantages of tinker's cookbook."""

from __future__ import annotations

import tinker
from tinker_cookbook.rl.data_processing import compute_advantages
from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup


def advantages(rewards: list[float]) -> list[float]:
    """Returns the advantages of one group with these rewards."""
    nothing = Trajectory(transitions=[], final_ob=tinker.ModelInput.empty())
    group = TrajectoryGroup([nothing] * len(rewards), rewards, [{}] * len(rewards))
    return compute_advantages([group])[0].tolist()
