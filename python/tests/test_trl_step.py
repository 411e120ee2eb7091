"""Tests a step of TRL's synchronous trainer on the CPU, with rollouts that agents sample during the step."""

from __future__ import annotations

import asyncio
import os

import pytest
import torch
from accelerate import PartialState
from conftest import two_turns
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from rolltap.trainers.trl import passed_on, rollout_func

PartialState(cpu=True)


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces a query of streams, on which the testbed's stubs of CUDA's libraries fail."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


def test_a_step_is_trained_on_captured_tokens(admin: str, tmp_path) -> None:
    made = []
    rewards = iter([1.0, 0.0])

    async def agent(trial, task):
        await asyncio.to_thread(two_turns, trial, task["prompt"])
        return next(rewards)

    run = rollout_func(agent, admin)

    def recorded(prompts, trainer):
        made.append(run(prompts, trainer))
        return {name: list(column) for name, column in made[-1].items()}

    trainer = GRPOTrainer(
        model=os.environ["ROLLTAP_TESTBED_MODEL"],
        reward_funcs=[passed_on],
        rollout_func=recorded,
        train_dataset=Dataset.from_dict({"prompt": ["Open it."] * 2}),
        args=GRPOConfig(
            str(tmp_path),
            max_steps=1,
            num_generations=2,
            per_device_train_batch_size=2,
            learning_rate=1e-3,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
        ),
    )
    before = trainer.model.lm_head.weight.detach().clone()
    trainer.train()
    (batch,) = made
    (told, *_) = trainer.state.log_history
    assert told["reward"] == pytest.approx(0.5) and told["reward_std"] > 0
    # TRL counts only trained tokens in the length of a completion, not the agent's messages between the answers.
    assert told["completions/mean_length"] == sum(map(sum, batch["env_mask"])) / 2
    assert (trainer.model.lm_head.weight - before).abs().max() > 0
