"""Runs Harbor's own Terminus-2 on this host, in an environment of rolltap.

Each command for the environment is a line of JSON on standard output, and its result is a line of JSON on standard
input. The first line of standard input has the task and the options. The last line of standard output has the outcome.
"""

import asyncio
import base64
import json
import logging
import os
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

# Characters of base64 in one command. Linux limits an argument to 128 KiB.
CHUNK = 60_000

told = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
# Libraries may print to standard output, where rolltap reads only commands and the result.
os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
start = json.loads(sys.stdin.readline())
os.environ["OPENAI_API_KEY"] = start["key"]

from harbor.agents.terminus_2 import Terminus2  # noqa: E402 (the key must be set first)
from harbor.environments.base import ExecResult  # noqa: E402
from harbor.models.agent.context import AgentContext  # noqa: E402
from harbor.models.task.config import MCPServerConfig  # noqa: E402


class Environment:
    """Has the members of a Harbor environment that Terminus-2 uses."""

    env_paths = None

    def __init__(self):
        self.session_id = start["session_id"]
        self.default_user = start["user"]
        self.trial_paths = SimpleNamespace(agent_dir=Path(start["logs"]))
        self.turn = asyncio.Lock()

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None) -> ExecResult:
        request = {"command": command, "cwd": cwd, "env": env or {}, "timeout_sec": timeout_sec, "user": user and str(user)}
        # One command at a time: the next line of standard input is its result.
        async with self.turn:
            told.write(json.dumps({"exec": request}) + "\n")
            answer = json.loads(await asyncio.to_thread(sys.stdin.readline))
        if answer["error"] is not None:
            raise RuntimeError(answer["error"])
        if answer["timed_out"]:
            raise TimeoutError(f"{command!r} took longer than {timeout_sec} s")
        return ExecResult(stdout=answer["stdout"], stderr=answer["stderr"], return_code=answer["return_code"])

    async def upload_file(self, source_path, target_path) -> None:
        text = base64.b64encode(Path(source_path).read_bytes()).decode()
        target = shlex.quote(str(target_path))
        await self.exec(f": > {target}")
        for at in range(0, len(text), CHUNK):
            await self.exec(f"printf %s {text[at : at + CHUNK]} | base64 -d >> {target}")

    async def download_file(self, source_path, target_path) -> None:
        result = await self.exec(f"base64 {shlex.quote(str(source_path))}")
        Path(target_path).write_bytes(base64.b64decode(result.stdout or ""))

    async def is_dir(self, path, user=None) -> bool:
        return (await self.exec(f"test -d {shlex.quote(str(path))}", user=user)).return_code == 0


async def main() -> dict:
    logs = Path(start["logs"])
    # Recording needs a program that most images do not have.
    options = {"record_terminal_session": False} | start["options"]
    environment, context = Environment(), AgentContext()
    options["mcp_servers"] = [MCPServerConfig(**server) for server in start["mcp_servers"]]
    options["skills_dir"] = start["skills_dir"]
    agent = Terminus2(logs_dir=logs, model_name=f"openai/{start['model']}", api_base=start["base_url"], **options)
    try:
        await agent.setup(environment)
        await agent.run(start["instruction"], environment, context)
    except Exception as error:
        return {"failed": {"kind": type(error).__name__, "message": str(error)}}
    finally:
        if context.rollout_details:
            (logs / "rollout_details.json").write_text(context.model_dump_json(include={"rollout_details"}))
    metadata = context.metadata or {}
    return {"done": {"turns": metadata.get("n_episodes"), "summarizations": metadata.get("summarization_count")}}


logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
told.write(json.dumps(asyncio.run(main())) + "\n")
