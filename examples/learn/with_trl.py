"""Runs TRL's asynchronous GRPO trainer on this machine's CPU, with real parts only.

`AsyncGRPOTrainer` trains on the groups that `rolltap.trainers.trl.RolloutWorker` reads from the feed. They are
trials of the unmodified terminal agent. The weights go to vLLM as a file instead of over NCCL.

    examples/learn/learn --with trl --out runs/trl --taught runs/first/taught
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import launch
import model as speech
import torch
import tree_attention
from datasets import Dataset
from job import copy_tasks
from loop import Sampling
from processes import Processes, Say, Stopped
from rollouts import MAX_STALENESS, Taken, is_read, take
from services import Services
from steps import Steps
from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from rolltap.trainers.trl import RolloutWorker

VERSION = "rolltap/version"
"""The metric of a sample with the oldest version of the weights that sampled its trained tokens."""
HEALTH_SECONDS = 0.5
"""Seconds between two checks of the servers and of the submitted groups, while the trainer waits for samples."""


class Worker(RolloutWorker):
    """Also submits the groups for each version of the weights. The trainer's thread makes all calls."""

    def __init__(self, services: Services, sampling: Sampling, steps: int) -> None:
        super().__init__(services.admin)
        self._services, self._sampling, self._steps = services, sampling, steps
        self._batch = 0

    def update_model_version(self, model_version: int) -> None:
        """Submits the batch of these weights. TRL counts versions from 1, the weights at the start."""
        super().update_model_version(model_version)
        if model_version > 1:
            self._batch += 1
        if model_version <= self._steps:
            self._sampling.submit(self._batch)

    def _put(self, made: RolloutSample) -> bool:
        # The trainer detects fresh samples by this version. TRL logs its mean.
        made.metrics[VERSION] = float(made.model_version)
        return super()._put(made)

    def check_health(self, stale_after_s: float) -> None:
        """Checks the servers and the batch whenever the trainer finds its queue empty."""
        super().check_health(stale_after_s)
        if self._sampling.is_sampling(self._batch) or not self._is_all_taken():
            return
        # A trial that failed for a reason outside the agent has no sample, but a step takes a fixed number of samples.
        # So another batch is submitted.
        self._batch += 1
        if self._batch >= 2 * self._steps:
            raise Stopped("the batches bring too few samples for a step; see the results of their trials")
        self._sampling.submit(self._batch)

    def _is_all_taken(self) -> bool:
        """Returns whether the trainer has taken the samples of every closed group."""
        with self._services.client() as client:
            is_all_queued = is_read(client, self.cursor)
        return is_all_queued and self.rollout_buffer.empty()


