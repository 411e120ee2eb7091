"""Tests PipelineRL's training texts by their schema and its rules, since PipelineRL is in no package index."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import Capture, OneTrial, chat, of_trained, two_turns
from pipelinerl.rollouts import TrainingText, advantages, check_group_sizes

from rolltap.trainers.pipelinerl import NoVerdict, _result, rollout_policy_with, training_text, write_stream

LLM = SimpleNamespace(parameters={"temperature": 0.7, "max_tokens": 12})


def trained_tokens(texts: list[TrainingText]) -> tuple[list[int], list[float]]:
    """Returns the ids and the logprobs of all trained tokens, as the preprocessor aligns them."""
    ids, logprobs = [], []
    for text in texts:
        for token, mask, logprob in zip(text.input_ids, *text.trainer_fields()):
            if mask:
                ids.append(token)
                logprobs.append(logprob)
    return ids, logprobs


def test_the_texts_train_what_was_captured(capture: Capture) -> None:
    texts = [training_text(line) for line in capture.lines("pipelinerl")]
    ids, logprobs = trained_tokens(texts)
    assert ids == [token for row in capture.trained for token in of_trained(row, row["token_ids"])]
    captured = [logprob for row in capture.trained for logprob in of_trained(row, row["logprobs"])]
    assert np.array_equal(np.float32(logprobs), np.float32(captured))
    check_group_sizes(texts, attempts=3)
    assert [text.metadata["rollout_index"] for text in texts] == [0, 0, 1, 1, 1, 2]
    assert [text.metadata["step_index"] for text in texts] == [0, 1, 0, 1, 2, -1]
    assert {text.metadata["model_version"] for text in texts} == {7}


def test_a_failed_trial_moves_no_baseline(capture: Capture) -> None:
    texts = [training_text(line) for line in capture.lines("pipelinerl", "--advantage", "none")]
    # The third step of the forked trial has no equal in the other trial.
    assert advantages(texts) == [1.0, 1.0, -1.0, -1.0, 0.0, 0.0]
    assert texts[-1].labels == [-100] * len(texts[-1].input_ids)


def test_the_advantage_stands_in_for_the_reward(capture: Capture) -> None:
    texts = [training_text(line) for line in capture.lines("pipelinerl", "--advantage", "mean")]
    assert [text.reward for text in texts] == [0.5, 0.5, -0.5, -0.5, -0.5, 0.0]
    assert [text.metadata["reward"] for text in texts] == [1.0, 1.0, 0.0, 0.0, 0.0, None]


def test_the_stream_has_a_group_per_line(capture: Capture, tmp_path) -> None:
    lines = capture.lines("pipelinerl")
    with pytest.raises(ValueError, match="has 3 trials, and attempts is 8"):
        write_stream(lines, tmp_path, attempts=8)
    assert write_stream(lines, tmp_path, attempts=3) == 1
    (group,) = (tmp_path / "streams/actor/0/0/0.jsonl").read_text().splitlines()
    assert [TrainingText(**text) for text in json.loads(group)] == [training_text(line) for line in lines]


def test_the_policy_runs_an_agent(admin: str) -> None:
    async def agent(trial, task):
        await asyncio.to_thread(two_turns, trial, task["task"], "Leave it.")
        return 0.5

    problem = {"task": "Open it.", "dataset": "folders"}
    result = asyncio.run(rollout_policy_with(agent, admin)(None, LLM, problem, None))
    assert (result.metrics.reward, result.metrics.success, result.dataset_name) == (0.5, True, "folders")
    assert [text.reward for text in result.training_texts] == [0.5] * 3
    ids, logprobs = trained_tokens(result.training_texts)
    assert len(ids) == sum(text.output_tokens for text in result.training_texts) > 0
    assert all(logprob <= 0 for logprob in logprobs)


def test_a_rollout_without_a_reward_is_repeated(admin: str) -> None:
    async def agent(trial, task):
        await asyncio.to_thread(two_turns, trial, "Open it.")

    # PipelineRL repeats a rollout that ends with a TimeoutError, and stops at any other exception.
    with pytest.raises(NoVerdict, match="no_reward") as raised:
        asyncio.run(rollout_policy_with(agent, admin)(None, LLM, {}, None))
    assert isinstance(raised.value, TimeoutError)


@pytest.mark.parametrize("calls", [0, 1])
def test_a_judged_rollout_without_trained_tokens_keeps_its_place(admin: str, calls: int) -> None:
    async def agent(trial, task):
        asked = {"messages": [{"role": "user", "content": "List it."}], "response_format": {"type": "json_object"}}
        for _ in range(calls):
            await asyncio.to_thread(chat, trial, **asked)
        return 1.0

    (text,) = asyncio.run(rollout_policy_with(agent, admin)(None, LLM, {}, None)).training_texts
    assert text.reward == 1.0 and set(text.labels) == {-100} and text.logprobs == []


def test_a_live_text_is_the_exported_one(ends_masked: OneTrial) -> None:
    (live,) = _result(ends_masked.prepared(), {}, 0.0).training_texts
    exported = training_text(ends_masked.line("pipelinerl", "--advantage", "none"))
    # PipelineRL itself sets the group and the metadata of a live text.
    own = {"group_id", "metadata"}
    assert live.model_dump(exclude=own) == exported.model_dump(exclude=own)
