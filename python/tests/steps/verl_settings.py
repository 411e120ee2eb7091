"""The settings by which verl's `main_ppo` makes its steps from one group on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PROMPT = [{"role": "user", "content": "What lies in the folder?"}]
FLOAT32 = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}


def settings(folder: Path, temporary: Path, model: str, loop: dict[str, Any], trials: int) -> list[str]:
    """Returns Hydra's overrides. verl asks `loop` for `trials` samples of one prompt, and trains them."""
    data, loops = folder / "prompts.parquet", folder / "loops.yaml"
    pq.write_table(pa.Table.from_pylist([{"prompt": PROMPT, "data_source": "org/folder", "agent_name": "loop"}]), data)
    # JSON is YAML as well.
    loops.write_text(json.dumps([{"name": "loop", **loop}]))
    chosen = {
        **_model(model),
        **_actor(),
        **_rollout(loops, trials),
        "algorithm.adv_estimator": "grpo",
        # The ratio in the loss is then that of verl's logprobs to the captured ones.
        "algorithm.rollout_correction.bypass_mode": True,
        "data.train_files": str(data),
        "data.val_files": str(data),
        "data.train_batch_size": 1,
        "data.dataloader_num_workers": 0,
        "data.max_prompt_length": 64,
        "data.max_response_length": 64,
        "reward.num_workers": 1,
        **_trainer(folder, temporary),
    }
    return [f"{name}={_value(value)}" for name, value in chosen.items()]


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{one}" for name, one in value.items()) + "}"
    return "null" if value is None else str(value)


def _model(path: str) -> dict[str, Any]:
    name = "actor_rollout_ref.model"
    return {
        f"{name}.path": path,
        f"{name}.external_lib": "steps.verl_plugin",
        # Packed batches need flash-attn.
        f"{name}.use_remove_padding": False,
        f"{name}.enable_gradient_checkpointing": False,
        f"+{name}.override_config.attn_implementation": "eager",
    }


def _actor() -> dict[str, Any]:
    name = "actor_rollout_ref.actor"
    return {
        f"{name}.strategy": "fsdp2",
        f"{name}.fsdp_config.dtype": "float32",
        f"{name}.fsdp_config.model_dtype": "float32",
        f"+{name}.fsdp_config.mixed_precision": FLOAT32,
        f"{name}.fsdp_config.use_torch_compile": False,
        f"{name}.use_torch_compile": False,
        f"{name}.ppo_mini_batch_size": 1,
        f"{name}.ppo_micro_batch_size_per_gpu": 4,
        f"{name}.use_kl_loss": False,
        f"{name}.optim.lr": 1e-2,
        f"{name}.shuffle": False,
    }


def _rollout(loops: Path, trials: int) -> dict[str, Any]:
    name = "actor_rollout_ref.rollout"
    return {
        f"{name}.name": "none",
        f"{name}.n": trials,
        f"{name}.tensor_model_parallel_size": 1,
        f"{name}.log_prob_micro_batch_size_per_gpu": 4,
        f"{name}.agent.num_workers": 1,
        f"{name}.agent.agent_loop_config_path": str(loops),
    }


def _trainer(folder: Path, temporary: Path) -> dict[str, Any]:
    return {
        "trainer.n_gpus_per_node": 1,
        "trainer.device": "cpu",
        "trainer.logger": "[file]",
        "trainer.val_before_train": False,
        "trainer.total_training_steps": 1,
        "trainer.save_freq": -1,
        "trainer.resume_mode": "disable",
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "ray_kwargs.ray_init.num_cpus": 8,
        # verl starts no worker unless Ray counts a GPU. Ray counts one here, and the worker uses the CPU.
        "+ray_kwargs.ray_init.num_gpus": 1,
        "+ray_kwargs.ray_init.include_dashboard": False,
        "+ray_kwargs.ray_init.object_store_memory": 100_000_000,
        "+ray_kwargs.ray_init._temp_dir": str(temporary),
        "hydra.run.dir": str(folder / "hydra"),
    }
