"""Runs batches of trials. Each batch is one job of `rolltap run`, in Docker or in directories of this host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from engine import SERVED
from processes import Processes, Say

TASKS = Path(__file__).parent / "tasks"
BASE = "debian:bookworm-slim"
"""The image that the Dockerfiles of the tasks name."""
ANSWER_TOKENS = 160


def copy_tasks(folder: Path, base_image: str, names: Sequence[str], groups: int) -> None:
    """Copies each task once for each of its groups in a step. The copies use `base_image` instead of the default one.

    The copies differ only in their names, because a job has one group per task name.
    """
    for name in names:
        for number in range(1, groups + 1):
            copy = folder / f"{name}-{number}"
            if not copy.exists():
                shutil.copytree(TASKS / name, copy)
                _replace(copy / "environment" / "Dockerfile", BASE, base_image)
                _replace(copy / "task.toml", f"rolltap/learn-{name}", f"rolltap/learn-{name}-{number}")


def _replace(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


@dataclass(frozen=True)
class Batch:
    """Configures how each batch is sampled."""

    tasks: Path
    environment: str
    group_size: int
    concurrency: int
    max_turns: int


class Jobs:
    """Runs the batches of a run, which are numbered from 0."""

    def __init__(self, program: str, folder: Path, batch: Batch, proxy: str, processes: Processes) -> None:
        self._program, self._folder, self._batch, self._proxy = program, folder, batch, proxy
        self._processes = processes

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Starts this batch, or resumes it where it was interrupted."""
        job = {
            "job_name": name(number),
            "jobs_dir": str(self._folder),
            "n_attempts": self._batch.group_size,
            "n_concurrent_trials": self._batch.concurrency,
            "datasets": [{"path": str(self._batch.tasks)}],
            "agents": [
                {
                    "name": "terminal",
                    "model_name": SERVED,
                    "kwargs": {
                        "max_turns": self._batch.max_turns,
                        "max_tokens": ANSWER_TOKENS,
                        # A whole episode fits into the context, so an agent that fills the context has failed and needs
                        # no summary.
                        "enable_summarize": False,
                    },
                }
            ],
            # A failure that the agent did not cause, such as a dead server, is retried once the server is back.
            "retry": {"max_retries": 3, "min_wait_sec": 5.0, "wait_multiplier": 2.0},
            "rolltap": {
                "proxy": self._proxy,
                "sampling": {"temperature": 1.0, "top_p": 1.0},
                **({"environment": "local"} if self._batch.environment == "local" else {}),
            },
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{name(number)}.json"
        file.write_text(json.dumps(job, indent=2))
        return self._processes.start("trials", [self._program, "run", "-c", str(file), "--quiet"], dict(os.environ))

    def is_done(self, number: int, process: subprocess.Popen[bytes], say: Say) -> bool:
        """Records the end of the job and returns whether the batch is done. Failed trials (status 1) are not
        repeated; any other status repeats the job."""
        self._processes.end("trials", process)
        if process.returncode == 1:
            say(f"{name(number)}: a trial failed for a reason that is not the agent's; the group continues without it")
        elif process.returncode != 0:
            say(f"{name(number)} ended with status {process.returncode}; resuming it")
        return process.returncode in (0, 1)

    def last_words(self) -> str:
        """Returns the last log lines of the latest batch."""
        return self._processes.tail("trials")

    def results(self, number: int) -> list[dict[str, Any]]:
        """Returns the results of the batch's trials."""
        return [json.loads(path.read_text()) for path in (self._folder / name(number)).glob("*/result.json")]


def name(number: int) -> str:
    """Returns the name of the batch's job."""
    return f"batch-{number:03}"


def seconds(result: dict[str, Any], phase: str) -> float:
    """Returns the duration of a trial's phase in seconds, or 0 if the phase has not run to its end."""
    of = result.get(phase) or {}
    if not of.get("started_at") or not of.get("finished_at"):
        return 0.0
    return elapsed(of["started_at"], of["finished_at"])


def elapsed(begin: str, end: str) -> float:
    """Returns the seconds between two of rolltap's time stamps."""
    # The time stamps have nanoseconds, of which `fromisoformat` accepts six digits.
    first, last = (datetime.fromisoformat(time.rstrip("Z")[:26]) for time in (begin, end))
    return (last - first).total_seconds()
