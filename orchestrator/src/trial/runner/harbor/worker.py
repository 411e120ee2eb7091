"""Runs Harbor's trials for rolltap.

Orders arrive on standard input and news is written to standard output, one JSON object per line. The output of Harbor
itself goes to standard error. When standard input ends, every trial is cancelled.

Orders: check, run, go (the trial is sealed, its tests may run), cancel.
News: hello, checked, phase, agent_end (waits for go), ended.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

#: Bytes of the longest order, which may hold a long instruction. A longer line ends the worker.
LONGEST_ORDER = 64 * 1024 * 1024
#: The APIs by which an agent may call its model, the simplest first.
FORMATS = ["openai_chat_completions", "openai_responses", "anthropic_messages", "google_generate_content"]
#: Agents that call no model.
WITHOUT_MODEL = {"oracle", "nop"}


def reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def check_agent(config: dict[str, Any]) -> dict[str, Any]:
    """Returns how this agent calls its model, and whether it runs inside the environment.

    Raises if Harbor rejects the agent, or if the agent has no API that the proxy serves.
    """
    from harbor.agents.factory import AgentFactory
    from harbor.agents.installed.base import BaseInstalledAgent
    from harbor.models.trial.config import AgentConfig

    agent = AgentConfig.model_validate(config)
    kind = AgentFactory.get_agent_class_from_config(agent)
    contract = {"installed": issubclass(kind, BaseInstalledAgent), "api_format": None}
    if agent.name in WITHOUT_MODEL:
        return contract
    spec = kind.MODEL_CONNECTION
    if spec is None or not kind.capabilities.base_url:
        raise ValueError(f"Harbor's agent {agent.name!r} cannot be told where its model is")
    known = [str(item) for item in spec.supported_api_formats]
    default = str(spec.default_api_format_by_provider.get("default", ""))
    ours = [item for item in [default, *FORMATS] if item in known and item in FORMATS]
    if not ours:
        raise ValueError(f"Harbor's agent {agent.name!r} speaks no API that rolltap does")
    contract["api_format"] = ours[0]
    # The trial's address and key do not exist yet, so Harbor's checks get placeholders.
    trial = agent.model_copy(update={
        "base_url": "http://127.0.0.1:1/t/key", "model_api_format": ours[0], "skip_model_parsing": True,
        "model_api_key_name": "ROLLTAP_TRIAL_KEY", "env": {**agent.env, "ROLLTAP_TRIAL_KEY": "key"},
        "model_name": agent.model_name or "model",
    })
    AgentFactory.run_preflight(trial)
    with tempfile.TemporaryDirectory() as folder:
        AgentFactory.create_agent_from_config(trial, logs_dir=Path(folder))
    return contract


def check(agents: list[dict], environment: dict, tasks: list[str], without_verifier: bool) -> dict[str, Any]:
    """Returns the problems and warnings that Harbor finds before any trial starts, and the contract of each agent."""
    from harbor.environments.factory import EnvironmentFactory
    from harbor.models.task.task import Task
    from harbor.models.trial.config import EnvironmentConfig, VerifierConfig
    from harbor.trial.trial import check_trial_config

    problems: list[str] = []
    warnings: list[str] = []
    contracts: list[dict | None] = []
    for agent in agents:
        try:
            contracts.append(check_agent(agent))
        # Harbor's checks may exit instead of raising an error; the other checks must still run.
        except (Exception, SystemExit) as error:
            contracts.append(None)
            problems.append(f"agent {agent.get('name')}: {reason(error)}")
    try:
        config = EnvironmentConfig.model_validate(environment)
        EnvironmentFactory.run_preflight(type=config.type, import_path=config.import_path)
        EnvironmentFactory.validate_resource_policies(config)
        verifier = VerifierConfig(disable=without_verifier)
        for path in tasks:
            try:
                task = Task(Path(path), disable_verification=without_verifier)
                warnings += [f"{task.name}: {text}" for text in check_trial_config(task.config, config, verifier)]
            except (Exception, SystemExit) as error:
                problems.append(f"task {path}: {reason(error)}")
    except (Exception, SystemExit) as error:
        name = environment.get("type") or environment.get("import_path")
        problems.append(f"environment {name}: {reason(error)}")
    return {"problems": problems, "warnings": warnings, "agents": contracts}


class Worker:
    """Runs trials, and has those in flight by name."""

    def __init__(self, out: Any):
        self.out = out
        self.tasks: dict[str, asyncio.Task] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.closing = False

    def tell(self, event: str, **news: Any) -> None:
        try:
            self.out.write(json.dumps({"event": event, **news}) + "\n")
            self.out.flush()
        except BrokenPipeError:
            # rolltap has ended. Standard input ends as well, which cancels every trial.
            self.closing = True

    async def run(self, name: str, config: dict[str, Any]) -> None:
        error, causes = None, {}
        try:
            causes = await self.run_trial(name, config)
        except BaseException as raised:
            from harbor.models.trial.error_policy import policy_for

            kind = type(raised).__name__
            error, causes = {"type": kind, "message": str(raised)}, {kind: str(policy_for(kind).cause)}
        finally:
            self.tasks.pop(name, None)
            self.gates.pop(name, None)
            self.tell("ended", trial=name, error=error, causes=causes)

    async def run_trial(self, name: str, config: dict[str, Any]) -> dict[str, str]:
        from harbor.models.trial.config import TrialConfig
        from harbor.trial.hooks import TrialEvent
        from harbor.trial.trial import Trial

        trial = await Trial.create(TrialConfig.model_validate(config))

        async def phase(event: Any) -> None:
            self.tell("phase", trial=name, phase=event.event.value)

        async def agent_end(_event: Any) -> None:
            gate = self.gates[name] = asyncio.Event()
            self.tell("agent_end", trial=name)
            # No `go` arrives after standard input has ended.
            if not self.closing:
                await gate.wait()

        for event in (TrialEvent.ENVIRONMENT_START, TrialEvent.AGENT_START, TrialEvent.VERIFICATION_START):
            trial.add_hook(event, phase)
        trial.add_hook(TrialEvent.AGENT_END, agent_end)
        result = await trial.run()
        recorded = [result.exception_info, *(step.exception_info for step in result.step_results or [])]
        return {item.exception_type: str(item.policy.cause) for item in recorded if item is not None}

    def obey(self, order: dict[str, Any]) -> None:
        match order:
            case {"op": "check", **what}:
                self.tell("checked", **check(**what))
            case {"op": "run", "trial": name, "config": config}:
                self.tasks[name] = asyncio.create_task(self.run(name, config))
            case {"op": "go", "trial": name}:
                if gate := self.gates.get(name):
                    gate.set()
            case {"op": "cancel", "trial": name}:
                if task := self.tasks.get(name):
                    task.cancel()
            case _:
                raise ValueError(f"no order: {order}")

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        orders = asyncio.StreamReader(limit=LONGEST_ORDER)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, orders.feed_eof)
        while line := await orders.readline():
            self.obey(json.loads(line))
        self.closing = True
        for gate in self.gates.values():
            gate.set()
        trials = list(self.tasks.values())
        for task in trials:
            task.cancel()
        await asyncio.gather(*trials, return_exceptions=True)


def main() -> None:
    # Harbor prints to standard output, where rolltap reads only news.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker(out)
    try:
        version = importlib.metadata.version("harbor")
    except importlib.metadata.PackageNotFoundError:
        version = None
    worker.tell("hello", harbor=version)
    asyncio.run(worker.serve())


main()
