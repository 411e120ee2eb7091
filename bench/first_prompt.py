"""Measures the time from a trial's start to its first prompt, for `just bench first-prompt`.

The two sides alternate. Terminus-2 runs in Harbor's own trial, in this process, in its fastest configuration. It does
not record the session, because the recording needs a second program. An init makes the container stop at once. The
start of a trial is the time in its result.
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

OVERLAY = {"services": {"main": {"init": True, "stop_grace_period": "1s"}}}
DONE = json.dumps({"analysis": "", "plan": "", "commands": [], "task_complete": True})


class Model(ThreadingHTTPServer):
    """Records the time of its first request, and answers that the task is complete."""

    first_prompt: datetime | None = None

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Model

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": "done", "object": "model"}]})

    def do_POST(self) -> None:
        if self.server.first_prompt is None:
            self.server.first_prompt = datetime.now(UTC)
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": DONE}
        self.answer(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "done",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        )

    def answer(self, body: dict) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args) -> None:
        pass


def seconds_to_prompt(model: Model, result: Path) -> float:
    started = json.loads(result.read_text())["started_at"]
    assert model.first_prompt is not None, f"the model was never asked: {result.read_text()}"
    return (model.first_prompt - datetime.fromisoformat(started.replace("Z", "+00:00"))).total_seconds()


def ours(program: str, task: str) -> float:
    model = Model()
    with tempfile.TemporaryDirectory() as jobs:
        command = [program, "run", "-p", task, "-a", "terminal", "-m", "done", "--upstream", model.url]
        # The task is not solved, but that does not make the run fail.
        subprocess.run([*command, "--jobs-dir", jobs, "--job-name", f"bench-{os.getpid()}"], check=True, stdout=sys.stderr)
        [result] = Path(jobs).glob("*/*/result.json")
        return seconds_to_prompt(model, result)


def theirs(task: str) -> float:
    os.environ |= {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "dummy"}
    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
    from harbor.trial.trial import Trial

    model = Model()
    with tempfile.TemporaryDirectory() as trials:
        overlay = Path(trials, "overlay.json")
        overlay.write_text(json.dumps(OVERLAY))
        options = {"api_base": model.url, "record_terminal_session": False, "enable_summarize": False}
        config = TrialConfig(
            task=TaskConfig(path=Path(task)),
            trial_name=f"bench-{os.getpid()}",
            trials_dir=Path(trials),
            agent=AgentConfig(name="terminus-2", model_name="openai/done", kwargs=options),
            environment=EnvironmentConfig(type="docker", extra_docker_compose=[overlay]),
        )

        async def trial() -> None:
            with contextlib.redirect_stdout(sys.stderr):
                await (await Trial.create(config)).run()

        asyncio.run(trial())
        [result] = Path(trials).glob("*/result.json")
        return seconds_to_prompt(model, result)


def spread(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} s (median of {len(times)}; {min(times):.2f} to {max(times):.2f})"


def main(program: str, task: str, rounds: int) -> None:
    our, their = [], []
    for _ in range(rounds):
        our.append(ours(program, task))
        their.append(theirs(task))
    ratio = statistics.median(our) / statistics.median(their)
    print(f"first prompt: terminal {spread(our)}, terminus-2 {spread(their)}, ratio {ratio:.3f} (goal 0.2)")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
