"""Tests ROLL's batch by its schema, since ROLL is in no package index."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from conftest import Capture, longest

from rolltap.trainers.roll import data_proto, save_mock_batch

LENGTH = 256


def test_a_line_is_a_row_of_the_batch(capture: Capture) -> None:
    made = data_proto(capture.lines("roll"), LENGTH, pad_token_id=0)
    made.check_rows(LENGTH)
    rows = [longest(capture.of(0)), longest(capture.of(1))]
    for at, row in enumerate(rows):
        length = len(row["token_ids"])
        own = {name: tensor[at] for name, tensor in made.batch.items()}
        assert own["attention_mask"].sum() == length and own["attention_mask"][:length].all()
        assert own["input_ids"][:length].tolist() == row["token_ids"]
        assert own["response_mask"].int().tolist() == row["loss_mask"] + [0] * (LENGTH - length)
        assert own["prompt_mask"].sum() == row["prompt_len"]
        assert own["position_ids"][:length].tolist() == list(range(length))
        assert own["position_ids"][length:].sum() == 0
        captured = np.asarray(row["logprobs"][1:], np.float32)
        assert own["infer_logprobs"][: length - 1].numpy().tobytes() == captured.tobytes()
        assert own["scores"].nonzero().flatten().tolist() in ([], [length - 1])
    assert made.batch["scores"].sum(-1).tolist() == [1.0, 0.0]
    assert list(made.non_tensor_batch["traj_group_id"]) == [capture.group_id] * 2
    assert list(made.non_tensor_batch["traj_id"]) == [row["trial_id"] for row in rows]
    # ROLL compares the two trials with a reward. The sample standard deviation of 1 and 0 is the root of 0.5.
    assert made.normalized() == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-5)


def test_an_advantage_is_the_score_of_every_branch(capture: Capture) -> None:
    lines = capture.lines("roll", "--advantage", "mean", "--on-fork", "all")
    made = data_proto(lines, LENGTH, pad_token_id=0)
    made.check_rows(LENGTH)
    assert made.batch["scores"].sum(-1).tolist() == [0.5, -0.5, -0.5]
    assert list(made.non_tensor_batch["episode_scores"]) == [1.0, 0.0, 0.0]
    assert made.batch["response_mask"].sum() == sum(sum(row["loss_mask"]) for row in capture.trained)
    assert len(set(made.non_tensor_batch["traj_id"])) == 3


def test_a_row_that_does_not_fit_is_refused(capture: Capture) -> None:
    with pytest.raises(ValueError, match="sequence_length is 4; raise sequence_length"):
        data_proto(capture.lines("roll"), 4, pad_token_id=0)


def test_the_file_that_roll_mocks_a_step_with(capture: Capture, tmp_path) -> None:
    path = save_mock_batch(data_proto(capture.lines("roll"), LENGTH, 0), tmp_path, 3)
    assert path == tmp_path / "train" / "step_000003.pkl"
    with path.open("rb") as file:
        assert pickle.load(file).batch["scores"].sum() == 1.0
