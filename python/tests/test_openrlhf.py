"""Tests with OpenRLHF's own conversion of a response into an Experience, which needs neither Ray nor an engine."""

from __future__ import annotations

import numpy as np
import own_code.openrlhf
import pytest
from conftest import Capture, longest

from rolltap.trainers.openrlhf import response


@pytest.fixture
def generator() -> type:
    """Returns the trainer's class. Its module imports vLLM for an engine that no test starts."""
    module = own_code.openrlhf.imported("openrlhf.trainer.ppo_utils.samples_generator", own_code.openrlhf.ENGINE)
    return module.SamplesGenerator


def test_a_line_becomes_an_experience(capture: Capture, generator: type) -> None:
    lines = capture.lines("openrlhf")
    assert [line["reward"] for line in lines] == [1.0, 0.0, 0.5]
    for index, line in enumerate(lines):
        rows = capture.of(index)
        row = longest(rows)
        made = generator._process_response_into_experience(None, response(line), max_len=4096)
        mask = row["loss_mask"] if row["reward_valid"] else [0] * len(row["token_ids"])
        assert made.sequences.tolist() == [row["token_ids"]]
        assert made.action_mask.tolist() == [mask[1:]]
        captured = np.asarray(row["logprobs"][1:], np.float32)
        assert made.rollout_log_probs.numpy().tobytes() == captured.tobytes()
        assert made.rewards.tolist() == [line["reward"]]
        assert made.truncated.tolist() == [row["is_truncated"]]
