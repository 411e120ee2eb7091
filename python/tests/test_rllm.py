"""Tests rLLM's Episode on a stand-in (trainer_code.py)."""

from __future__ import annotations

import numpy as np
from conftest import Capture

from rolltap.trainers.rllm import episode


def test_a_line_is_an_episode(capture: Capture) -> None:
    for index, line in enumerate(capture.lines("rllm")):
        made = episode(line)
        rows = capture.of(index)
        assert made.task_id == capture.group_id
        (trajectory,) = made.trajectories
        if not rows[0]["reward_valid"]:
            assert trajectory.steps == []
            continue
        assert trajectory.reward == rows[0]["reward"]
        calls = [(row, call) for row in rows for call in row["calls"] if row["loss_mask"][call["start"]]]
        for (row, call), step in zip(calls, trajectory.steps, strict=True):
            start, end = call["start"], call["end"]
            assert step.prompt_ids == row["token_ids"][:start] and step.response_ids == row["token_ids"][start:end]
            captured = np.asarray(row["logprobs"][start:end], np.float32)
            assert np.array_equal(np.asarray(step.logprobs, np.float32), captured)
            assert step.weight_version == 7
