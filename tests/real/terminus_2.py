"""Runs Harbor's own Terminus-2 in a folder of this machine, through a proxy. Prints its `AgentContext` as JSON.

usage: terminus_2.py BASE_URL MODEL FOLDER MAX_TURNS INSTRUCTION
"""

import asyncio
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from harbor.agents.terminus_2 import Terminus2
from harbor.environments.base import ExecResult
from harbor.models.agent.context import AgentContext


class Folder:
    """Has the members of a Harbor environment that Terminus-2 uses, for a folder instead of a container."""

    session_id = "folder"
    default_user = None
    env_paths = None

    def __init__(self, root: Path):
        self.root = root
        self.logs = root / "logs"
        self.work = root / "work"
        (self.logs / "agent").mkdir(parents=True)
        self.work.mkdir()
        self.trial_paths = SimpleNamespace(agent_dir=self.logs / "agent")
        # The agent gets a tmux server of its own, apart from any other on this machine.
        self.env = os.environ | {"TMUX_TMPDIR": str(root), "HOME": str(root), "TERM": "xterm-256color"}
        self.env.pop("TMUX", None)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None) -> ExecResult:
        command = command.replace("/logs/", f"{self.logs}/")
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", command, cwd=cwd or self.work, env=self.env | (env or {}),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode)

    async def upload_file(self, source_path, target_path) -> None:
        shutil.copy(source_path, target_path)

    async def download_file(self, source_path, target_path) -> None:
        shutil.copy(source_path, target_path)

    async def is_dir(self, path, user=None) -> bool:
        return Path(path).is_dir()


async def run(base_url: str, model: str, folder: str, max_turns: str, instruction: str) -> None:
    environment = Folder(Path(folder))
    agent = Terminus2(
        logs_dir=environment.logs / "agent",
        model_name=f"openai/{model}",
        api_base=base_url,
        max_turns=int(max_turns),
        collect_rollout_details=True,
        record_terminal_session=False,
        enable_summarize=False,
        llm_call_kwargs={"max_tokens": 64},
        model_info={"max_input_tokens": 4096, "max_output_tokens": 64},
    )
    context = AgentContext()
    try:
        await agent.setup(environment)
        await agent.run(instruction, environment, context)
    finally:
        await environment.exec("tmux kill-server")
    print(context.model_dump_json())


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    os.environ.setdefault("OPENAI_API_KEY", "dummy")
    asyncio.run(run(*sys.argv[1:]))
