"""Implements the loop: sample a batch, train on it, hand the weights over. With `ahead`, sampling continues while
the trainer steps."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait

import httpx
from jobs import Jobs, name
from processes import Say, Stopped
from rollouts import Taken, take
from services import Services
from table import of_time
from trainer import Trainer, log_line

from rolltap import Prepare, RolltapError

FAILURES = 3
"""Failures of one batch's job in a row before the run stops. For example, a job fails at its start while the proxy
is down."""


class Sampling:
    """Runs the batches one after the other, at most `ahead` batches ahead of the trainer."""

    def __init__(self, jobs: Jobs, services: Services, first: int, batches: int, ahead: int, say: Say) -> None:
        self._jobs, self._services, self._say = jobs, services, say
        self._next, self._batches, self._ahead = first, batches, ahead
        self._running: tuple[int, subprocess.Popen[bytes]] | None = None
        self._failures = 0

    def go_on(self, step: int) -> None:
        """Records the end of a batch, and begins the next one unless it is too far ahead of the trainer's `step`."""
        if self._running is not None:
            number, process = self._running
            if process.poll() is None:
                return
            self._running = None
            if not self._jobs.is_done(number, process, self._say):
                self._again(number)
                return
            self._failures = 0
            self._close_groups(number)
        if self._next < self._batches and self._next <= step + self._ahead:
            self._running = (self._next, self._jobs.start(self._next))
            self._next += 1

    def go_on_until(self, done: Future[dict[str, float]], step: int) -> dict[str, float]:
        """Continues sampling while the trainer makes this step, and returns the step's figures."""
        while wait([done], timeout=0.2).not_done:
            self.go_on(step)
        return done.result()

    def is_sampling(self, number: int) -> bool:
        """Returns whether this batch may still bring trials."""
        return self._next <= number or (self._running is not None and self._running[0] <= number)

    def take(self, number: int, cursor: str | None, groups: int, prepare: Prepare | None = None) -> Taken:
        """Takes `groups` groups from the feed after the cursor, or fewer if the batches up to this one bring fewer.
        Raises `Stopped` if there is no trial."""

        def nothing_yet() -> bool:
            self._services.watch()
            over = not self.is_sampling(number)
            self.go_on(number)
            return over

        self.go_on(number)
        with self._services.client() as client:
            taken = take(client, cursor, groups, nothing_yet, prepare)
        if not taken.trials:
            raise Stopped(f"{name(number)} brought no complete trial; see its folder")
        return taken

    def _again(self, number: int) -> None:
        """Resumes a batch whose job failed. Raises `Stopped` after several failures in a row."""
        self._failures += 1
        if self._failures == FAILURES:
            raise Stopped(f"{name(number)} failed {FAILURES} times; its last words:\n{self._jobs.last_words()}")
        # The job may have failed because vLLM or the proxy is down.
        self._services.watch()
        self._running = (number, self._jobs.start(number))

    def _close_groups(self, number: int) -> None:
        """Closes the groups of a batch that has ended, so that the feed does not wait for missing samples."""
        for group in sorted({one["config"]["rolltap"]["group_id"] for one in self._jobs.results(number)}):
            while True:
                try:
                    with self._services.client() as client:
                        client.close_group(group)
                    break
                except httpx.TransportError:
                    self._services.watch()
                except RolltapError as error:
                    # The proxy was down when each trial of the group began, so it never had the group.
                    if error.status != 404:
                        raise
                    break


def learn(
    trainer: Trainer, services: Services, jobs: Jobs, *, steps: int, groups: int, ahead: int, say: Say
) -> None:
    """Trains until `steps` steps are done."""
    state = trainer.state
    sampling = Sampling(jobs, services, state.step, steps, ahead, say)

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainer") as beside:
        while state.step < steps:
            begin = time.monotonic()
            number = state.step
            taken = sampling.take(number, state.cursor, groups)
            times = of_time(services.admin, jobs.results(number))
            row = sampling.go_on_until(beside.submit(trainer.step, taken), number)
            trainer.hand_over(services)
            row |= {**times, "wall_s": time.monotonic() - begin}
            say(log_line(row))
