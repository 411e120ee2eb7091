"""Describes the agents that the example trains for: how a model answers them, and where they leave their conversations.

The agents themselves are rolltap's terminal agent and mini-SWE-agent as its users install it. Neither is changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

MUMBLED = "Let me think."
"""No answer in any agent's format."""
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The command that ends mini-SWE-agent's work."""

Message = dict[str, Any]


class Agent(Protocol):
    """One of the agents."""

    name: str
    """The name in rolltap's catalogue."""
    transcript: str
    """The file with the conversation in the folder of a trial."""
    shows_prompt: bool
    """Whether the model sees the prompt of a shell, with the names of the machine and of the directory."""
    vllm_flags: tuple[str, ...]
    """The flags that vLLM needs for the agent's requests."""

    def options(self, max_turns: int) -> dict[str, Any]:
        """Returns the agent's options in the job file."""

    def says(self, analysis: str, plan: str, commands: Sequence[str], *, done: bool) -> Message:
        """Returns an answer that runs these commands and, if `done`, says that the task is complete."""

    def commands(self, message: Message) -> list[str]:
        """Returns the commands of an answer."""

    def asks_to_confirm(self, message: Message) -> bool:
        """Returns whether the agent asks whether the task is really complete."""

    def conversation(self, text: str) -> list[Message]:
        """Returns the conversation in the text of a transcript, as the model saw it."""


class Terminal:
    """Rolltap's terminal agent, which types the keystrokes of a JSON object into a shell."""

    name = "terminal"
    transcript = "agent/transcript.json"
    shows_prompt = True
    vllm_flags: tuple[str, ...] = ()

    def options(self, max_turns: int) -> dict[str, Any]:
        """Returns the agent's options in the job file."""
        # A whole episode fits into the context, so an agent that fills the context has failed and needs no summary.
        return {"max_turns": max_turns, "enable_summarize": False}

    def says(self, analysis: str, plan: str, commands: Sequence[str], *, done: bool) -> Message:
        """Returns a JSON object with the keystrokes."""
        typed = [{"keystrokes": f"{command}\n", "duration": 0.1} for command in commands]
        said = {"analysis": analysis, "plan": plan, "commands": typed, "task_complete": done}
        return {"role": "assistant", "content": json.dumps(said)}

    def commands(self, message: Message) -> list[str]:
        """Returns the keystrokes without the ends of their lines."""
        if message["content"] == MUMBLED:
            return []
        return [one["keystrokes"].rstrip("\n") for one in json.loads(message["content"])["commands"]]

    def asks_to_confirm(self, message: Message) -> bool:
        """Returns whether the message is the question after `task_complete`."""
        text = message["content"]
        return text.rstrip().endswith('"task_complete": false.') and "You said that the task is complete" in text

    def conversation(self, text: str) -> list[Message]:
        """Returns the transcript, which is the conversation."""
        messages: list[Message] = json.loads(text)
        return messages


class MiniSweAgent:
    """mini-SWE-agent, which runs each call of its tool `bash` in a shell of its own."""

    name = "mini-swe-agent"
    transcript = "agent/mini-swe-agent.trajectory.json"
    shows_prompt = False
    vllm_flags: tuple[str, ...] = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")

    def options(self, max_turns: int) -> dict[str, Any]:
        """Returns the agent's options in the job file."""
        return {"step_limit": max_turns}

    def says(self, analysis: str, plan: str, commands: Sequence[str], *, done: bool) -> Message:
        """Returns a call of the tool for each command."""
        called = [{"name": "bash", "arguments": json.dumps({"command": command})} for command in commands]
        if done:
            called.append({"name": "bash", "arguments": json.dumps({"command": SUBMIT})})
        calls = [{"id": f"call-{at}", "type": "function", "function": one} for at, one in enumerate(called)]
        return {"role": "assistant", "content": f"{analysis} {plan}", "tool_calls": calls}

    def commands(self, message: Message) -> list[str]:
        """Returns the commands of all calls."""
        return [json.loads(call["function"]["arguments"])["command"] for call in message.get("tool_calls") or []]

    def asks_to_confirm(self, message: Message) -> bool:
        """Returns `False`, because the agent ends at once."""
        return False

    def conversation(self, text: str) -> list[Message]:
        """Returns the messages of the trajectory up to the last answer: the model saw none of the rest."""
        kept = ("role", "content", "tool_calls", "tool_call_id")
        messages = json.loads(text)["messages"]
        while messages and messages[-1]["role"] != "assistant":
            messages.pop()
        return [{name: one[name] for name in kept if one.get(name) is not None} for one in messages]


AGENTS: Mapping[str, Agent] = {one.name: one for one in (Terminal(), MiniSweAgent())}


def transcripts(agent: Agent, job: Path) -> list[list[Message]]:
    """Returns the conversations of all trials of a job."""
    made = [agent.conversation(path.read_text()) for path in sorted(job.glob(f"*/{agent.transcript}"))]
    # A trial without an answer, such as one that ran out of time while the agent started, teaches nothing.
    return [one for one in made if any(message["role"] == "assistant" for message in one)]
