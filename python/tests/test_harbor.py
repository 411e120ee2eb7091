"""Tests with Harbor's own models: rollout details in a trial's agent context, and the validation of trajectories."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Capture
from conversations import Conversations

from harbor.models.agent.context import AgentContext

from rolltap import read_lines
from rolltap.trainers.harbor import rollout_details, trajectory


def turns_of(rows) -> list:
    """Returns each trained call once, with the row of the branch that trains it."""
    calls = [[(row, call) for call in row["calls"] if any(row["loss_mask"][call["start"] : call["end"]])] for row in rows]
    return [branch for branch in calls if branch]


def same(row, call, prompt, completion, logprobs) -> None:
    start, end = call["start"], call["end"]
    assert prompt == row["token_ids"][:start] and completion == row["token_ids"][start:end]
    assert np.array_equal(np.asarray(logprobs, np.float32), np.asarray(row["logprobs"][start:end], np.float32))


def test_a_line_has_the_details_of_a_trial(capture: Capture) -> None:
    for index, line in enumerate(capture.lines("harbor-details")):
        details = AgentContext(rollout_details=rollout_details(line)).rollout_details
        rows = capture.of(index)
        if not rows[0]["reward_valid"]:
            assert details == [] and line["verifier_result"] is None
            continue
        assert line["verifier_result"]["rewards"] == rows[0]["rewards"]
        for detail, branch in zip(details, turns_of(rows), strict=True):
            lists = (detail["prompt_token_ids"], detail["completion_token_ids"], detail["logprobs"])
            for (row, call), *turn in zip(branch, *lists, strict=True):
                same(row, call, *turn)


def test_a_line_is_a_trajectory(capture: Capture) -> None:
    for index, line in enumerate(capture.lines("atif")):
        made = trajectory(line)
        rows = capture.of(index)
        told = [made, *(made.subagent_trajectories or [])]
        assert len(told) == len(rows)
        if not rows[0]["reward_valid"]:
            assert all(step.metrics.logprobs is None for one in told for step in one.steps)
            continue
        for one, branch in zip(told, turns_of(rows), strict=True):
            for step, (row, call) in zip(one.steps, branch, strict=True):
                metrics = step.metrics
                same(row, call, metrics.prompt_token_ids, metrics.completion_token_ids, metrics.logprobs)


def test_the_generic_rollout_of_harbors_documentation(capture: Capture) -> None:
    for row, line in zip(capture.rows, capture.lines("harbor", "--on-fork", "all"), strict=True):
        mask = row["loss_mask"] if row["reward_valid"] else [0] * len(row["token_ids"])
        assert line == {"reward": row["reward"], "token_ids": row["token_ids"], "mask_ids": mask}


def test_a_trajectory_has_the_words_of_its_conversation(conversations: Conversations) -> None:
    lines = list(read_lines(conversations.path("atif")))
    assert len(lines) == 4
    for line in lines:
        steps = trajectory(line).steps
        sources = ["system", "user", "agent", "agent", "user", "agent"]
        assert [step.source for step in steps] == sources
        assert [step.message for step in steps[:2]] == ["Be brief.", f"Look into {line['extra']['group_id']}."]
        # The client brought this answer along. No call of the trial gave it.
        assert steps[2].is_copied_context and steps[2].metrics is None
        assert [call.arguments for call in steps[2].tool_calls] == [{"command": "ls"}, {"command": "cat notes", "timeout": 3}]
        results = steps[2].observation.results
        assert [(result.source_call_id, result.content) for result in results] == [("t0", "notes"), ("t1", "notes")]
        assert all(step.message and step.metrics.completion_token_ids for step in (steps[3], steps[5]))
