"""Runs SkyRL's own trainer without engines and models."""

from __future__ import annotations

from types import SimpleNamespace

from own_code.advantages import Trial, known, of_tokens
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.generators.base import GeneratorOutput, TrajectoryID
from skyrl.train.trainer import RayPPOTrainer


def with_advantages(made: GeneratorOutput, group_size: int) -> TrainingInputBatch:
    """Returns the batch of step-wise generator output with advantages. Each step has a row."""
    uids = [name.instance_id for name in made["trajectory_ids"]]
    trainer = object.__new__(RayPPOTrainer)
    trainer.cfg = SkyRLTrainConfig()
    trainer.cfg.generator.step_wise_trajectories = True
    trainer.cfg.generator.n_samples_per_prompt = group_size
    trainer.cfg.trainer.train_batch_size = trainer.cfg.trainer.policy_mini_batch_size = len(set(uids))
    trainer.cfg.trainer.critic.model.path = None
    trainer.all_metrics = {}
    trainer.tokenizer = SimpleNamespace(pad_token_id=0)
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    batch = trainer.convert_to_training_input(*trainer.postprocess_generator_output(made, uids))
    batch["values"] = None
    return trainer.compute_advantages_and_returns(batch)


def of_trials(made: GeneratorOutput) -> dict[Trial, float]:
    """Returns the advantages of the trials in generator output of groups of four."""
    batch = with_advantages(made, 4)
    rows = zip(made["trajectory_ids"], batch["advantages"], batch["loss_mask"], strict=True)
    return known(((name.instance_id, name.repetition_id), of_tokens(row, mask)) for name, row, mask in rows)


def advantages(rewards: list[float]) -> list[float]:
    """Returns the advantages of one group with these rewards."""
    count = len(rewards)
    made = of_trials(
        {
            "prompt_token_ids": [[1]] * count,
            "response_ids": [[2, 3]] * count,
            "rewards": list(rewards),
            "loss_masks": [[1, 1]] * count,
            "stop_reasons": ["stop"] * count,
            "rollout_logprobs": [[-1.0, -1.0]] * count,
            "trajectory_ids": [TrajectoryID("g", at) for at in range(count)],
            "is_last_step": [True] * count,
            "rollout_metrics": None,
        }
    )
    return [made["g", at] for at in range(count)]
