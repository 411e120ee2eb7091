"""A scripted model that knows the services and makes mistakes: the synthetic transcripts that the policy begins with are its.

It answers chat completions in the format of an agent (agent_formats.py), so the very agent that the policy will drive runs
its commands, in the same environment. It looks around more than it should, sometimes with commands that undo what is done,
sets wrong values, and leaves things out: about one episode in four succeeds. Every choice is one that training can unlearn.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from agent_formats import MUMBLED, Agent, Message
from processes import Stopped

MUMBLES = 0.04
"""Of the turns: says what is no answer, and is told so. Else a policy that does so for once knows no way back."""
LOOKS = 0.5
"""Of the turns: looks around instead of going on."""
UNDOES = 0.5
"""Of these: with a command that undoes something."""
WRONG = 0.06
"""Of the steps: done wrong."""
TWO = 0.4
"""Of the turns that go on: two steps at once."""
MENDS = 0.4
"""Of the starts that fail: sets right what the service complained about."""
AT_ONCE = 0.4
"""Of the starts: said to be the end in the same answer."""


@dataclass(frozen=True)
class Step:
    """One of the things to do."""

    says: str
    right: str
    wrong: str
    complaint: str
    """What the shell or the service says where it was not done."""


@dataclass(frozen=True)
class Service:
    """A task: what it takes, and what can be done to no purpose or to harm."""

    name: str
    steps: tuple[Step, ...]
    harmless: tuple[str, ...]
    harmful: tuple[str, ...]


def _service(name: str, setting: tuple[str, str, str], directory: str, script: str) -> Service:
    key, right, wrong = setting
    configuration = f"{name}.conf"
    return Service(
        name,
        (
            Step(
                f"Set {key}.",
                f"sed -i 's/^{key}=.*/{key}={right}/' {configuration}",
                f"sed -i 's/^{key}=.*/{key}={wrong}/' {configuration}",
                f"{key} is not {right}",
            ),
            Step(f"Make {directory}.", f"mkdir -p {directory}", f"touch {directory}", f"{directory}: no such"),
            Step(f"Make {script} executable.", f"chmod +x {script}", f"chmod -x {script}", "Permission denied"),
            Step(f"Start {name}.", f"./{script}", f"cat {script}", "nothing says so"),
        ),
        ("ls -l", f"cat {configuration}", "pwd"),
        (f"cp {configuration}.old {configuration}", f"rm -rf {directory}", f"chmod 644 {script}"),
    )


SERVICES = (
    _service("web", ("port", "8080", "8000"), "logs", "start.sh"),
    _service("queue", ("workers", "4", "0"), "spool", "run.sh"),
)


def answer(agent: Agent, messages: Sequence[Message], chance: random.Random) -> Message:
    """The next answer in this conversation."""
    last = messages[-1]
    # The task is in the first message, or behind the instructions of the agent's system message.
    start = "\n".join(message["content"] for message in messages[:2])
    service = next(one for one in SERVICES if f"The {one.name} service" in start)
    if agent.asks_to_confirm(last):
        return agent.says("It is done.", "Confirm.", [], done=True)
    typed = [command for message in messages if message["role"] == "assistant" for command in agent.commands(message)]
    if chance.random() < MUMBLES:
        return {"role": "assistant", "content": MUMBLED}
    if chance.random() < LOOKS:
        harm = chance.random() < UNDOES
        looks = chance.choice(service.harmful if harm else service.harmless)
        return agent.says("Let me see.", "Look.", [looks], done=False)
    left = [step for step in service.steps if step.right not in typed and step.wrong not in typed]
    if left:
        return _go_on(agent, left, chance)
    broken = next((step for step in service.steps[:-1] if step.complaint in last["content"]), None)
    if broken is not None and chance.random() < MENDS:
        return agent.says("It failed.", broken.says, [broken.right, service.steps[-1].right], done=False)
    return agent.says("It is done.", "Finish.", [], done=True)


def _go_on(agent: Agent, left: list[Step], chance: random.Random) -> Message:
    steps = left[: 2 if len(left) > 1 and chance.random() < TWO else 1]
    commands = [step.wrong if chance.random() < WRONG else step.right for step in steps]
    done = steps[-1] is left[-1] and chance.random() < AT_ONCE
    return agent.says("Go on." if len(steps) == 1 else "Two steps.", steps[-1].says, commands, done=done)


@contextlib.contextmanager
def serving(agent: Agent, seed: int) -> Iterator[str]:
    """The teacher of an agent as an OpenAI-compatible server, for as long as this runs: its URL."""
    chance = random.Random(seed)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send({"object": "list", "data": [{"id": "teacher", "object": "model", "max_model_len": 8192}]})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            # The proxy asks the server for other abilities, with an empty body.
            if not self.path.endswith("/chat/completions"):
                self.send_error(404)
                return
            request = json.loads(body)
            message = answer(agent, request["messages"], chance)
            choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            self._send(
                {"id": "t", "object": "chat.completion", "created": 0, "model": "teacher", "choices": [choice], "usage": usage}
            )

        def _send(self, body: dict[str, object]) -> None:
            payload = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def transcribe(
    agent: Agent, program: str, tasks: Path, folder: Path, *, samples: int, turns: int, concurrency: int, seed: int
) -> Path:
    """Has the agent work with the teacher, in directories of this host: the folder with its transcripts."""
    shutil.rmtree(folder, ignore_errors=True)
    options = [part for name, value in agent.options(turns).items() for part in ("--ak", f"{name}={json.dumps(value)}")]
    with serving(agent, seed) as url:
        command = [
            *(program, "run", "-p", str(tasks), "-a", agent.name, *options, "-e", "local", "--quiet"),
            *("--upstream", url, "-k", str(samples), "-n", str(concurrency), "-o", str(folder), "--job-name", "transcripts"),
            # The teacher gives no token ids: its words are what is learned.
            *("--no-preflight", "--max-empty-trials", "0"),
        ]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        raise Stopped(f"the teacher's job did not run:\n{done.stderr}")
    return folder / "transcripts"
