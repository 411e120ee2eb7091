"""Terminals at Harbor tasks as environments with `reset` and `step`, served by `rolltap env`.

`AsyncTerminalGymEnv` and its twin `TerminalGymEnv` speak to a server, `serve` starts one. All else is the server's:
containers, terminals, how answers of models are read, verifiers. For Gymnasium see `rolltap.env.gymnasium_env`.

    with serve() as server, TerminalGymEnv("tasks/hello-file", server=server) as env:
        observation, info = env.reset()
        observation, reward, done, info = env.step({"keystrokes": "ls\\n"})
"""

from rolltap.env.server import serve
from rolltap.env.terminal import AsyncTerminalGymEnv, TerminalGymEnv
from rolltap.env.wire import (
    Action,
    Command,
    Commands,
    EnvOptions,
    GitTask,
    ResetInfo,
    Step,
    StepInfo,
    Task,
    UnverifiedError,
    checked,
)

__all__ = [
    "Action",
    "AsyncTerminalGymEnv",
    "Command",
    "Commands",
    "EnvOptions",
    "GitTask",
    "ResetInfo",
    "Step",
    "StepInfo",
    "Task",
    "TerminalGymEnv",
    "UnverifiedError",
    "checked",
    "serve",
]
