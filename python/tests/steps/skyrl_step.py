"""Runs one step of SkyRL's trainer on an export: `python -m steps.skyrl_step EXPORT FOLDER MODEL RAY`.

The experiment, the trainer, the worker, its loss and its optimizer are SkyRL's own, on Ray. FOLDER gets SkyRL's
checkpoints and logs. The variable of `skyrl_worker` names the folder of its records.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from steps import skyrl_worker  # noqa: F401  (must precede SkyRL)

import ray
from skyrl.backends.skyrl_train.utils.ppo_utils import sync_registries
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.dataset import PromptDataset
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.generators.base import GeneratorInput, GeneratorInterface, GeneratorOutput
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils import validate_cfg
from skyrl.train.utils.trainer_utils import validate_generator_output

from rolltap import read_lines
from rolltap.trainers.skyrl import generator_output


class Replay(GeneratorInterface):
    """Returns the trajectories of the export, whatever prompts SkyRL asks for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def generate(self, input_batch: GeneratorInput) -> GeneratorOutput:
        """Returns one group."""
        lines = list(read_lines(self._path))
        made = generator_output(lines)
        validate_generator_output(len(lines), made, step_wise=True)
        return made


class NoEngine:
    """Accepts the calls of SkyRL's trainer around a step, and generates nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        async def nothing(*args: Any, **named: Any) -> None:
            return None

        return nothing


class Trainer(RayPPOTrainer):
    """Is SkyRL's trainer with the worker that runs on a CPU."""

    def build_models(self, PolicyWorker: Any, CriticWorker: Any, RefWorker: Any) -> None:
        """Starts the policy's worker as a process of Ray."""
        super().build_models(ray.remote(num_gpus=1)(skyrl_worker.Worker), CriticWorker, RefWorker)


class Experiment(BasePPOExp):
    """Is SkyRL's experiment with an exported group instead of an engine."""

    export: Path

    def get_train_dataset(self) -> PromptDataset:
        """Returns the prompts, read in this process."""
        return PromptDataset(self.cfg.data.train_data, self.tokenizer, self.cfg.trainer.max_prompt_length, 1)

    def get_inference_client(self) -> Any:
        """Returns a client of no engine."""
        return NoEngine()

    def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> GeneratorInterface:
        """Returns the generator that replays the export."""
        return Replay(self.export)

    def get_trainer(self, **settings: Any) -> RayPPOTrainer:
        """Returns the trainer."""
        return Trainer(**settings)


def settings(folder: Path, model: str) -> SkyRLTrainConfig:
    """Returns SkyRL's defaults for a step on one group of four trials, in float32."""
    data = folder / "prompts.jsonl"
    data.write_text(json.dumps({"prompt": [{"role": "user", "content": "What lies in the folder?"}], "env_class": None}))
    precision = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    chosen: dict[str, Any] = {
        "data.train_data": [str(data)],
        "data.dataloader.num_workers": 0,
        "data.dataloader.persistent_workers": False,
        "trainer.policy.model.path": model,
        "trainer.strategy": "fsdp",
        "trainer.flash_attn": False,
        "trainer.remove_microbatch_padding": False,
        "trainer.gradient_checkpointing": False,
        "trainer.placement.colocate_all": False,
        "trainer.placement.policy_num_gpus_per_node": 1,
        "trainer.policy.optimizer_config.lr": 1e-2,
        "trainer.policy.optimizer_config.num_warmup_steps": 0,
        "trainer.train_batch_size": 1,
        "trainer.policy_mini_batch_size": 1,
        "trainer.critic_mini_batch_size": 1,
        "trainer.micro_train_batch_size_per_gpu": 4,
        "trainer.micro_forward_batch_size_per_gpu": 4,
        "trainer.epochs": 1,
        "trainer.max_training_steps": 1,
        "trainer.eval_interval": -1,
        "trainer.eval_before_train": False,
        "trainer.ckpt_interval": -1,
        "trainer.hf_save_interval": -1,
        "trainer.resume_mode": "none",
        "trainer.logger": "console",
        "trainer.ckpt_path": str(folder / "checkpoints"),
        "trainer.export_path": str(folder / "exports"),
        "trainer.log_path": str(folder / "logs"),
        "trainer.algorithm.use_kl_loss": False,
        # The ratio in the loss is then that of SkyRL's logprobs to the captured ones.
        "trainer.algorithm.policy_loss_type": "rollout_is",
        "generator.n_samples_per_prompt": 4,
        "generator.step_wise_trajectories": True,
        "generator.inference_engine.num_engines": 1,
        "generator.inference_engine.tensor_parallel_size": 1,
        "generator.inference_engine.enable_ray_prometheus_stats": False,
        "trainer.enable_ray_gpu_monitor": False,
    }
    chosen |= {f"trainer.policy.fsdp_config.mixed_precision.{name}": value for name, value in precision.items()}
    return SkyRLTrainConfig.from_cli_overrides([f"{name}={json.dumps(value)}" for name, value in chosen.items()])


if __name__ == "__main__":
    export, folder, model, temporary = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    cfg = settings(folder, model)
    validate_cfg(cfg)
    # SkyRL starts no worker unless Ray counts a GPU. Ray counts one here, and the worker uses the CPU.
    ray.init(
        num_cpus=4, num_gpus=1, include_dashboard=False, _temp_dir=temporary, object_store_memory=100_000_000
    )
    sync_registries()
    experiment = Experiment(cfg)
    experiment.export = export
    try:
        experiment.run()
    finally:
        ray.shutdown()
