"""Tests rollout/1 as Python reads it: JSON Lines, and Parquet with pyarrow."""

from __future__ import annotations

import json
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import Capture

from rolltap import Client, Row
from rolltap.lines import LineBuffer

PER_TOKEN = ("token_ids", "sampled_mask", "token_version")


def masked(row, name: str) -> list[int]:
    """Returns the exported mask of a row, which is all 0 for a failed trial."""
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


def test_a_row_has_the_names_of_its_type(capture: Capture) -> None:
    assert all(set(row) == set(Row.__annotations__) for row in capture.rows)


def test_json_lines(capture: Capture) -> None:
    for row, read in zip(capture.rows, capture.lines("jsonl"), strict=True):
        same(row, read)


def test_parquet(capture: Capture) -> None:
    table = pq.read_table(capture.export("parquet"))
    for row, read in zip(capture.rows, table.to_pylist(maps_as_pydicts="strict"), strict=True):
        same(row, read)
        assert read["rewards"] == row["rewards"]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_that_come_in_pieces_come_out_whole(size: int) -> None:
    lines = [b'{"a": 1}', "{\"b\": \"\u2028\"}".encode(), b"{}"]
    sent = b"\n\n".join(lines) + b"\n" + b"broken off"
    buffer = LineBuffer()
    came = [line for at in range(0, len(sent), size) for line in buffer.feed(sent[at : at + size])]
    assert came == lines


def test_a_long_line_costs_no_more_than_its_length() -> None:
    buffer, piece, pieces = LineBuffer(), b"x" * 1024, 20_000
    begun = time.process_time()
    for _ in range(pieces):
        assert buffer.feed(piece) == []
        # If each piece caused a new scan of the whole line, the test would take minutes.
        assert time.process_time() - begun < 20
    (line,) = buffer.feed(b"\n")
    assert len(line) == pieces * len(piece)


def test_rows_have_the_words_of_calls_on_request(capture: Capture, client: Client) -> None:
    trial_id = capture.rows[0]["trial_id"]
    (row,) = client.rollout(trial_id, messages=True)
    of_feed = client.rollouts(wait=0, follow=False, messages=True)
    assert next(trial["rows"] for trial in of_feed if trial["trial_id"] == trial_id) == [row]
    first, second = (json.loads(call["messages"]) for call in row["calls"])
    assert [message["role"] for message in second] == ["user", "assistant"] * 2
    assert second[:2] == first, "each call repeats the history before it"
    assert all(call["messages"] is None and call["tools"] is None for call in capture.rows[0]["calls"])