class HandOver:
    """Replaces TRL's transfer over NCCL by a file, which vLLM reads between two calls."""

    def __init__(self, services: Services, policy: Path) -> None:
        self._services, self._policy = services, policy
        self._version = 0

    def init_weight_transfer(self) -> None:
        """Does nothing, because no connection is needed."""

    def pause(self) -> None:
        """Does nothing, because `send_weights` holds calls while it runs."""

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Makes vLLM load the weights under the version that TRL will give them."""
        self._version += 1
        speech.save_weights(iterator, self._policy)
        self._services.hand_over(self._version)

    def resume(self) -> None:
        """Does nothing, because `send_weights` has resumed calls."""

    def destroy(self) -> None:
        """Does nothing, because no connection was opened."""


class Trainer(AsyncGRPOTrainer):
    """Extends TRL's trainer: measures the distance of its logprobs from the captured ones, and reads no batch ahead."""

    def __init__(self, **settings: Any) -> None:
        # TRL asks CUDA for this value, and there is no CUDA here. TRL omits the figures that need it if it is `None`.
        async_grpo_trainer.get_peak_flops_per_device = lambda accelerator, dtype: None
        if not torch.cuda.is_available():
            # transformers calls this at each forward pass. A torch with stubs for the CUDA libraries, such as the
            # testbed's, would crash.
            torch.cuda.is_current_stream_capturing = lambda: False
        super().__init__(**settings)
        tree_attention.register()
        self.apart = 0.0
        """The largest logprob distance among this step's tokens that the current weights sampled."""
        self.sampled_by: set[int] = set()
        """The versions of this step's samples."""
        self._output: Any = None
        self.model.register_forward_hook(self._remember)

    def get_train_dataloader(self) -> DataLoader:
        """Avoids accelerate's loader, which reads a sample of the next batch before it yields the last one of this
        batch."""
        loader = super().get_train_dataloader().base_dataloader
        packed = loader.collate_fn

        def with_versions(rows: list[Any]) -> dict[str, Any]:
            samples = [one for row in rows[0] for one in row.samples]
            return {**packed(rows), "versions": torch.tensor([one["metrics"][VERSION] for one in samples])}

        loader.collate_fn = with_versions
        self._rollout_dataset.poll_interval_s = HEALTH_SECONDS
        return loader

    def compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], *args: Any, **named: Any) -> torch.Tensor:
        """Computes TRL's loss, and records versions and logprob distances."""
        versions = inputs.pop("versions")
        loss = super().compute_loss(model, inputs, *args, **named)
        chosen = inputs["token_index"] >= 0
        now = self._output.log_probs.detach().flatten()[inputs["token_index"][chosen]]
        is_fresh = versions[inputs["segment_id"][chosen]] == self.model_version
        apart = (now - inputs["old_log_probs"][chosen])[is_fresh].abs()
        self.apart = max([self.apart, *apart.tolist()])
        self.sampled_by |= {int(one) for one in versions}
        return loss

    def _remember(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        self._output = output


class Told(TrainerCallback):
    """Writes TRL's figures of a step together with the feed's figures of its trials."""

    def __init__(self, services: Services, steps: Steps) -> None:
        self._services, self._steps = services, steps
        self._taken = Taken(None)
        self.trainer: Trainer | None = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Takes the step's trials from the feed before the new weights begin the next batch."""
        with self._services.client() as client:
            self._taken = take(client, self._taken.cursor, sys.maxsize, lambda: True)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, Any], **_: Any
    ) -> None:
        """Writes one step."""
        if self.trainer is None or "ratio" not in logs:
            return
        names = ("loss", "ratio", "kl", "sample/staleness_max", "batch/packing_ratio", "perf/weight_sync_s")
        told = {
            "trained_tokens": logs["batch/trained_tokens_per_step"],
            "logprob_diff_max": self.trainer.apart,
            # A forked trial has several samples, so some samples of a batch may be left for the next step.
            "versions": sorted(self.trainer.sampled_by),
            "trl_reward": logs["reward"],
            **{name: logs[name] for name in names},
        }
        self.trainer.apart, self.trainer.sampled_by = 0.0, set()
        self._steps.write(state.global_step - 1, self._taken, told)


def run(flags: argparse.Namespace, say: Say) -> None:
    """Trains for `--steps` steps."""
    processes = Processes(flags.out)
    processes.end_leftovers(say)
    steps = Steps(flags.out, say)
    tasks, policy = flags.out / "tasks", flags.out / "policy"
    groups = copy_tasks(tasks, flags.base_image, flags.tasks, flags.groups)
    services = launch.servers(flags, tasks, policy, processes, say)
    told = Told(services, steps)
    trainer = Trainer(
        model=str(flags.taught),
        args=settings(flags, services),
        # TRL requires a dataset and does not use it here: the agents work at the submitted tasks.
        train_dataset=Dataset.from_dict({"prompt": flags.tasks}),
        rollout_worker=Worker(services, Sampling(services, groups, flags.group_size, 0, 2 * flags.steps), flags.steps),
        weight_transfer=HandOver(services, policy),
        callbacks=[told],
    )
    told.trainer = trainer
    speech.save(trainer.model, trainer.processing_class, policy)
    try:
        services.start(0)
        trainer.train()
    finally:
        services.stop()
        processes.end_leftovers(lambda _: None)


def settings(flags: argparse.Namespace, services: Services) -> AsyncGRPOConfig:
    """Returns settings by which a step is one batch: the groups of the tasks, one after the other."""
    return AsyncGRPOConfig(
        str(flags.out / "trl"),
        max_steps=flags.steps,
        learning_rate=flags.learning_rate,
        per_device_train_batch_size=flags.group_size,
        gradient_accumulation_steps=flags.groups * len(flags.tasks),
        # 0 makes TRL count samples instead of tokens.
        token_budget=0,
        max_staleness=MAX_STALENESS,
        vllm_server_base_url=services.engine.url,
        seed=flags.seed,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        report_to=[],
        save_strategy="no",
    )


if __name__ == "__main__":
    launch.launch(launch.parser_of_another("trl", __doc__), run, "choose another --out to begin anew")
