"""Writes the tasks and the job file of the service, and reads the results of its trials."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from agent_formats import Agent
from engine import SERVED

from rolltap.row import Trial

TASKS = Path(__file__).parent / "tasks"
BASE = "debian:bookworm-slim"
"""The image that the Dockerfiles of the tasks name."""
ANSWER_TOKENS = 160
SERVICE = "service"
"""The directory of the service in a run's folder."""


def copy_tasks(folder: Path, base_image: str, names: Sequence[str], groups: int) -> list[str]:
    """Copies each task once for each of its groups in a step, and returns the names of the copies. They use
    `base_image` instead of the default image.

    The copies differ only in their names, so that each group of a step has a name of its own.
    """
    copies = []
    for name in names:
        for number in range(1, groups + 1):
            copies.append(f"{name}-{number}")
            copy = folder / copies[-1]
            if not copy.exists():
                shutil.copytree(TASKS / name, copy)
                _replace(copy / "environment" / "Dockerfile", BASE, base_image)
                _replace(copy / "task.toml", f"rolltap/learn-{name}", f"rolltap/learn-{name}-{number}")
    return copies


def _replace(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


def write_job(
    file: Path, tasks: Path, upstream: str, *, agent: Agent, environment: str, concurrency: int, max_turns: int
) -> None:
    """Writes the job file of the service. Its directory, with the captures and all trials, is beside the file."""
    job = {
        "job_name": SERVICE,
        "jobs_dir": str(file.parent),
        "n_concurrent_trials": concurrency,
        "datasets": [{"path": str(tasks)}],
        "agents": [{"name": agent.name, "model_name": SERVED, "kwargs": agent.options(max_turns)}],
        # A failure that the agent did not cause, such as a dead vLLM, is retried once vLLM is back.
        "retry": {"max_retries": 3, "min_wait_sec": 5.0, "wait_multiplier": 2.0},
        "rolltap": {
            "upstream": [upstream],
            "sampling": {"temperature": 1.0, "top_p": 1.0, "max_tokens": ANSWER_TOKENS},
            **({"environment": "local"} if environment == "local" else {}),
        },
    }
    file.write_text(json.dumps(job, indent=2))


def results(folder: Path, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Returns the results of these trials, which are in the run's folder."""
    files = [folder / SERVICE / trial["trial_id"] / "result.json" for trial in trials]
    return [json.loads(file.read_text()) for file in files if file.exists()]


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
