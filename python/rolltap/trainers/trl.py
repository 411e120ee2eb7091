"""TRL (package `trl` 1.16.0): samples and a rollout worker for its asynchronous GRPO trainer.

A line of `rolltap export --format trl` is a `RolloutSample`. `RolloutWorker` gives the same straight from the proxy's
feed, to `AsyncGRPOTrainer(rollout_worker=…)`; `rollout_func` runs an agent per prompt for `GRPOTrainer(rollout_func=…)`.
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
"""From the rewards of a group, those that are valid, to what each is worth."""


def sample(line: Mapping[str, Any]) -> RolloutSample:
    """The sample of an exported line."""
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
    """As TRL's own worker does it: the distance from the mean, in standard deviations."""
    mean, deviation = fmean(rewards), pstdev(rewards)
    return [(reward - mean) / (deviation + 1e-8) for reward in rewards]


def group_samples(group: Sequence[Trial], group_id: int, advantages: Advantages = normalised) -> list[RolloutSample]:
    """The samples of a whole group, read with `prepare=Prepare()`: one per branch that trains something, each with its
    trial's advantage."""
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
    """Hands each closed group of the feed to `AsyncGRPOTrainer`, as soon as it is there.

    Agents run elsewhere (`rolltap run`, or whatever opens trials at the proxy) against the vLLM that the trainer puts
    its weights into. Each new version of these is named at the proxy, so that tokens bear the number of the trainer's
    own step. A trial that was complete only after its group had closed is counted and left out, for what it would have
    been compared with is trained already; so is one of no group, which there is nothing to compare with.
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
        """After the last group that is whole in the queue. What the trainer has not taken from there yet is before it."""
        self._client = Client(url, token=token)
        self._advantages = advantages
        self._numbers = itertools.count()
        self._is_named = False
        self._stopped = threading.Event()
        self._alive_at = time.time()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="rolltap-rollouts", daemon=True)

    def start(self) -> None:
        """Begins to read. Where the trainer has named no weights yet, those that are served are its step 0."""
        if not self._is_named:
            self.update_model_version(0)
        self._thread.start()

    def stop(self) -> None:
        """Ends within a few seconds."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=15)
        self._client.close()

    def update_model_version(self, model_version: int) -> None:
        """Names the trainer's new weights at the proxy."""
        self._is_named = True
        self._client.set_policy(model_version)

    def check_health(self, stale_after_s: float) -> None:
        """Raises where reading has failed, or the proxy has not answered for so long."""
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
                self.cursor = group[-1]["cursor"]
        except Exception as error:  # noqa: BLE001  (the trainer asks for it in check_health)
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
        """One of the feed's: an empty one is a sign of life too, and shows whether to stop."""
        try:
            asked = self._client.rollouts(after=after, wait=2, closed_groups=True, follow=False, prepare=Prepare())
            yield from asked
            self._alive_at = time.time()
        except (httpx.TransportError, RolltapError) as error:
            if not passes(error):
                raise
            # How long that may last is the trainer's to say, in check_health.
            self._stopped.wait(1)

    def _put(self, made: RolloutSample) -> bool:
        """Whether it is in the queue; it is not where the worker was stopped first."""
        while not self._stopped.is_set():
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
    """A function for `GRPOTrainer(rollout_func=…)` that runs the agent once per prompt.

    The agent gets `{"prompt": …}`. TRL takes one sequence per prompt, so a forked trial gives the branch that trains
    the most. A trial that sampled nothing gives two tokens that are not trained, and no reward. `reward` in what the
    function returns reaches the reward functions: give `passed_on` as one.
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
    """A reward function of TRL that gives back what the trials earned; None where that is not known."""
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
