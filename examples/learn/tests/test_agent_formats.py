"""Tests what the teacher says to each agent, and what is learned from it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import teacher
from agent_formats import AGENTS, MUMBLED, SUBMIT, Agent, Message
from model import body, make_tokenizer, render
from teach import lesson

TASK = "The web service in this directory does not start."
MINI = AGENTS["mini-swe-agent"]


def result(output: str) -> Message:
    return {"role": "tool", "tool_call_id": "call-0", "content": json.dumps({"returncode": 0, "output": output})}


@pytest.mark.parametrize("agent", AGENTS.values(), ids=list(AGENTS))
def test_commands_are_read_as_they_were_said(agent: Agent) -> None:
    said = agent.says("Go on.", "Look.", ["ls -l", "sed -i 's/a/\"b\"/' web.conf"], done=False)
    assert said["role"] == "assistant" and agent.commands(said) == ["ls -l", "sed -i 's/a/\"b\"/' web.conf"]
    assert agent.commands({"role": "assistant", "content": MUMBLED}) == []


@pytest.mark.parametrize("agent", AGENTS.values(), ids=list(AGENTS))
def test_the_teacher_does_all_steps_of_the_task(agent: Agent) -> None:
    chance = random.Random(1)
    messages: list[Message] = [{"role": "system", "content": "You help."}, {"role": "user", "content": TASK}]
    for _ in range(40):
        messages += [teacher.answer(agent, messages, chance), {"role": "user", "content": "web is up"}]
    typed = [command for one in messages if one["role"] == "assistant" for command in agent.commands(one)]
    for step in teacher.SERVICES[0].steps:
        assert step.right in typed or step.wrong in typed


def test_mini_swe_agent_ends_with_its_command_in_a_call_of_its_own() -> None:
    said = MINI.says("It is done.", "Finish.", ["./start.sh"], done=True)
    assert MINI.commands(said) == ["./start.sh", SUBMIT]


def test_a_trajectory_is_learned_up_to_the_last_answer() -> None:
    answers = [MINI.says("Go on.", "Look.", ["ls"], done=False), MINI.says("It is done.", "Finish.", [], done=True)]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": TASK, "extra": {}},
        {**answers[0], "function_call": None, "extra": {"cost": 0.0}},
        {**result("web.conf"), "extra": {}},
        answers[1],
        result(""),
        {"role": "exit", "content": "", "extra": {}},
    ]
    made = MINI.conversation(json.dumps({"messages": messages}))
    expected = [messages[0], {"role": "user", "content": TASK}, answers[0], result("web.conf"), answers[1]]
    assert made == expected


def test_said_are_the_calls_of_tools_as_the_template_shows_them() -> None:
    conversation = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": TASK},
        MINI.says("Two steps.", "Make logs.", ["mkdir -p logs", "echo 'ü'"], done=False),
        result("web is up\n"),
        result(""),
        {"role": "assistant", "content": MUMBLED},
        {"role": "user", "content": "Tool call error"},
        MINI.says("It is done.", "Finish.", [], done=True),
    ]
    tokenizer = make_tokenizer(map(body, conversation))
    made = lesson(tokenizer, conversation)
    assert made.ids.tolist() == tokenizer.encode(render(tokenizer, conversation))
    said = "".join(f"{body(conversation[at])}<|im_end|>" for at in (2, 5, 7))
    assert tokenizer.decode(made.ids[made.said]) == said
    assert said.startswith('Two steps. Make logs.\n<tool_call>\n{"name": "bash", "arguments": {"command": "mkdir -p logs"}}\n</tool_call>')


def test_white_space_before_a_call_is_not_part_of_the_text() -> None:
    """vLLM's parser leaves it in the content, and the agent sends it back."""
    answer = MINI.says("Go on.", "Look.", ["ls"], done=False)
    messages = [{"role": "user", "content": TASK}, answer]
    tokenizer = make_tokenizer(map(body, messages))
    sent_back = [messages[0], {**answer, "content": answer["content"] + "\n"}]
    assert render(tokenizer, sent_back) == render(tokenizer, messages)
