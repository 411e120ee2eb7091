"""Has the part of `prime_rl.configs.rl` that configs/prime-rl.toml uses (prime-rl 559b447).

prime-rl is in no package index. Like prime-rl, these classes reject unknown keys and leave the content of `env` to
verifiers' own classes.
"""

from __future__ import annotations

from typing import Any

import verifiers.v1 as vf
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, model_validator


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ModelConfig(Strict):
    name: str


class DeploymentConfig(Strict):
    num_train_gpus: int
    num_infer_gpus: int


class OptimConfig(Strict):
    lr: float


class LoRAConfig(Strict):
    rank: int


class TrainerModelConfig(Strict):
    lora: LoRAConfig


class TrainerConfig(Strict):
    optim: OptimConfig
    model: TrainerModelConfig


class InferenceConfig(Strict):
    pass


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
    source: list[TrainSourceConfig]
    sampling: TrainSamplingConfig


class OrchestratorConfig(Strict):
    batch_size: int
    group_size: int
    concurrency: ConcurrencyConfig
    train: TrainConfig


class RLConfig(Strict):
    max_steps: int
    seq_len: int
    model: ModelConfig
    deployment: DeploymentConfig
    trainer: TrainerConfig
    inference: InferenceConfig
    orchestrator: OrchestratorConfig
