"""rollout/1 as Python reads it: JSON Lines, and Parquet by pyarrow."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
from conftest import Capture

PER_TOKEN = ("token_ids", "sampled_mask", "token_version")


def masked(row, name: str) -> list[int]:
    """A failed trial is exported with masks of 0."""
    return row[name] if row["reward_valid"] else [0] * len(row[name])


def same(row, read) -> None:
    for name in (*PER_TOKEN, "trial_id", "group_id", "sample_index", "branch_index", "reward", "reward_valid"):
        assert read[name] == row[name], name
    for name in ("loss_mask", "trainable_mask"):
        assert read[name] == masked(row, name)
    captured = np.asarray(row["logprobs"], np.float32)
    assert np.array_equal(np.asarray(read["logprobs"], np.float32), captured)
    spans = [(call["call_id"], call["start"], call["end"]) for call in row["calls"]]
    assert [(call["call_id"], call["start"], call["end"]) for call in read["calls"]] == spans


def test_json_lines(capture: Capture) -> None:
    for row, read in zip(capture.rows, capture.lines("jsonl"), strict=True):
        same(row, read)


def test_parquet(capture: Capture) -> None:
    table = pq.read_table(capture.export("parquet"))
    for row, read in zip(capture.rows, table.to_pylist(maps_as_pydicts="strict"), strict=True):
        same(row, read)
        assert read["rewards"] == row["rewards"]
