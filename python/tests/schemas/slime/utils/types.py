"""Has the fields, types and checks of `slime.utils.types` (slime 624b824) that miles 31f1ca9 has too.

slime is in no package index. `check` has the assertions of slime and miles before they train on a sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any


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

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    status: Status = Status.PENDING
    metadata: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "status": self.status.value}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Sample:
        known = {one.name for one in fields(Sample)}
        unknown = set(data) - known
        assert not unknown, f"slime would keep these as loose attributes: {unknown}"
        return Sample(**{**data, "status": Sample.Status(data["status"])})

    def get_reward_value(self, args: Any) -> Any:
        return self.reward if not args.reward_key else self.reward[args.reward_key]

    def check(self) -> None:
        assert all(type(token) is int for token in self.tokens)
        assert 0 < self.response_length < len(self.tokens)
        assert self.loss_mask is not None and len(self.loss_mask) == self.response_length
        assert self.rollout_log_probs is not None and len(self.rollout_log_probs) == self.response_length
        assert all(mask in (0, 1) for mask in self.loss_mask)
        assert all(type(value) is float for value in self.rollout_log_probs)
        assert all(isinstance(version, str) for version in self.weight_versions)
        assert isinstance(self.reward, float)
