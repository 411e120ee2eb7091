"""Runs verifiers' own agent at Harbor tasks: `python verifiers_terminal.py MODEL BASE_URL [TASKS_DIR]`.

The command line for the same is `vf-eval rolltap_verifiers --env.taskset.tasks_dir DIR …`
(docs/how-to/trainers/verifiers.md).
"""

import asyncio
import sys

from verifiers.v1.agent import Agent
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

from rolltap.env import serve

model, base_url = sys.argv[1:3]
tasks_dir = sys.argv[3] if len(sys.argv) > 3 else "../examples/tasks"

taskset = load_taskset(
    taskset_config_type("rolltap_verifiers").model_validate({"id": "rolltap_verifiers", "tasks_dir": tasks_dir})
)


async def main() -> None:
    with serve() as server:
        config = AgentConfig.model_validate(
            {
                "model": model,
                "client": {"type": "eval", "base_url": base_url},
                "harness": {"id": "rolltap_verifiers", "mode": {"type": "terminal", "server": server}},
                "runtime": {"type": "subprocess"},
                "max_turns": 20,
            }
        )
        for task in taskset:
            trace = await Agent(config).run(task)
            print(f"{task.data.name}: reward {trace.reward}, {trace.num_turns} turns, {trace.stop_condition}")


asyncio.run(main())
