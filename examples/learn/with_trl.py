"""TRL's asynchronous GRPO trainer on this machine's CPU, with every part real.

`AsyncGRPOTrainer` does its steps on what `rolltap.trainers.trl.RolloutWorker` reads from the proxy's feed: groups of trials
of the unmodified terminal agent. Its weights go to vLLM as a file instead of over NCCL.

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
from jobs import copy_tasks
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
"""Among a sample's figures: that of the oldest weights that sampled what is trained of it."""
HEALTH_SECONDS = 0.5
"""Between two looks at the servers and at the job, while the trainer waits for samples."""


class Worker(RolloutWorker):
    """Runs a job of trials for each version of the weights, too; all by the trainer's thread."""

    def __init__(self, services: Services, sampling: Sampling, steps: int) -> None:
        super().__init__(services.admin)
        self._services, self._sampling, self._steps = services, sampling, steps
        self._batch = 0

    def update_model_version(self, model_version: int) -> None:
        """Begins the batch of these weights. TRL counts from 1: the weights of the start."""
        super().update_model_version(model_version)
        if model_version > 1:
            self._batch += 1
        if model_version <= self._steps:
            self._sampling.go_on(self._batch)

    def _put(self, made: RolloutSample) -> bool:
        # By which the trainer's check tells fresh samples; TRL logs its mean.
        made.metrics[VERSION] = float(made.model_version)
        return super()._put(made)

    def check_health(self, stale_after_s: float) -> None:
        """Looks after the servers and the job, whenever the trainer finds its queue empty."""
        super().check_health(stale_after_s)
        self._services.watch()
        self._sampling.go_on(self._batch)
        if self._sampling.is_sampling(self._batch) or not self._is_all_taken():
            return
        # A trial that failed for its own reasons has no sample, and a step takes a fixed number of them.
        self._batch += 1
        if self._batch >= 2 * self._steps:
            raise Stopped("the batches bring too few samples for a step; see the results of their trials")
        self._sampling.go_on(self._batch)

    def _is_all_taken(self) -> bool:
        """Whether the trainer has taken the samples of every closed group."""
        with self._services.client() as client:
            is_all_queued = is_read(client, self.cursor)
        return is_all_queued and self.rollout_buffer.empty()


class HandOver:
    """In the place of TRL's transfer over NCCL: a file, which vLLM reads between two calls."""

    def __init__(self, services: Services, policy: Path) -> None:
        self._services, self._policy = services, policy
        self._version = 0

    def init_weight_transfer(self) -> None:
        """Nothing is to be opened."""

    def pause(self) -> None:
        """`send_weights` holds calls for as long as it takes."""

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Has vLLM take them, under the number that TRL will give them."""
        self._version += 1
        speech.save_weights(iterator, self._policy)
        self._services.hand_over(self._version)

    def resume(self) -> None:
        """`send_weights` has done so."""

    def destroy(self) -> None:
        """Nothing was opened."""


class Trainer(AsyncGRPOTrainer):
    """TRL's own, which notes how far its logprobs are from the captured ones, and reads no batch ahead."""

    def __init__(self, **settings: Any) -> None:
        # It is asked of CUDA, which there is none of; TRL goes without where it is unknown.
        async_grpo_trainer.get_peak_flops_per_device = lambda accelerator, dtype: None
        if not torch.cuda.is_available():
            # transformers asks this at each forward; a torch whose CUDA libraries are stubs, as the testbed's, dies of it.
            torch.cuda.is_current_stream_capturing = lambda: False
        super().__init__(**settings)
        tree_attention.register()
        self.apart = 0.0
        """The largest distance, of this step's tokens that the present weights sampled."""
        self.sampled_by: set[int] = set()
        """The versions of this step's samples."""
        self._output: Any = None
        self.model.register_forward_hook(self._remember)

    def get_train_dataloader(self) -> DataLoader:
        """Not accelerate's, which would ask for a sample of the next batch before it gives the last of this one."""
        loader = super().get_train_dataloader().base_dataloader
        packed = loader.collate_fn

        def with_versions(rows: list[Any]) -> dict[str, Any]:
            samples = [one for row in rows[0] for one in row.samples]
            return {**packed(rows), "versions": torch.tensor([one["metrics"][VERSION] for one in samples])}

        loader.collate_fn = with_versions
        self._rollout_dataset.poll_interval_s = HEALTH_SECONDS
        return loader

    def compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], *args: Any, **named: Any) -> torch.Tensor:
        """TRL's."""
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
    """TRL's figures of a step, beside what the feed says of its trials."""

    def __init__(self, services: Services, steps: Steps) -> None:
        self._services, self._steps = services, steps
        self._taken = Taken(None)
        self.trainer: Trainer | None = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Before new weights, with which the next batch begins."""
        with self._services.client() as client:
            self._taken = take(client, self._taken.cursor, sys.maxsize, lambda: True)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, Any], **_: Any
    ) -> None:
        """One step."""
        if self.trainer is None or "ratio" not in logs:
            return
        names = ("loss", "ratio", "kl", "sample/staleness_max", "batch/packing_ratio", "perf/weight_sync_s")
        told = {
            "trained_tokens": logs["batch/trained_tokens_per_step"],
            "logprob_diff_max": self.trainer.apart,
            # A forked trial has more samples than one, and then some of a batch are left for the next step.
            "versions": sorted(self.trainer.sampled_by),
            "trl_reward": logs["reward"],
            **{name: logs[name] for name in names},
        }
        self.trainer.apart, self.trainer.sampled_by = 0.0, set()
        self._steps.write(state.global_step - 1, self._taken, told)


def run(flags: argparse.Namespace, say: Say) -> None:
    """So many steps."""
    processes = Processes(flags.out)
    processes.end_leftovers(say)
    steps = Steps(flags.out, say)
    tasks, policy = flags.out / "tasks", flags.out / "policy"
    copy_tasks(tasks, flags.base_image, flags.tasks, flags.groups)
    services, jobs = launch.servers(flags, tasks, policy, processes, say)
    told = Told(services, steps)
    trainer = Trainer(
        model=str(flags.taught),
        args=settings(flags, services),
        # TRL wants one; what the agents work at are the tasks of their jobs.
        train_dataset=Dataset.from_dict({"prompt": flags.tasks}),
        rollout_worker=Worker(services, Sampling(jobs, services, 0, 2 * flags.steps, 0, say), flags.steps),
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
    """A step is a batch of the tasks' groups, one after the other."""
    return AsyncGRPOConfig(
        str(flags.out / "trl"),
        max_steps=flags.steps,
        learning_rate=flags.learning_rate,
        per_device_train_batch_size=flags.group_size,
        gradient_accumulation_steps=flags.groups * len(flags.tasks),
        # By samples, and not by tokens.
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
