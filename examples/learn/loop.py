"""Implements the loop: submit groups, train on those that are closed, hand the weights over. The service samples while
the trainer steps, within its budget of staleness."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import httpx
from processes import Say, Stopped
from rollouts import WAIT, Taken, take
from services import Services
from table import of_time
from trainer import Trainer, log_line

from rolltap import Client, Prepare, RolltapError
from rolltap.errors import passes

Answer = TypeVar("Answer")


class Sampling:
    """Submits the groups of each step to the service, and takes closed groups from its feed."""

    def __init__(self, services: Services, tasks: Sequence[str], group_size: int, first: int, steps: int) -> None:
        self._services, self._tasks, self._group_size = services, tasks, group_size
        self._next, self._steps = first, steps

    def submit(self, last: int) -> None:
        """Submits the groups of the steps up to `last`. What an earlier run submitted is not submitted twice."""
        for step in range(self._next, min(last + 1, self._steps)):
            for task in self._tasks:
                self._submit(step, task)
            self._next = step + 1

    def is_sampling(self, step: int) -> bool:
        """Returns whether a group of the steps up to this one is not closed."""
        active = self._ask(lambda client: list(client.submissions(active=True)))
        return any(one["request"]["metadata"]["step"] <= step for one in active)

    def take(self, step: int, cursor: str | None, prepare: Prepare | None = None, messages: bool = False) -> Taken:
        """Takes the groups of a step from the feed after the cursor. Takes fewer if a group has no complete trial, and
        raises `Stopped` if none has."""
        with self._services.client() as client:
            taken = take(client, cursor, len(self._tasks), lambda: not self.is_sampling(step), prepare, messages)
        if not taken.trials:
            raise Stopped(f"the groups of step {step} have no complete trial; see the folder of the service")
        return taken

    def _submit(self, step: int, task: str) -> None:
        key = f"step-{step}-{task}"
        self._ask(
            lambda client: client.submit(
                task, samples=self._group_size, metadata={"step": step}, idempotency_key=key, patience=0.0
            )
        )

    def _ask(self, what: Callable[[Client], Answer]) -> Answer:
        """Returns the answer of the service, which is restarted if it has died."""
        while True:
            self._services.watch()
            try:
                with self._services.client() as client:
                    return what(client)
            except (httpx.TransportError, RolltapError) as error:
                if not passes(error):
                    raise
                time.sleep(WAIT)


def learn(
    trainer: Trainer, services: Services, sampling: Sampling, folder: Path, *, steps: int, ahead: int, say: Say
) -> None:
    """Trains until `steps` steps are done."""
    state = trainer.state
    while state.step < steps:
        begin = time.monotonic()
        # The service holds the last of these steps back until the weights of this step are handed over.
        sampling.submit(state.step + ahead + 1)
        taken = sampling.take(state.step, state.cursor, messages=trainer.needs_messages)
        waited = time.monotonic() - begin
        times = of_time(services.admin, folder, taken)
        row = trainer.step(taken)
        trainer.hand_over(services)
        row |= {**times, "wait_s": waited, "wall_s": time.monotonic() - begin}
        say(log_line(row))
