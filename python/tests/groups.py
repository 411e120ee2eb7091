"""Has groups of rewards whose advantages differ between the trainers' rules. The names are those of docs/how-to/trainers."""

from __future__ import annotations

import pytest

GROUPS = {
    "clean": [1.0, 0.0, 0.0, 0.0],
    "two failed, the mean in their place": [1.0, 0.0, 0.5, 0.5],
    "two failed, left out": [1.0, 0.0],
    "lone survivor, the mean in the place of others": [1.0, 1.0, 1.0, 1.0],
    "lone survivor, others left out": [1.0],
    "no variance": [0.0, 0.0, 0.0, 0.0],
}

SAMPLE = [[1.5, -0.5, -0.5, -0.5], [1.2247, -1.2247, 0, 0], [0.7071, -0.7071], [0] * 4, [0], [0] * 4]
"""The advantages by the sample deviation (n-1), of slime, miles and AReaL."""
POPULATION = [[1.7321, -0.5774, -0.5774, -0.5774], [1.4142, -1.4142, 0, 0], [1, -1], [0] * 4, [1], [0] * 4]
"""The advantages by the deviation of the population (n), of rLLM. A lone reward is its own advantage."""
MEAN = [[0.75, -0.25, -0.25, -0.25], [0.5, -0.5, 0, 0], [0.5, -0.5], [0] * 4, [0], [0] * 4]
"""The differences from the mean, of prime-rl."""
OTHERS = [[1, -0.5774, -0.5774, -0.5774], [2.3094, -2.3094, 0, 0], [1, -1], [0] * 4, [0], [0] * 4]
"""The differences from the mean of the other trials, divided by their sample deviation, of NeMo-RL."""


def cases(expected: list[list[float]]) -> pytest.MarkDecorator:
    """Runs a test with the rewards of each group and its expected advantages, as `rewards` and `right`."""
    pairs = list(zip(GROUPS.values(), expected, strict=True))
    return pytest.mark.parametrize(("rewards", "right"), pairs, ids=list(GROUPS))
