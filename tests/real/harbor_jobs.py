"""Runs and reads jobs with Harbor's own code.

`run FILE NAME` runs a job file as Harbor's command line does. `read DIR` reads a job directory with Harbor's own models
and prints the job as JSON: its attempts, agents and locked tasks, its statistics without the names of trials, and the
task, agent, source, rewards, exception, validity and verifier mode of each trial.
"""

import asyncio
import json
import sys
from pathlib import Path

import yaml
from harbor.job import Job
from harbor.models.job.config import JobConfig
from harbor.models.job.lock import JobLock, TrialLock
from harbor.models.job.result import JobResult
from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.utils.pass_at_k import compute_pass_at_k_by_evals

from short_lived import overlay_in


def as_floats(numbers: dict) -> dict:
    return {name: float(number) for name, number in numbers.items()}


def stats_of(result: JobResult) -> dict:
    stats = result.stats
    return {
        "completed": stats.n_completed_trials,
        "errored": stats.n_errored_trials,
        "pending": stats.n_pending_trials,
        "running": stats.n_running_trials,
        "cancelled": stats.n_cancelled_trials,
        "retries": stats.n_retries,
        "total": result.n_total_trials,
        "evals": {
            key: {
                "n_trials": evals.n_trials,
                "n_errors": evals.n_errors,
                "metrics": [as_floats(metric) for metric in evals.metrics],
                "pass_at_k": evals.pass_at_k,
                "rewards": {
                    name: {str(float(value)): len(trials) for value, trials in values.items()}
                    for name, values in evals.reward_stats.items()
                },
                "exceptions": {name: len(trials) for name, trials in evals.exception_stats.items()},
            }
            for key, evals in stats.evals.items()
        },
    }


async def run(file: Path, name: str) -> None:
    config = JobConfig.model_validate(yaml.safe_load(file.read_text()))
    config.job_name = name
    config.environment.extra_docker_compose = [overlay_in(file.parent)]
    job = await Job.create(config)
    await job.run()


def read(job: Path) -> None:
    config = JobConfig.model_validate_json((job / "config.json").read_text())
    lock = JobLock.model_validate_json((job / "lock.json").read_text())
    result = JobResult.model_validate_json((job / "result.json").read_text())
    trials = []
    for path in sorted(job.glob("*/result.json")):
        trial = TrialResult.model_validate_json(path.read_text())
        TrialConfig.model_validate_json((path.parent / "config.json").read_text())
        TrialLock.model_validate_json((path.parent / "lock.json").read_text())
        assert trial.trial_name == path.parent.name, trial.trial_name
        trials.append(trial)
    # The result must have the pass@k values that Harbor computes from the trials.
    recomputed = compute_pass_at_k_by_evals(trials)
    said = {key: evals.pass_at_k for key, evals in result.stats.evals.items() if evals.pass_at_k}
    assert recomputed == said, (recomputed, said)
    told = {
        "attempts": config.n_attempts,
        "agents": [agent.name for agent in config.agents],
        "locked": sorted({trial.task.name.split("/")[-1] for trial in lock.trials}),
        "stats": stats_of(result),
        "trials": sorted(
            (
                {
                    "task": trial.task_name,
                    "agent": trial.agent_info.name,
                    "source": trial.source,
                    "rewards": as_floats(trial.verifier_result.rewards) if trial.verifier_result else None,
                    "exception": trial.exception_info.exception_type if trial.exception_info else None,
                    "reward_valid": trial.reward_valid,
                    "mode": trial.verifier_environment_mode,
                }
                for trial in trials
            ),
            key=lambda trial: json.dumps(trial, sort_keys=True),
        ),
    }
    print(json.dumps(told, sort_keys=True))


match sys.argv[1:]:
    case ["run", file, name]:
        asyncio.run(run(Path(file), name))
    case ["read", job]:
        read(Path(job))
    case other:
        sys.exit(f"neither `run FILE NAME` nor `read DIR`: {other}")
