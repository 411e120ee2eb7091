"""Runs scripts with Harbor's own Terminus-2 in a Docker container of Harbor. Prints the results as one JSON object.

usage: terminus_2_scripts.py FOLDER < PLAN

The plan is JSON with `image`, `base_url`, `model` and `scripts`. Each script has a `name`, an `instruction`, the
`options` of Terminus-2's class, and `check`, a shell command that succeeds if the work is done.

The scripts share a container, since Harbor takes seconds to start a container. Each script has its own folder and tmux
server.
"""

import asyncio
import json
import logging
import os
import sys
from pathlib import Path

os.environ |= {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "dummy"}

from harbor.agents.terminus_2 import Terminus2
from harbor.environments.base import ExecResult
from harbor.environments.docker.docker import DockerEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths

from short_lived import overlay_in

AT_ONCE = 8


class Corner:
    """Gives one script its own working directory, tmux server and record of commands in the shared container.

    Commands run by `docker exec`. Harbor's `docker compose exec` costs 0.1 s more of CPU time per command, which would
    be most of the time of all scripts together.
    """

    default_user = None
    env_paths = None

    def __init__(self, container: str, name: str):
        self.container = container
        self.session_id = name
        self.folder = f"/corners/{name}"
        self.env = {"TMUX_TMPDIR": f"{self.folder}/tmux", "RECORD": f"{self.folder}/commands"}

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None) -> ExecResult:
        variables = [f"--env={name}={value}" for name, value in (self.env | (env or {})).items()]
        process = await asyncio.create_subprocess_exec(
            "docker", "exec", *variables, f"--workdir={cwd or self.folder + '/app'}", self.container, "bash", "-c", command,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode)


def environment_of(image: str, folder: Path) -> DockerEnvironment:
    environment = folder / "environment"
    environment.mkdir()
    return DockerEnvironment(
        environment_dir=environment,
        environment_name="scripts",
        # Names the project of Docker Compose: several runs of this program may share a Docker engine.
        session_id=f"terminus-2-scripts-{os.getpid()}",
        trial_paths=TrialPaths(folder),
        task_env_config=EnvironmentConfig(docker_image=image, workdir="/"),
        extra_docker_compose=[overlay_in(folder)],
    )


def steps_of(logs: Path) -> list[dict]:
    trajectory = json.loads((logs / "trajectory.json").read_text())
    return [step for step in trajectory["steps"] if step["source"] == "agent"]


def typed(steps: list[dict]) -> list:
    """Returns the keystrokes and the duration in seconds of each command in the trajectory."""
    calls = [call for step in steps for call in step.get("tool_calls") or []]
    return [
        [call["arguments"]["keystrokes"], call["arguments"]["duration"]]
        for call in calls
        if call["function_name"] == "bash_command"
    ]


def ended(steps: list[dict], is_alive: bool) -> str:
    """Returns why a run ended without an exception, in rolltap's terms, since Terminus-2 records no reason."""
    last = steps[-1] if steps else {}
    marks = any(call["function_name"] == "mark_task_complete" for call in last.get("tool_calls") or [])
    is_asked = "Are you sure you want to mark the task as complete?" in json.dumps(last.get("observation"))
    if marks and not is_asked:
        return "completed"
    return "max_turns" if is_alive else "terminal_closed"


async def run(script: dict, plan: dict, container: str, folder: Path) -> dict:
    logs = folder / script["name"]
    logs.mkdir()
    corner = Corner(container, script["name"])
    agent = Terminus2(
        logs_dir=logs,
        model_name=f"openai/{plan['model']}",
        api_base=plan["base_url"],
        record_terminal_session=False,
        **script["options"],
    )
    reward = None
    try:
        await agent.setup(corner)
        await agent.run(script["instruction"], corner, AgentContext())
        end = ended(steps_of(logs), await agent._session.is_session_alive())
        # Check only after a run without an exception: Harbor does not verify after an exception of this agent.
        reward = float((await corner.exec(script["check"])).return_code == 0)
    except Exception as error:
        logging.warning("%s: %s: %s", script["name"], type(error).__name__, error)
        end = f"failed: {type(error).__name__}"
    commands = await corner.exec('cat "$RECORD"; tmux kill-server')
    return {
        "ended": end,
        "reward": reward,
        "commands": (commands.stdout or "").splitlines(),
        "typed": typed(steps_of(logs)),
    }


async def main(folder: Path, plan: dict) -> None:
    environment = environment_of(plan["image"], folder)
    gate = asyncio.Semaphore(AT_ONCE)
    names = " ".join(script["name"] for script in plan["scripts"])

    async def one(script: dict, container: str) -> dict:
        async with gate:
            return await run(script, plan, container, folder)

    try:
        await environment.start(force_build=False)
        folders = f"mkdir -p /logs/agent; for name in {names}; do mkdir -p /corners/$name/tmux /corners/$name/app; done; hostname"
        made = await environment.exec(folders)
        assert made.return_code == 0, made
        container = made.stdout.strip()
        results = await asyncio.gather(*(one(script, container) for script in plan["scripts"]))
    finally:
        await environment.stop(delete=False)
    print(json.dumps({script["name"]: result for script, result in zip(plan["scripts"], results, strict=True)}))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    asyncio.run(main(Path(sys.argv[1]), json.load(sys.stdin)))
