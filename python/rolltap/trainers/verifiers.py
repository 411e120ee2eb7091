"""Traces for verifiers' v1 interface (package `verifiers` 0.4.0), and rollouts of an agent behind the proxy.

A line of `rolltap export --format verifiers` is a trace. `AgentMode` fills the traces of verifiers' own rollouts. The
harness of `rolltap_verifiers` has it as a mode.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, Literal

from pydantic_config import BaseConfig
from verifiers.v1.clients import ModelContext
from verifiers.v1.graph import MessageNode
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import TaskData
from verifiers.v1.trace import Trace, WireTrace
from verifiers.v1.types import AssistantMessage, UserMessage

from rolltap.client import DEFAULT_URL, AsyncClient
from rolltap.prepare import Prepare, usable
from rolltap.row import PreparedRow
from rolltap.sampling import of_a_trial


def trace(line: Mapping[str, Any]) -> WireTrace:
    """Returns the trace of an exported line, with exact logprobs."""
    return WireTrace.model_validate_json(json.dumps(line))


class AgentMode(BaseConfig):
    """Runs an agent as a trial at the proxy, and puts the captured tokens into the trace.

    The model calls go through the proxy and not through verifiers' interception. verifiers' limits on turns and tokens
    therefore do not apply: set limits in the proxy's configuration. The agent gets `prompt`, `task` (verifiers'
    `TaskData`) and `runtime`. Nodes have tokens and no text, so rewards of the task must use the runtime.
    """

    type: Literal["agent"] = "agent"
    agent: str
    """`module:function` of an agent. Its result is ignored, because the task computes the reward."""
    url: str = DEFAULT_URL
    """The proxy's admin plane."""
    token: str | None = None

    async def run(
        self, ctx: ModelContext, trace: Trace, runtime: Runtime, endpoint: str, secret: str, data: TaskData
    ) -> None:
        """Runs one trial and adds the captured branches to `trace`."""
        module, _, name = self.agent.partition(":")
        agent = getattr(importlib.import_module(module), name)
        sampling = of_a_trial(ctx.sampling.model_dump())
        async with AsyncClient(self.url, token=self.token) as client:
            trial = await client.open_trial(
                str(data.name or data.id or data.idx), model=ctx.model, sampling=sampling
            )
            try:
                await agent(trial, {"prompt": data.prompt, "task": data, "runtime": runtime})
            finally:
                await client.seal(trial.trial_id)
            # The task of verifiers computes the reward later. `failed="zero"` trains the trial without a reward.
            prepared = usable(await client.prepared(trial.trial_id, Prepare("mask", failed="zero")))
            trace.nodes.extend(branch_nodes(prepared["rows"], len(trace.nodes)))


def branch_nodes(rows: Sequence[PreparedRow], first: int) -> Iterator[MessageNode]:
    """Yields the nodes of all branches, numbered from `first`. Branches share the node of a common answer."""
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
