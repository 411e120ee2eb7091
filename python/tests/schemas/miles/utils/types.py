"""Has what an export and the live functions use of miles 31f1ca9, which is in no package index.

- `Sample`, `to_dict`, `from_dict`, `get_reward_value`, `validate`: miles/utils/types.py:26-200, the fields that an
  export fills
- `normalized_by_rollout`: miles/ray/rollout/train_data_conversion.py:207 (`_normalize_rewards_by_rollout`)
- `is_legacy_generate_function`: miles/rollout/inference_rollout/compatibility.py:81 (`_is_legacy_generate_fn`)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from statistics import fmean, stdev
from typing import Any

from slime.utils.types import Sample as Slime


@dataclass
class Sample:
    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: str | list[dict[str, str]] = ""
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | dict[str, Any] | None = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    remove_sample: bool = False

    Status = Slime.Status

    status: Slime.Status = Slime.Status.PENDING
    metadata: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "status": self.status.value}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Sample:
        assert set(data) <= {one.name for one in fields(Sample)}
        return Sample(**{**data, "status": Slime.Status(data["status"])})

    def get_reward_value(self, args: Any) -> Any:
        return self.reward if not args.reward_key else self.reward[args.reward_key]

    def validate(self) -> None:
        assert 0 <= self.response_length <= len(self.tokens)
        for values in (self.loss_mask, self.rollout_log_probs):
            assert values is None or len(values) == self.response_length


def normalized_by_rollout(samples: Sequence[Sample]) -> list[float]:
    """Returns the rewards compared within `group_index`, each `rollout_id` once, with the sample standard deviation."""
    made = []
    for one in samples:
        rewards = {other.rollout_id: other.reward for other in samples if other.group_index == one.group_index}
        spread = stdev(rewards.values()) if len(rewards) > 1 else 0.0
        made.append((one.reward - fmean(rewards.values())) / (spread + 1e-6 if spread else 1.0))
    return made


def is_legacy_generate_function(function: Callable[..., Any]) -> bool:
    """Returns whether miles calls the function with the arguments, the sample and the sampling parameters."""
    names = list(inspect.signature(function).parameters)
    return len(names) >= 3 and names[0] != "input"
