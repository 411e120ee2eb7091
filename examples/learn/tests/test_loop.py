"""What is sampled while the trainer steps."""

from __future__ import annotations

import subprocess
from concurrent.futures import Future
from typing import Any

from loop import Sampling


class Jobs:
    """Batches that end as soon as they are looked at."""

    def __init__(self) -> None:
        self.begun: list[int] = []

    def start(self, number: int) -> subprocess.Popen[bytes]:
        self.begun.append(number)
        return self  # type: ignore[return-value]

    def poll(self) -> int:
        return 0

    def ended(self, *_: Any) -> None:
        pass

    def results(self, _: int) -> list[dict[str, Any]]:
        return []


class Watched(Sampling):
    """The trainer's step is done when sampling has gone on eight times."""

    step_done: Future[dict[str, float]]
    times = 0

    def go_on(self, step: int) -> None:
        super().go_on(step)
        self.times += 1
        if self.times == 8:
            self.step_done.set_result({"reward": 0.5})


def test_as_many_batches_as_it_may_be_ahead_begin_while_the_trainer_steps() -> None:
    """Regression: a batch ends a moment after its last group, when the trainer was busy already; none was ever ahead."""
    for ahead in (0, 1, 2):
        jobs = Jobs()
        sampling = Watched(jobs, None, 0, 10, ahead, print)  # type: ignore[arg-type]
        sampling.step_done = Future()
        assert sampling.go_on_until(sampling.step_done, 0) == {"reward": 0.5}
        assert jobs.begun == list(range(ahead + 1))
