"""Lets verifiers (package `verifiers` 0.4.0) find rolltap's taskset and harness, by the id `rolltap_verifiers`.

An id of verifiers is the name of a module without a dot, and a module has at most one harness. The harness therefore
has a mode for each way to run a rollout.
"""

from __future__ import annotations

from typing import Annotated, Union

from pydantic import Field
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import TaskData
from verifiers.v1.trace import Trace

from rolltap.trainers.verifiers import AgentMode
from rolltap.trainers.verifiers_run import RunMode
from rolltap.trainers.verifiers_terminal import HarborTaskset, TerminalMode

# verifiers takes the taskset and the harness from this list. A second subclass of its Harness here would be an error.
__all__ = ["HarborTaskset", "RolltapHarness"]


class RolltapHarnessConfig(HarnessConfig):
    """The mode, with its own fields: `mode.type` is `agent`, `run` or `terminal`."""

    mode: Annotated[Union[AgentMode, RunMode, TerminalMode], Field(discriminator="type")] = TerminalMode()
    """`agent`: a Python function behind a running proxy, at any taskset. `run`: trials of `rolltap run`, at Harbor
    tasks. `terminal`: terminals of `rolltap env`, at Harbor tasks, with model calls to verifiers' own endpoint."""


class RolltapHarness(Harness[RolltapHarnessConfig]):
    """Runs each rollout in the mode of the configuration."""

    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: ModelContext,
        trace: Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ProgramResult:
        """Runs one rollout and adds its tokens to `trace`. Raises the errors of the mode."""
        await self.config.mode.run(ctx, trace, runtime, endpoint, secret, data)
        # The modes have no program in verifiers' runtime, so there is no output to return.
        return ProgramResult(exit_code=0, stdout="", stderr="")
