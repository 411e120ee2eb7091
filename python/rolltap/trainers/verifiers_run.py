"""Trials of `rolltap run` as rollouts of verifiers' v1 interface (package `verifiers` 0.4.0), and so of prime-rl.

The harness of `rolltap_verifiers` has `RunMode` as a mode. Its tasks are those of
`rolltap.trainers.verifiers_terminal`. Each rollout is a trial, with rolltap's environment, agent and verifier. The
trace has the tokens that the proxy captured.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field
from pydantic_config import BaseConfig
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.client import resolve_api_key
from verifiers.v1.graph import MessageNode
from verifiers.v1.runtimes import Runtime
from verifiers.v1.trace import Trace

from rolltap.lines import read_lines
from rolltap.program import find_program
from rolltap.row import Row
from rolltap.sampling import of_a_trial
from rolltap.trainers.verifiers import trace as exported_trace
from rolltap.trainers.verifiers_terminal import JUDGED, HarborTaskData


class RunMode(BaseConfig):
    """Runs the agent at the task with `rolltap run`, and puts the captured tokens into the trace.

    The model calls go through rolltap's proxy and not through verifiers' interception. verifiers' limits on turns and
    tokens therefore do not apply: set `max_turns` here. The fields are options for `rolltap run`: see
    `rolltap run --help`.
    """

    type: Literal["run"] = "run"
    agent: str = "terminal"
    """rolltap's terminal agent, or another agent of `rolltap agents`."""
    environment: Literal["docker", "harbor", "local"] = "docker"
    harbor_env: str | None = None
    """With environment `harbor`: Harbor's environment, such as docker, daytona or modal."""
    max_turns: int | None = None
    agent_kwargs: dict[str, Any] = Field(default_factory=dict)
    sampling: dict[str, Any] = Field(default_factory=dict)
    """Overrides the sampling parameters of verifiers."""
    upstream: str | None = None
    """A vLLM server. If None, the server of verifiers' client."""
    proxy: str | None = None
    """The admin plane of a running proxy. If None, each trial starts its own proxy in front of `upstream`."""
    jobs_dir: Path | None = None
    """The directory for logs and results of trials. If None, they are deleted after each trial."""
    program: str | None = None
    """The program. If None, the one that `rolltap.program.find_program` finds."""

    async def run(
        self, ctx: ModelContext, trace: Trace, runtime: Runtime, endpoint: str, secret: str, data: HarborTaskData
    ) -> None:
        """Runs one trial. Raises RuntimeError if it sampled nothing or has no valid reward."""
        program = find_program(self.program)
        with tempfile.TemporaryDirectory(prefix="rolltap-") as temporary:
            jobs_dir = self.jobs_dir or Path(temporary)
            command = [program, *self._arguments(ctx, jobs_dir, trace.id, data)]
            said = await _run(
                command, {**os.environ, "ROLLTAP_UPSTREAM_API_KEY": resolve_api_key(ctx.client)}
            )
            path = jobs_dir / trace.id / "rollouts.jsonl"
            rows = _rows(path)
            if not rows:
                raise RuntimeError(f"the trial sampled nothing: {said}")
            trace.nodes.extend(await _nodes(program, path, len(trace.nodes)))
        row = rows[0]
        if not row["reward_valid"] or row["reward"] is None:
            raise RuntimeError(f"the trial has no valid reward: {row['failure_cause']}")
        trace.info[JUDGED] = {"reward": row["reward"], "rewards": row["rewards"]}

    def _arguments(self, ctx: ModelContext, jobs_dir: Path, name: str, data: HarborTaskData) -> list[str]:
        arguments = ["run", "--quiet", "-o", str(jobs_dir), "--job-name", name, "-p", data.task_dir]
        arguments += ["-a", self.agent, "-e", self.environment, "-m", ctx.model]
        arguments += ["--sampling", json.dumps(self._sampling(ctx))]
        if self.proxy is not None:
            arguments += ["--proxy", self.proxy]
        else:
            arguments += ["--upstream", self.upstream or ctx.client.base_url]
        if self.harbor_env is not None:
            arguments += ["--harbor-env", self.harbor_env]
        if self.max_turns is not None:
            arguments += ["--max-turns", str(self.max_turns)]
        for option, value in self.agent_kwargs.items():
            arguments += ["--agent-kwarg", f"{option}={json.dumps(value)}"]
        return arguments

    def _sampling(self, ctx: ModelContext) -> dict[str, Any]:
        sampling = of_a_trial(ctx.sampling.model_dump()) or {}
        if ctx.sampling.max_tokens is not None:
            # In verifiers and prime-rl, `max_tokens` limits one turn, as in a call of the trial.
            sampling["max_tokens"] = ctx.sampling.max_tokens
        return {**sampling, **self.sampling}


async def _run(command: list[str], env: dict[str, str]) -> str:
    """Runs the command to its end and returns the end of its output.

    Raises RuntimeError for an exit status other than 0 and 1.

    A cancellation stops the command, waits until it has removed its containers, and is raised again.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        await process.communicate()
        raise
    said = output.decode(errors="replace").strip()[-2000:]
    # Status 1 is a failed trial, and its row has the cause.
    if process.returncode not in (0, 1):
        raise RuntimeError(f"`{command[0]} run` ended with {process.returncode}: {said}")
    return said


def _rows(path: Path) -> list[Row]:
    return [cast("Row", line) for line in read_lines(path)] if path.is_file() else []


async def _nodes(program: str, path: Path, first: int) -> list[MessageNode]:
    """Returns the nodes of the trial, numbered from `first`, with the masks of `rolltap export`.

    The masks do not depend on the reward, because the caller reports a failed trial to verifiers.
    """
    pipe = asyncio.subprocess.PIPE
    options = ["--format", "verifiers", "--failed", "zero", "--open-groups", "-o", "-"]
    command = [program, "export", str(path), *options]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    output, said = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"`{program} export` ended with {process.returncode}: {said.decode(errors='replace').strip()}")
    nodes: list[MessageNode] = []
    for line in output.splitlines():
        # Each exported line numbers its nodes from 0.
        begun = first + len(nodes)
        for node in exported_trace(json.loads(line)).nodes:
            nodes.append(node if node.parent is None else node.model_copy(update={"parent": begun + node.parent}))
    return nodes
