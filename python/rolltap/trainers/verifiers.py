"""verifiers' v1 interface (package `verifiers` 0.4.0): traces, and a harness that runs an agent behind the proxy.

A line of `rolltap export --format verifiers` is a trace. `RolltapHarness` fills the traces of verifiers' own rollouts while
they run; verifiers finds it by the id `rolltap_harness`.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.graph import MessageNode
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import TaskData
from verifiers.v1.trace import Trace, WireTrace
from verifiers.v1.types import AssistantMessage, UserMessage

from rolltap.client import DEFAULT_URL, AsyncClient
from rolltap.prepare import Prepare, usable
from rolltap.row import PreparedRow
from rolltap.sampling import of_a_trial


def trace(line: Mapping[str, Any]) -> WireTrace:
    """The trace of an exported line, logprobs to the last bit."""
    return WireTrace.model_validate_json(json.dumps(line))


class RolltapHarnessConfig(HarnessConfig):
    """Where the proxy is, and which agent runs."""

    agent: str
    """`module:function` of an agent; what it returns counts for nothing here, because the task judges."""
    url: str = DEFAULT_URL
    """The proxy's admin plane."""
    token: str | None = None


class RolltapHarness(Harness[RolltapHarnessConfig]):
    """Runs the agent as a trial at the proxy, and puts what was captured into the trace.

    The model calls go through the proxy, not through verifiers' own interception, so its limits on turns and tokens do
    not reach them; say such limits in the proxy's configuration. The agent gets `prompt`, `task` (verifiers' `TaskData`)
    and `runtime`. Nodes hold tokens, not words: rewards of the task look at the runtime.
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
        data: TaskData,
    ) -> ProgramResult:
        """One trial."""
        module, _, name = self.config.agent.partition(":")
        agent = getattr(importlib.import_module(module), name)
        sampling = of_a_trial(ctx.sampling.model_dump())
        async with AsyncClient(self.config.url, token=self.config.token) as client:
            trial = await client.open_trial(
                str(data.name or data.id or data.idx), model=ctx.model, sampling=sampling
            )
            try:
                await agent(trial, {"prompt": data.prompt, "task": data, "runtime": runtime})
            finally:
                await client.seal(trial.trial_id)
            # verifiers' task judges later, so the proxy has no reward yet: the trial is trained all the same.
            prepared = usable(await client.prepared(trial.trial_id, Prepare("mask", failed="zero")))
            trace.nodes.extend(branch_nodes(prepared["rows"], len(trace.nodes)))
        return ProgramResult(exit_code=0, stdout="", stderr="")


def branch_nodes(rows: Sequence[PreparedRow], first: int) -> Iterator[MessageNode]:
    """The nodes of all branches, numbered from `first`; an answer that branches share is one."""
    known: dict[tuple[str, int], int] = {}
    for row in rows:
        mask = row["trainable_mask"]
        parent, place = None, 0
        for call in row["calls"]:
            answer, start, end = (call["call_id"], call["choice_index"]), call["start"], call["end"]
            if answer not in known:
                yield _context(row["token_ids"][place:start], parent)
                known[answer] = first + 1
                yield _answer(row, mask, start, end, first)
                first += 2
            parent, place = known[answer], end


def _context(ids: list[int], parent: int | None) -> MessageNode:
    mask = [False] * len(ids)
    return MessageNode(parent=parent, message=UserMessage(content=""), token_ids=ids, mask=mask)


def _answer(row: PreparedRow, mask: Sequence[int], start: int, end: int, parent: int) -> MessageNode:
    return MessageNode(
        parent=parent,
        message=AssistantMessage(),
        sampled=True,
        token_ids=row["token_ids"][start:end],
        mask=[trained == 1 for trained in mask[start:end]],
        logprobs=list(compress(row["logprobs"][start:end], mask[start:end])),
    )
