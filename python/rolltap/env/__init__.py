"""Offers terminals at Harbor tasks as environments with `reset` and `step`, served by `rolltap env`.

`AsyncTerminalGymEnv` and the blocking `TerminalGymEnv` are clients of a server, and `serve` starts a server. The server
has the containers and terminals, reads the answers of models, and runs the verifiers. For Gymnasium see
`rolltap.env.gymnasium_env`.

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
