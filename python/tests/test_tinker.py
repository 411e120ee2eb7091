"""Tests tinker's Datum, with the cookbook's own merging of turns, advantages and batches."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Capture

from rolltap import Client, Prepare

from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages

from rolltap.trainers.tinker import datum, trajectory_group


def values(made, name: str) -> np.ndarray:
    return made.loss_fn_inputs[name].to_numpy()


def test_a_line_is_a_datum(capture: Capture) -> None:
    made = [datum(line) for line in capture.lines("tinker")]
    assert len(made) == len(capture.trained)
    for row, one, advantage in zip(capture.trained, made, [0.5, -0.5, -0.5]):
        mask = np.asarray(row["loss_mask"][1:], np.float32)
        assert one.model_input.to_ints() == row["token_ids"][:-1]
        assert values(one, "target_tokens").tolist() == row["token_ids"][1:]
        assert values(one, "logprobs").tolist() == (np.asarray(row["logprobs"][1:], np.float32) * mask).tolist()
        assert values(one, "advantages") == pytest.approx(mask * advantage)


def test_the_cookbook_makes_the_same_of_the_feed(capture: Capture, client: Client) -> None:
    trials = [
        trial
        for trial in client.rollouts(wait=0, closed_groups=True, follow=False, prepare=Prepare())
        if trial["group_id"] == capture.group_id
    ]
    group = trajectory_group(trials)
    assert group.get_total_rewards() == [1.0, 0.0], "the failed trial is compared with nobody"
    advantages = compute_advantages([group])
    assert advantages[0].tolist() == [0.5, -0.5]
    data, metadata = assemble_training_data([group], advantages)
    assert [of["traj_idx"] for of in metadata] == [0, 1, 1]
    for row, made, exported in zip(capture.trained, data, map(datum, capture.lines("tinker")), strict=True):
        assert made.model_input.to_ints() == exported.model_input.to_ints() == row["token_ids"][:-1]
        assert values(made, "mask").tolist() == row["loss_mask"][1:]
        for name in ("target_tokens", "logprobs"):
            assert values(made, name).tolist() == values(exported, name).tolist()
        assert values(made, "advantages").tolist() == values(exported, "advantages").tolist()
