"""Starts an OpenEnv server for a Harbor task and runs an episode with OpenEnv's own client.

`python openenv_terminal.py [TASK_DIR] [docker|local]`
"""

import asyncio
import json
import sys
from typing import Literal

import uvicorn
from openenv.core import GenericEnvClient

from rolltap.env import serve
from rolltap.trainers.openenv import app

task_dir = sys.argv[1] if len(sys.argv) > 1 else "../examples/tasks/hello-file"
environment: Literal["docker", "local"] = "local" if sys.argv[2:] == ["local"] else "docker"
ANSWER = {
    "analysis": "A file is wanted.",
    "plan": "Write it.",
    "commands": [{"keystrokes": "echo 'Hello, world!' > /app/hello.txt\n", "duration": 0.5}],
    "task_complete": True,
}


async def episode(url: str) -> None:
    async with GenericEnvClient(base_url=url) as client:
        begun = await client.reset()
        print(begun.observation["prompt"])
        over = await client.step({"answer": json.dumps(ANSWER)})
        print(f"reward {over.reward}, done {over.done}")


async def main() -> None:
    with serve(["-e", environment]) as server:
        web = uvicorn.Server(
            uvicorn.Config(app(task_dir, server, environment=environment), port=0, log_level="warning")
        )
        serving = asyncio.create_task(web.serve())
        while not web.started:
            await asyncio.sleep(0.05)
        port = web.servers[0].sockets[0].getsockname()[1]
        await episode(f"http://127.0.0.1:{port}")
        web.should_exit = True
        await serving


asyncio.run(main())
