"""Tests miles' Sample on a stand-in (trainer_code.py)."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from conftest import Capture
from miles.utils.types import Sample

from rolltap.trainers.miles import sample


def test_a_line_is_a_sample(capture: Capture) -> None:
    for row, line in zip(capture.rows, capture.lines("miles"), strict=True):
        made = sample(line)
        made.validate()
        assert set(vars(made)) == {field.name for field in fields(Sample)}, "miles keeps unknown keys as attributes"
        start = row["prompt_len"]
        assert made.tokens == row["token_ids"] and len(made.tokens) - made.response_length == start
        assert made.loss_mask == (row["loss_mask"][start:] if row["reward_valid"] else [0] * made.response_length)
        captured = np.asarray(row["logprobs"][start:], np.float32)
        assert np.array_equal(np.asarray(made.rollout_log_probs, np.float32), captured)
        # miles groups the samples of a trial by this id, so that each trial counts once.
        assert made.rollout_id == row["sample_index"]
