"""Samples, a rollout worker and a rollout function for the GRPO trainers of TRL (package `trl` 1.16.0).

A line of `rolltap export --format trl` is a `RolloutSample`. `RolloutWorker` gives samples from the proxy's feed to
`AsyncGRPOTrainer(rollout_worker=…)`. `rollout_func` runs an agent per prompt for `GRPOTrainer(rollout_func=…)`.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

import httpx
import numpy as np
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from rolltap.client import DEFAULT_URL, AsyncClient, Client
from rolltap.errors import RolltapError, passes
from rolltap.prepare import Prepare, earned, prepared_rows
from rolltap.row import PreparedRow, Trial, response, stand_in
from rolltap.trial import Agent, run_trial, run_trials

Advantages = Callable[[Sequence[float]], Sequence[float]]
"""Maps the valid rewards of a group to their advantages, in the same order."""


def sample(line: Mapping[str, Any]) -> RolloutSample:
    """Returns the sample of an exported line."""
    return RolloutSample(
        prompt=[],
        completion=[],
        input_ids=np.asarray(line["input_ids"], dtype=np.int64),
        completion_mask=np.asarray(line["completion_mask"], dtype=np.int64),
        old_log_probs=np.asarray(line["old_log_probs"], dtype=np.float32),
        advantage=float(line["advantage"]),
        model_version=line["model_version"],
        group_id=line["group_id"],
        metrics=dict(line["metrics"]),
    )


def normalised(rewards: Sequence[float]) -> list[float]:
    """Returns the distance of each reward from the mean, in standard deviations, as TRL's own worker does."""
    mean, deviation = fmean(rewards), pstdev(rewards)
    return [(reward - mean) / (deviation + 1e-8) for reward in rewards]


def group_samples(group: Sequence[Trial], group_id: int, advantages: Advantages = normalised) -> list[RolloutSample]:
    """Returns the samples of a whole group that was read with `prepare=Prepare()`.

    There is one sample per branch with trained tokens, with the advantage of its trial. Trials without a valid reward
    have none.
    """
    valid = [(trial, reward) for trial in group if (reward := earned(trial)) is not None]
    worth = advantages([reward for _, reward in valid]) if valid else []
    return [
        sample(_line(trial, reward, row, advantage, group_id))
        for (trial, reward), advantage in zip(valid, worth)
        for row in prepared_rows(trial)
        if any(row["loss_mask"])
    ]


def _line(trial: Trial, reward: float, row: PreparedRow, advantage: float, group_id: int) -> dict[str, Any]:
    return {
        "input_ids": row["token_ids"],
        "completion_mask": row["loss_mask"],
        "old_log_probs": row["logprobs"],
        "advantage": advantage,
        "model_version": row["oldest_policy"],
        "group_id": group_id,
        "metrics": {
            "reward": reward,
            **{f"rewards/{name}": value for name, value in trial["rewards"].items()},
        },
    }


