"""Harbor tasks for verifiers' v1 interface (package `verifiers` 0.4.0): a taskset, and rollouts at terminals.

verifiers finds the taskset by the id `rolltap_verifiers`. The harness of this id has `TerminalMode` as its default
mode, which runs the loop on terminals of `rolltap env`. It requests answers from verifiers' own endpoint, so that
verifiers records them, with token ids if verifiers uses its client for training. In `rolltap.trainers.verifiers_run`,
rolltap's agents run whole trials instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
from pydantic_config import BaseConfig
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.taskset import TasksetConfig
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task, TaskData
from verifiers.v1.taskset import Taskset
from verifiers.v1.trace import Trace
from verifiers.v1.utils.decorators import metric, reward

from rolltap.env.terminal import AsyncTerminalGymEnv
from rolltap.env.wire import DEFAULT_SERVER, EnvOptions, Step, checked

JUDGED = "rolltap"
"""The key of `trace.info` under which the harness of rolltap stores the numbers of the task's verifier."""


class HarborTaskData(TaskData):
    """A task directory."""

    task_dir: str


class HarborTask(Task[HarborTaskData]):
    """A Harbor task. Its own verifier judges the work, in the environment of the agent."""

    @property
    def key(self) -> str:
        """The task's name, which does not depend on the path of the task directory."""
        return self.data.name or super().key

    @reward
    async def reward(self, trace: Trace) -> float:
        """Returns the verifier's `reward`. Raises RuntimeError if another harness ran, which runs no verifier."""
        return float(_judged(trace)["reward"])

    @metric
    async def all_rewards(self, trace: Trace) -> dict[str, float]:
        """Returns all numbers of the verifier. Raises as `reward` does."""
        return dict(_judged(trace)["rewards"])


def _judged(trace: Trace) -> dict[str, Any]:
    if JUDGED not in trace.info:
        raise RuntimeError(
            "no verifier ran: these tasks want the harness rolltap_verifiers, with mode.type terminal or run"
        )
    judged: dict[str, Any] = trace.info[JUDGED]
    return judged


class HarborTasksetConfig(TasksetConfig):
    """The location of the tasks."""

    tasks_dir: Path | None = None
    """A task directory, or a directory of task directories. verifiers' command line makes a configuration without it
    first, so None is an error only when the tasks are loaded."""


class HarborTaskset(Taskset[HarborTask, HarborTasksetConfig]):
    """The tasks of a directory, in order of their names."""

    def load(self) -> Iterator[HarborTask]:
        """Yields one task per directory with a `task.toml`. Raises ValueError if there is none, or no `tasks_dir`."""
        if self.config.tasks_dir is None:
            raise ValueError("the taskset has no tasks: set its tasks_dir (--env.taskset.tasks_dir DIR)")
        root = self.config.tasks_dir.resolve()
        found = (
            [root]
            if (root / "task.toml").is_file()
            else sorted(path.parent for path in root.glob("*/task.toml"))
        )
        if not found:
            raise ValueError(f"no task directory at {root}: none has a task.toml")
        for path in found:
            instruction = (path / "instruction.md").read_text()
            yield HarborTask(
                HarborTaskData(name=path.name, prompt=instruction, task_dir=str(path)), self.config.task
            )


class TerminalMode(BaseConfig):
    """Shows a terminal to the model and types the model's answers, until the task is complete or verifiers stops it.

    In both cases the task's verifier judges the work. verifiers' own limits on turns and tokens apply. The fields are
    the environment server and the options of its environments.
    """

    type: Literal["terminal"] = "terminal"
    server: str = DEFAULT_SERVER
    """The address of `rolltap env`."""
    environment: Literal["docker", "local"] | None = None
    terminal: Literal["screen", "tmux"] | None = None
    format: Literal["json", "xml"] | None = None
    lease_seconds: float | None = None

    def options(self) -> EnvOptions:
        """Returns the options for the server. Omits those that are None: the server has defaults for them."""
        named = ("environment", "terminal", "format", "lease_seconds")
        made: EnvOptions = {name: value for name in named if (value := getattr(self, name)) is not None}  # type: ignore[assignment]
        return made

    async def run(
        self, ctx: ModelContext, trace: Trace, runtime: Runtime, endpoint: str, secret: str, data: HarborTaskData
    ) -> None:
        """Runs one episode. Raises UnverifiedError if the verifier failed."""
        terminal = AsyncTerminalGymEnv(data.task_dir, server=self.server, **self.options())
        headers = {"authorization": f"Bearer {secret}"}
        async with terminal, httpx.AsyncClient(headers=headers, timeout=None) as http:
            _, info = await terminal.reset()
            messages = [{"role": "user", "content": info["prompt"]}]
            step: Step | None = None
            while step is None or not step.done:
                body = {"model": ctx.model, "messages": messages}
                said = await http.post(f"{endpoint.rstrip('/')}/chat/completions", json=body)
                # verifiers has reached a limit: the response is no answer of the model.
                if trace.stop_condition is not None:
                    step = await terminal.finish()
                    break
                said.raise_for_status()
                content = said.json()["choices"][0]["message"].get("content") or ""
                step = await terminal.step(content)
                messages.append({"role": "assistant", "content": content})
                messages.append({"role": "user", "content": step.observation})
        trace.info[JUDGED] = {"reward": checked(step).reward, "rewards": step.info.get("rewards", {})}
