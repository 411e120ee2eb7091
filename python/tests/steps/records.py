"""Compares what a trainer's loss function got, and what its step changed, with the rows of the group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from rolltap import Row

NEAR = 1e-4
"""The largest distance of two logprobs, in nats, that float32 and another order of additions explain."""


@dataclass(frozen=True)
class Trained:
    """Has one sequence of a batch as the loss function got it. All lists but `ids` have the length of the response."""

    ids: list[int]
    """Prompt and response, without padding."""

    mask: list[int]
    captured: list[float]
    """The logprobs that the trainer takes for those of the sampling policy."""

    now: list[float]
    """The logprobs that the trainer computes with its weights, whose difference from `captured` is in the loss."""

    advantages: list[float]

    @property
    def places(self) -> list[int]:
        """Returns the indexes of the trained tokens in the response."""
        return [place for place, one in enumerate(self.mask) if one]


def check_captured(sequences: Sequence[Trained], rows: Sequence[Row]) -> None:
    """Checks that the sequences are the rows: ids and masks are equal, and logprobs to the last bit."""
    left = {tuple(row["token_ids"]): row for row in rows}
    assert len(left) == len(rows)
    for one in sequences:
        assert tuple(one.ids) in left, "a trained sequence is no row, or is trained twice"
        row = left.pop(tuple(one.ids))
        start = row["prompt_len"]
        assert one.mask == row["loss_mask"][start:]
        assert len(one.mask) == len(one.captured) == len(one.now) == len(one.advantages)
        captured = np.asarray(row["logprobs"][start:], np.float32)[one.places]
        assert np.asarray(one.captured, np.float32)[one.places].tobytes() == captured.tobytes()
    assert not left, f"{len(left)} rows are not trained"


def check_ratios(sequences: Sequence[Trained], sampler: PreTrainedModel) -> None:
    """Checks that the importance ratio at each trained token is 1, for weights that are still those of the sampler."""
    check_recomputed(sequences, sampler)
    for one in sequences:
        for place in one.places:
            assert np.exp(one.now[place] - one.captured[place]) == pytest.approx(1, abs=NEAR)


def check_recomputed(sequences: Sequence[Trained], model: PreTrainedModel) -> None:
    """Checks that the trainer's logprob of each trained token is the one that transformers computes with `model`."""
    for one in sequences:
        own = logprobs(model, one.ids)[-len(one.mask) :]
        for place in one.places:
            assert one.now[place] == pytest.approx(own[place], abs=NEAR)


def check_advantages(
    sequences: Sequence[Trained], rows: Sequence[Row], *, scale: float = 1.0, is_divided: bool = True
) -> None:
    """Checks that each trained token has the advantage of its trial times `scale`, with one reward for each trial.

    The advantage is the reward less the mean of the trials. It is divided by their deviation if `is_divided`.
    """
    rewards = {row["trial_id"]: row["reward"] for row in rows}
    mean, deviation = fmean(rewards.values()), stdev(rewards.values()) if is_divided else 1.0
    of_row = {tuple(row["token_ids"]): (row["reward"] - mean) / (deviation + 1e-6) for row in rows}
    for one in sequences:
        assert tuple(one.ids) in of_row, "a trained sequence is no row"
        expected = scale * of_row[tuple(one.ids)]
        assert [one.advantages[place] for place in one.places] == pytest.approx([expected] * len(one.places), rel=1e-4)


def check_learned(sequences: Sequence[Trained], before: PreTrainedModel, after: PreTrainedModel) -> None:
    """Checks that the weights changed, and in the direction of the advantages.

    A step raises the sum of advantage times logprob over all trained tokens, to first order. A single sequence with a
    small advantage can lose by what the others teach.
    """
    assert any(not torch.equal(*pair) for pair in zip(before.parameters(), after.parameters(), strict=True))
    gained = 0.0
    for one in sequences:
        old, new = (logprobs(model, one.ids)[-len(one.mask) :] for model in (before, after))
        gained += sum(one.advantages[place] * (new[place] - old[place]) for place in one.places)
    assert gained > 0, f"the advantages are worth {gained} after the step"


def with_weights(model_path: str, weights: Path) -> PreTrainedModel:
    """Returns the model with the weights of this file."""
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
    model.load_state_dict(torch.load(weights))
    return model


@torch.no_grad()
def logprobs(model: PreTrainedModel, ids: list[int]) -> list[float]:
    """Returns the logprob of each token after the first, in nats."""
    logits = model(input_ids=torch.tensor([ids])).logits[0, :-1].float()
    return torch.log_softmax(logits, dim=-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
