"""Harbor tasks for verifiers' v1 interface (package `verifiers` 0.4.0): a taskset, and a harness that types.

verifiers finds both by the id `rolltap_terminal`. `TerminalHarness` owns the loop and asks verifiers' own endpoint for
answers, so that verifiers records them, with token ids where its client is the one for training; the terminals are those
of `rolltap env`. Where agents of rolltap run whole trials instead, there is `rolltap.trainers.verifiers_run`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.configs.taskset import TasksetConfig
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import Task, TaskData
from verifiers.v1.taskset import Taskset
from verifiers.v1.trace import Trace
from verifiers.v1.utils.decorators import metric, reward

from rolltap.env.terminal import AsyncTerminalGymEnv
from rolltap.env.wire import DEFAULT_SERVER, EnvOptions, Step, checked

JUDGED = "rolltap"
"""Where a harness of rolltap leaves in `trace.info` what the task's verifier gave."""

DONE = ProgramResult(exit_code=0, stdout="", stderr="")
"""What verifiers is told of a harness without a program of its own."""


class HarborTaskData(TaskData):
    """A task directory."""

    task_dir: str


class HarborTask(Task[HarborTaskData]):
    """Judged by its own verifier, in the environment where the agent worked."""

    @property
    def key(self) -> str:
        """The task's name: the same wherever its directory lies."""
        return self.data.name or super().key

    @reward
    async def reward(self, trace: Trace) -> float:
        """The verifier's `reward`. Raises where a harness ran that is not rolltap's, for nobody judged then."""
        return float(_judged(trace)["reward"])

    @metric
    async def all_rewards(self, trace: Trace) -> dict[str, float]:
        """All that the verifier gave."""
        return dict(_judged(trace)["rewards"])


def _judged(trace: Trace) -> dict[str, Any]:
    if JUDGED not in trace.info:
        raise RuntimeError("no verifier ran: these tasks want the harness rolltap_terminal or rolltap_run")
    judged: dict[str, Any] = trace.info[JUDGED]
    return judged


class HarborTasksetConfig(TasksetConfig):
    """Where the tasks are."""

    tasks_dir: Path
    """A task directory, or a directory of such."""


class HarborTaskset(Taskset[HarborTask, HarborTasksetConfig]):
    """The tasks of a directory, by name."""

    def load(self) -> Iterator[HarborTask]:
        """One task per directory with a task.toml."""
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


class TerminalHarnessConfig(HarnessConfig):
    """Where terminals are had, and how they are made."""

    server: str = DEFAULT_SERVER
    """Of `rolltap env`."""
    environment: Literal["docker", "local"] | None = None
    terminal: Literal["screen", "tmux"] | None = None
    format: Literal["json", "xml"] | None = None
    lease_seconds: float | None = None

    def options(self) -> EnvOptions:
        """What of it the server is told."""
        named = ("environment", "terminal", "format", "lease_seconds")
        made: EnvOptions = {name: value for name in named if (value := getattr(self, name)) is not None}  # type: ignore[assignment]
        return made


class TerminalHarness(Harness[TerminalHarnessConfig]):
    """Shows a terminal to the model and types what it answers, until the task is complete or verifiers ends the run.

    However it ends, the task's verifier judges what was done. Limits on turns and tokens are verifiers' own.
    """

    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: ModelContext,
        trace: Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: HarborTaskData,
    ) -> ProgramResult:
        """One episode."""
        terminal = AsyncTerminalGymEnv(data.task_dir, server=self.config.server, **self.config.options())
        headers = {"authorization": f"Bearer {secret}"}
        async with terminal, httpx.AsyncClient(headers=headers, timeout=None) as http:
            _, info = await terminal.reset()
            messages = [{"role": "user", "content": info["prompt"]}]
            step: Step | None = None
            while step is None or not step.done:
                body = {"model": ctx.model, "messages": messages}
                said = await http.post(f"{endpoint.rstrip('/')}/chat/completions", json=body)
                if trace.stop_condition is not None:
                    step = await terminal.finish()
                    break
                said.raise_for_status()
                content = said.json()["choices"][0]["message"].get("content") or ""
                step = await terminal.step(content)
                messages.append({"role": "assistant", "content": content})
                messages.append({"role": "user", "content": step.observation})
        trace.info[JUDGED] = {"reward": checked(step).reward, "rewards": step.info.get("rewards", {})}
        return DONE
