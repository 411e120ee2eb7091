"""Has the fields of `rllm.engine.rollout.rollout_engine.ModelOutput` that exports fill (contracts/rllm.toml)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TokenInput = list[int] | list[Any]


@dataclass
class ModelOutput:
    prompt_ids: TokenInput | None = None
    completion_ids: list[int] | None = None
    logprobs: list[float] | None = None
    prompt_length: int = 0
    completion_length: int = 0
    weight_version: int | None = None
