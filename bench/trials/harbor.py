"""Runs the same trials with Harbor in its fastest configuration, for `just bench trials`.

The image is built beforehand, and an init makes containers stop at once. No network is made per trial: on an engine
with default settings the 31st would fail. Prints the same kinds of figures as main.rs.
"""

import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

OVERLAY = {"services": {"main": {"init": True, "stop_grace_period": "1s", "network_mode": "bridge"}}}


def seconds(timing: dict) -> float:
    def parse(text: str) -> datetime:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))

    return (parse(timing["finished_at"]) - parse(timing["started_at"])).total_seconds()


def spread(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} s (median; {min(times):.2f} to {max(times):.2f})"


def run(task: str, trials: int, at_once: int) -> None:
    os.environ |= {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    # Harbor runs in this process, because its command line would need two more seconds to start.
    from harbor.job import Job
    from harbor.models.job.config import JobConfig

    with tempfile.TemporaryDirectory() as folder:
        overlay = Path(folder, "overlay.json")
        overlay.write_text(json.dumps(OVERLAY))
        config = JobConfig.model_validate(
            {
                "job_name": "bench",
                "jobs_dir": folder,
                "n_attempts": trials,
                "n_concurrent_trials": at_once,
                "quiet": True,
                "environment": {"type": "docker", "extra_docker_compose": [str(overlay)]},
                "agents": [{"name": "oracle"}],
                "tasks": [{"path": task}],
            }
        )

        async def job() -> None:
            with contextlib.redirect_stdout(sys.stderr):
                await (await Job.create(config)).run()

        begun = time.monotonic()
        asyncio.run(job())
        took = time.monotonic() - begun
        results = [json.loads(path.read_text()) for path in Path(folder, "bench").glob("*/result.json")]
        failed = [result["trial_name"] for result in results if result["exception_info"]]
        rewards = [
            (result["verifier_result"] or {"rewards": {}})["rewards"].get("reward") for result in results
        ]
        overheads = [
            seconds(result) - seconds(result["agent_execution"])
            for result in results
            if result["agent_execution"]
        ]
        print(
            f"harbor {trials} trials, {at_once} at once: overhead per trial {spread(overheads)}, "
            f"whole job {took:.2f} s, {rewards.count(1.0)} solved, {len(failed)} failed"
        )


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
