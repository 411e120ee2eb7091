"""Has the part of `prime_rl.configs.orchestrator` that configs/prime-rl.toml uses (contracts/prime-rl.toml)."""

from __future__ import annotations

from typing import Any

import verifiers.v1 as vf
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, model_validator


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ConcurrencyConfig(Strict):
    max_inflight: int | None = Field(1024, ge=1)


class TrainSamplingConfig(Strict):
    temperature: float = Field(1.0, ge=0, le=2.0)
    max_completion_tokens: int | None = None


class TrainSourceConfig(Strict):
    env: SerializeAsAny[vf.EnvConfig]
    name: str

    @model_validator(mode="before")
    @classmethod
    def _resolve_env(cls, data: Any) -> Any:
        return vf.resolve_env_field(data, vf.narrowed_env_annotation(cls))


class TrainConfig(Strict):
    source: list[TrainSourceConfig] = Field(default_factory=list)
    sampling: TrainSamplingConfig = TrainSamplingConfig()


class OrchestratorConfig(Strict):
    train: TrainConfig = TrainConfig()
    batch_size: int | None = Field(None, ge=1)
    concurrency: ConcurrencyConfig = ConcurrencyConfig()
    group_size: int = Field(1, ge=1)
