"""Runs the loop of tinker-cookbook on this machine's CPU, with real parts only.

The cookbook's own `do_sync_training` samples, weighs, assembles, trains and measures. Its groups are captured trials of
the unmodified terminal agent. A model in this process replaces the service, and its weights go to vLLM.

    examples/learn/learn --with tinker --out runs/tinker --taught runs/first/taught
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chz
import launch
from job import ANSWER_TOKENS, copy_tasks
from local_client import LocalClient
from loop import Sampling
from processes import Processes, Say
from rollouts import Taken
from steps import Steps
from tinker_cookbook.checkpoint_utils import CheckpointManager
from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.exceptions import AllTrajectoriesFailedError
from tinker_cookbook.rl.rollout_strategy import RolloutResult, RolloutStrategy
from tinker_cookbook.rl.train import Config, do_sync_training
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, Metrics, RLDataset, RLDatasetBuilder, Trajectory
from tinker_cookbook.tokenizer_utils import get_tokenizer
from tinker_cookbook.utils.ml_log import JsonLogger, Logger, MultiplexLogger

from rolltap import Prepare
from rolltap.row import Trial
from rolltap.trainers.tinker import trajectory_group


class Batches(RLDataset):
    """Provides the batches. The groups of each batch are submitted when the cookbook asks for it, and come from the
    feed."""

    def __init__(self, sampling: Sampling, steps: int, groups: int) -> None:
        self._sampling, self._steps, self._groups = sampling, steps, groups
        self.taken = Taken(None)
        """The trials of the latest batch, with the cursor after them."""

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """Submits the batch and returns its groups, which become available later."""
        coming = asyncio.ensure_future(asyncio.to_thread(self._take, index))
        return [FeedGroup(coming, number) for number in range(self._groups)]

    def __len__(self) -> int:
        return self._steps

    def _take(self, index: int) -> list[list[Trial]]:
        self._sampling.submit(index)
        self.taken = self._sampling.take(index, self.taken.cursor, Prepare("mask"))
        groups: dict[str | None, list[Trial]] = {}
        for trial in self.taken.trials:
            groups.setdefault(trial["group_id"], []).append(trial)
        return list(groups.values())


class FeedGroup(EnvGroupBuilder):
    """Represents a group of trials that agents make and verifiers grade."""

    def __init__(self, coming: asyncio.Future[list[list[Trial]]], number: int) -> None:
        self._coming, self._number = coming, number
        self._trials: list[Trial] = []

    async def trajectories(self) -> list[Trajectory]:
        """Returns the trajectories once the group is closed."""
        groups = await self._coming
        self._trials = groups[self._number] if self._number < len(groups) else []
        return trajectory_group(self._trials).trajectories_G

    async def make_envs(self) -> Sequence[Env]:
        """Returns no environment, because the agent's runner provides one."""
        return []

    async def compute_group_rewards(
        self, trajectory_group_: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        """Returns the rewards of the verifier."""
        group = trajectory_group(self._trials)
        return list(zip(group.final_rewards_G, group.metrics_G))

    def logging_tags(self) -> list[str]:
        """Returns the name of the task."""
        return [Path(self._trials[0]["task_id"]).name] if self._trials else []


@dataclass(frozen=True)
class FromFeed(RolloutStrategy):
    """Waits for the trials of agents that run elsewhere, instead of sampling."""

    async def execute(self, env_group_builder: EnvGroupBuilder, policy: TokenCompleter) -> RolloutResult:
        """Returns the trajectories of the group."""
        assert isinstance(env_group_builder, FeedGroup)
        trajectories = await env_group_builder.trajectories()
        if not trajectories:
            raise AllTrajectoriesFailedError("no trial of the group has a reward that measures the agent")
        return RolloutResult(trajectories, envs=[], errors=[])


@chz.chz
class BatchesBuilder(RLDatasetBuilder):
    """Returns the batches, for the cookbook's settings."""

    batches: Batches

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        return self.batches, None


class Told(Logger):
    """Writes the cookbook's figures of a step together with those of the feed."""

    def __init__(self, steps: Steps, batches: Batches) -> None:
        self._steps, self._batches = steps, batches

    def log_hparams(self, config: Any) -> None:
        """Does nothing, because the flags have the hyperparameters."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Writes one step."""
        if step is None:
            return
        kept = {
            "trained_tokens": metrics.get("env/all/total_ac_tokens", 0),
            "logprob_diff_max": metrics.get("logprob_diff_max", 0.0),
            "kl_sample_train": metrics.get("optim/kl_sample_train_v2"),
            "cookbook_reward": metrics.get("env/all/reward/total"),
            "cookbook_turns": metrics.get("env/all/turns_per_episode"),
        }
        self._steps.write(step, self._batches.taken, kept)


def run(flags: argparse.Namespace, say: Say) -> None:
    """Trains for `--steps` steps."""
    processes = Processes(flags.out)
    processes.end_leftovers(say)
    steps = Steps(flags.out, say)
    tasks, policy = flags.out / "tasks", flags.out / "policy"
    groups = copy_tasks(tasks, flags.base_image, flags.tasks, flags.groups)
    client = LocalClient(flags.taught, policy)
    services = launch.servers(flags, tasks, policy, processes, say)
    batches = Batches(Sampling(services, groups, flags.group_size, 0, flags.steps), flags.steps, len(groups))
    try:
        services.start(0)
        client.services = services
        asyncio.run(train(flags, client, batches, steps))
    finally:
        services.stop()
        processes.end_leftovers(lambda _: None)


async def train(flags: argparse.Namespace, client: LocalClient, batches: Batches, steps: Steps) -> None:
    """Runs the cookbook's loop with the cookbook's own settings."""
    logs = str(flags.out / "cookbook")
    config = Config(
        learning_rate=flags.learning_rate,
        dataset_builder=BatchesBuilder(batches=batches),
        model_name=str(flags.taught),
        recipe_name="rolltap_learn",
        max_tokens=ANSWER_TOKENS,
        log_path=logs,
        eval_every=0,
        save_every=0,
        num_groups_to_log=0,
        loss_fn="importance_sampling",
        rollout_error_tolerance=FromFeed(),
    )
    dataset, _ = await config.dataset_builder()
    logger = MultiplexLogger([JsonLogger(logs), Told(steps, batches)])
    await do_sync_training(
        start_batch=0,
        end_batch=flags.steps,
        num_batches=flags.steps,
        config=config,
        training_client=client,
        kl_reference_client=None,
        evaluators=[],
        dataset=dataset,
        ml_logger=logger,
        tokenizer=get_tokenizer(config.model_name),
        strategy=config.effective_rollout_strategy(),
        # The manager saves nothing, because there is no service that stores checkpoints.
        checkpoint_mgr=CheckpointManager(client, None, logs, store=logger.store),
    )


if __name__ == "__main__":
    launch.launch(launch.parser_of_another("tinker", __doc__), run, "choose another --out to begin anew")
