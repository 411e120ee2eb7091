"""Tests NeMo-RL's message log by the assertions of its environment (7ea279a; no release can be installed)."""

from __future__ import annotations

import numpy as np
import torch
from conftest import Capture, longest

from rolltap.trainers.nemo_rl import result


def test_a_line_is_the_result_of_its_environment(capture: Capture) -> None:
    for index, line in enumerate(capture.lines("nemo-rl", "--on-fork", "longest")):
        made = result(line)
        row = longest(capture.of(index))
        mask = row["loss_mask"] if row["reward_valid"] else [0] * len(row["token_ids"])
        assert made["loss_multiplier"] == float(any(mask))
        assert made["full_result"]["reward"] == (0.5 if row["reward"] is None else row["reward"])
        assert made["input_message_log"][0] is made["message_log"][0]
        assert torch.cat([message["token_ids"] for message in made["message_log"]]).tolist() == row["token_ids"]
        trained, logprobs = [], []
        for message in made["message_log"]:
            answers = message["role"] == "assistant"
            trained += [int(answers)] * len(message["token_ids"])
            given = message.get("generation_logprobs", torch.zeros(len(message["token_ids"])))
            assert len(given) == len(message["token_ids"])
            logprobs += given.tolist()
        assert trained == mask
        captured = np.asarray(row["logprobs"], np.float32) * np.asarray(mask, np.float32)
        assert np.array_equal(np.asarray(logprobs, np.float32), captured)
