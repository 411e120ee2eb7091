"""Runs verl's own advantages of samples with several outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from own_code.advantages import Trial, known, of_tokens
from torch.nn.utils.rnn import pad_sequence
from verl import DataProto
from verl.trainer.ppo.core_algos import AdvantageEstimator
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from rolltap.trainers.verl import outputs


@dataclass(frozen=True)
class Output:
    """Is an output of a sample. `place` is its index in the sample. verl names its tensors."""

    group: str
    sample: int
    place: int
    tensors: dict[str, torch.Tensor]


def exported(lines: list[dict[str, Any]]) -> list[Output]:
    """Returns the outputs of the lines of an export."""
    return [
        Output(line["uid"], line["session_id"], place, output.as_dict())
        for line in lines
        for place, output in enumerate(outputs(line))
    ]


def output(group: str, sample: int, reward: float, mask: list[int]) -> Output:
    """Returns the only output of a sample, with this response mask. Its last token has the reward."""
    scores = torch.tensor([0.0] * (len(mask) - 1) + [reward])
    return Output(group, sample, 0, {"rm_scores": scores, "response_mask": torch.tensor(mask)})


def with_advantages(made: list[Output], estimator: str) -> DataProto:
    """Returns the batch of the outputs, a row for each, with the advantages of this estimator."""
    columns = {
        name: pad_sequence([one.tensors[theirs] for one in made], batch_first=True)
        for name, theirs in [("token_level_rewards", "rm_scores"), ("response_mask", "response_mask")]
    }
    data = DataProto.from_dict(columns, {"uid": np.array([one.group for one in made], dtype=object)})
    keys = [f"{one.group}_{one.sample}_{one.place}" for one in made]
    return compute_advantage_for_multi_trajectories(data, keys, AdvantageEstimator(estimator))


def of_trials(made: list[Output], estimator: str) -> dict[Trial, float]:
    """Returns the advantages of the trials, each of which has one output."""
    batch = with_advantages(made, estimator).batch
    rows = zip(made, batch["advantages"], batch["response_mask"], strict=True)
    return known(((one.group, one.sample), of_tokens(row, mask)) for one, row, mask in rows)


def advantages(rewards: list[float], estimator: str) -> list[float]:
    """Returns the advantages of one group with these rewards. Each sample has one token."""
    made = of_trials([output("g", at, reward, [1]) for at, reward in enumerate(rewards)], estimator)
    return [made["g", at] for at in range(len(rewards))]