class RolloutWorker:
    """Gives each closed group of the feed to `AsyncGRPOTrainer`, as soon as the group closes.

    Agents run elsewhere (`rolltap run`, or any program that opens trials at the proxy), on the vLLM that gets the
    trainer's weights. The worker names each new version of the weights at the proxy, so that tokens have the number of
    the trainer's own step.

    Two kinds of trials are counted and left out. A trial that became complete after its group had closed has no others
    to be compared with, because they are trained already. A trial without a group has none at all.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        after: str | None = None,
        max_queued: int = 1024,
        advantages: Advantages = normalised,
    ) -> None:
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue(max_queued)
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue(4096)
        self.cursor = after
        """The position after the last group that is completely in the queue.

        Samples that the trainer has not yet taken from the queue are before this position.
        """
        self._client = Client(url, token=token)
        self._advantages = advantages
        self._numbers = itertools.count()
        self._is_named = False
        self._stopped = threading.Event()
        self._alive_at = time.time()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="rolltap-rollouts", daemon=True)

    def start(self) -> None:
        """Starts to read. If the trainer has not named any weights yet, names the served ones as its step 0."""
        if not self._is_named:
            self.update_model_version(0)
        self._thread.start()

    def stop(self) -> None:
        """Stops the worker and closes the client. Waits at most 15 s for the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=15)
        self._client.close()

    def update_model_version(self, model_version: int) -> None:
        """Names the trainer's new weights at the proxy."""
        self._is_named = True
        self._client.set_policy(model_version)

    def check_health(self, stale_after_s: float) -> None:
        """Raises RuntimeError if reading has failed, or if the proxy has not answered for `stale_after_s` seconds."""
        if self._failure is not None:
            raise RuntimeError(f"reading rollouts failed: {self._failure}") from self._failure
        silent = time.time() - self._alive_at
        if silent > stale_after_s:
            raise RuntimeError(f"the proxy has answered nothing for {silent:.0f} s")

    def _work(self) -> None:
        try:
            for group in self._groups():
                made = group_samples(group, next(self._numbers), self._advantages)
                if not all(map(self._put, made)):
                    return
                # Set after the whole group is queued: a restart may repeat a group, and skips no part of one.
                self.cursor = group[-1]["cursor"]
        except Exception as error:  # noqa: BLE001  (check_health raises it in the trainer)
            self._failure = error

    def _groups(self) -> Iterator[list[Trial]]:
        group: list[Trial] = []
        after = self.cursor
        while not self._stopped.is_set():
            for trial in self._answer(after):
                after = trial["cursor"]
                self._alive_at = time.time()
                if trial.get("late"):
                    self._count("rolltap/late_trials")
                    continue
                if trial["group_id"] is None:
                    self._count("rolltap/ungrouped_trials")
                    continue
                group.append(trial)
                if not trial.get("group_remaining"):
                    yield group
                    group = []

    def _answer(self, after: str | None) -> Iterator[Trial]:
        """Yields the trials of one answer of the feed.

        An empty answer also shows that the proxy is alive, and lets the worker check whether to stop.
        """
        try:
            asked = self._client.rollouts(after=after, wait=2, closed_groups=True, follow=False, prepare=Prepare())
            yield from asked
            self._alive_at = time.time()
        except (httpx.TransportError, RolltapError) as error:
            if not passes(error):
                raise
            # The trainer limits the duration of such errors with check_health.
            self._stopped.wait(1)

    def _put(self, made: RolloutSample) -> bool:
        """Puts the sample into the queue. Returns False if the worker was stopped before there was room."""
        while not self._stopped.is_set():
            # A full queue is no sign of a silent proxy.
            self._alive_at = made.enqueued_at = time.time()
            try:
                self.rollout_buffer.put(made, timeout=1)
            except queue.Full:
                continue
            return True
        return False

    def _count(self, what: str) -> None:
        try:
            self.metrics_queue.put_nowait({what: 1.0})
        except queue.Full:
            pass


def rollout_func(
    agent: Agent, url: str = DEFAULT_URL, *, token: str | None = None, task_id: str = "grpo", **opening: Any
) -> Callable[[Sequence[Any], Any], dict[str, list[Any]]]:
    """Returns a function for `GRPOTrainer(rollout_func=…)` that runs the agent once per prompt.

    The agent gets `{"prompt": …}`. TRL accepts one sequence per prompt, so a forked trial gives the branch with the
    most trainable tokens. A trial that sampled nothing gives two untrained tokens and no reward. The reward functions
    get `reward` from the result of the function: use `passed_on` as a reward function.
    """

    async def run_all(prompts: Sequence[Any]) -> list[Trial]:
        async with AsyncClient(url, token=token) as client:
            given = {"task_id": task_id, "prepare": Prepare(on_fork="longest"), **opening}
            runs = (run_trial(client, agent, {"prompt": prompt}, **given) for prompt in prompts)
            return await run_trials(runs)

    def run(prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {
            "prompt_ids": [],
            "completion_ids": [],
            "logprobs": [],
            "env_mask": [],
            "reward": [],
        }
        for trial in asyncio.run(run_all(prompts)):
            for name, value in _one_sequence(trial).items():
                columns[name].append(value)
        return columns

    return run


def passed_on(reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """A reward function of TRL that returns the trials' rewards. None if a reward is not valid."""
    return list(reward)


def _one_sequence(trial: Trial) -> dict[str, Any]:
    rows = prepared_rows(trial)
    prompt_ids, completion_ids, mask, logprobs = response(rows[0]) if rows else stand_in()
    return {
        "prompt_ids": prompt_ids,
        "completion_ids": completion_ids,
        "logprobs": logprobs,
        "env_mask": mask,
        "reward": earned(trial),
    }
