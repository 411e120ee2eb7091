"""Has the part of `prime_rl.configs.rl` that configs/prime-rl.toml uses (contracts/prime-rl.toml).

prime-rl is in no package index. Like prime-rl, these classes reject unknown keys and leave the content of `env` to
verifiers' own classes. scripts/check-trainer parses the configuration with prime-rl's own classes.
"""

from __future__ import annotations

from prime_rl.configs.orchestrator import OrchestratorConfig, Strict


class SharedModelConfig(Strict):
    name: str


class SingleNodeDeploymentConfig(Strict):
    num_train_gpus: int = 1
    num_infer_gpus: int = 1


DeploymentConfig = SingleNodeDeploymentConfig


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


class RLConfig(Strict):
    trainer: TrainerConfig
    orchestrator: OrchestratorConfig
    inference: InferenceConfig | None = None
    model: SharedModelConfig | None = None
    max_steps: int | None = None
    seq_len: int | None = None
    deployment: DeploymentConfig = SingleNodeDeploymentConfig()
