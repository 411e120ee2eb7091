"""Has the fields of `miles.utils.types` that an export fills, their types, and its `validate` (miles 31f1ca9)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
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

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Sample:
        assert set(data) <= {one.name for one in fields(Sample)}
        return Sample(**{**data, "status": Slime.Status(data["status"])})

    def validate(self) -> None:
        assert 0 <= self.response_length <= len(self.tokens)
        for values in (self.loss_mask, self.rollout_log_probs):
            assert values is None or len(values) == self.response_length
