"""Tests with Atropos' own server in this process: registers, posts a group and requests a batch."""

from __future__ import annotations

import numpy as np
import own_code.atropos
from conftest import Capture, longest

from rolltap.trainers.atropos import post


def test_the_server_hands_out_the_group_as_a_batch(capture: Capture) -> None:
    lines = capture.lines("atropos", "--on-fork", "longest")
    with own_code.atropos.with_trainer(batch_size=3) as server:
        assert post(lines, server) == 1
        (batch,) = server.get("/batch").json()["batch"]
    rows = [longest(capture.of(index)) for index in range(3)]
    assert batch["tokens"] == [row["token_ids"] for row in rows]
    assert batch["scores"] == [1.0, 0.0, 0.5]
    for row, masks, logprobs in zip(rows, batch["masks"], batch["inference_logprobs"], strict=True):
        mask = row["loss_mask"] if row["reward_valid"] else [0] * len(row["token_ids"])
        assert masks == [token if trained else -100 for token, trained in zip(row["token_ids"], mask)]
        expected = [value if trained else 1.0 for value, trained in zip(row["logprobs"], mask)]
        assert np.array_equal(np.asarray(logprobs, np.float32), np.asarray(expected, np.float32))
