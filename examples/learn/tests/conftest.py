"""Makes the example's modules importable, and provides an untrained model and samples of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from model import make_model, make_tokenizer  # noqa: E402
from rollouts import Sample  # noqa: E402
from step import logprobs  # noqa: E402


@pytest.fixture
def model() -> Iterator[torch.nn.Module]:
    """Returns a model with the same random weights in each test."""
    torch.set_num_threads(1)
    yield make_model(make_tokenizer(["some words", "and some more"]), seed=3).eval()


@pytest.fixture
def samples(model: torch.nn.Module) -> list[Sample]:
    """Returns six samples of several lengths with the model's own logprobs. Two have a positive advantage."""
    made = []
    for at in range(6):
        length = 20 + 7 * at
        ids = torch.randint(3, 200, (length,), generator=torch.Generator().manual_seed(at)).tolist()
        mask = [int(place > 4 and place % 5 != 0) for place in range(length)]
        made.append(Sample(f"trial-{at}", ids, mask, [0.0] * length, [-1] * length, 1.0 if at < 2 else -0.5))
    with torch.no_grad():
        return [filled(one, logprobs(model, [one])[0].tolist()) for one in made]


def filled(sample: Sample, known: list[float]) -> Sample:
    """Returns the sample with these logprobs at its trained tokens."""
    left = iter(known)
    values = [next(left) if trained else 0.0 for trained in sample.mask]
    return Sample(sample.trial_id, sample.ids, sample.mask, values, sample.versions, sample.advantage)
