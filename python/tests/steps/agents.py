"""The agent of the tests: it makes four trials of two turns, the second of which forks."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from conftest import two_turns

from rolltap import OpenedTrial

REWARDS = [1.0, 0.0, 0.25, 0.75]
"""The rewards of the trials, in the order in which they start."""
LASTS = [["Open it."], ["Open it.", "Leave it closed."], ["Now list it."], ["Open it."]]
"""The second turns of each trial. The trial with two of them forks."""

_started = count()


async def agent(trial: OpenedTrial, task: Any) -> float:
    """Works at the next trial of this process, and returns its reward."""
    index = next(_started)
    await asyncio.to_thread(two_turns, trial, *LASTS[index])
    return REWARDS[index]
