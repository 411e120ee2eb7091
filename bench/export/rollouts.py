"""Writes the rollouts of the export benchmark to a Parquet file: `rollouts.py FILE ROLLOUTS TOKENS`.

The rollouts are groups of eight trials with one branch each. Each call adds as many observation tokens as it samples.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

GROUP = 8
VOCABULARY = 151_936
SAMPLED_PER_CALL = 250


def fields() -> pa.Schema:
    call = pa.struct([
        pa.field("call_id", pa.string(), False),
        pa.field("choice_index", pa.int32(), False),
        pa.field("parent_call_id", pa.string()),
        pa.field("role", pa.string(), False),
        pa.field("model", pa.string()),
        pa.field("prompt_len", pa.int32(), False),
        pa.field("start", pa.int32(), False),
        pa.field("end", pa.int32(), False),
        pa.field("finish_reason", pa.string()),
        pa.field("version", pa.int32(), False),
        pa.field("sampled_at", pa.timestamp("ns", tz="UTC"), False),
        pa.field("temperature", pa.float64()),
        pa.field("top_p", pa.float64()),
        pa.field("top_k", pa.int64()),
        pa.field("constrained", pa.bool_(), False),
        pa.field("sampling", pa.string(), False),
        pa.field("messages", pa.string()),
    ])

    def tokens(value: pa.DataType) -> pa.DataType:
        return pa.list_(pa.field("element", value, False))

    return pa.schema([
        pa.field("schema_version", pa.string(), False),
        pa.field("trial_id", pa.string(), False),
        pa.field("group_id", pa.string()),
        pa.field("group_size", pa.int32()),
        pa.field("sample_index", pa.int32(), False),
        pa.field("attempt", pa.int32(), False),
        pa.field("superseded", pa.bool_(), False),
        pa.field("task_id", pa.string(), False),
        pa.field("branch_index", pa.int32(), False),
        pa.field("num_branches", pa.int32(), False),
        pa.field("is_last_branch", pa.bool_(), False),
        pa.field("branch_cause", pa.string(), False),
        pa.field("token_ids", tokens(pa.int32()), False),
        pa.field("sampled_mask", tokens(pa.uint8()), False),
        pa.field("trainable_mask", tokens(pa.uint8()), False),
        pa.field("loss_mask", tokens(pa.uint8()), False),
        pa.field("logprobs", tokens(pa.float32()), False),
        pa.field("token_version", tokens(pa.int32()), False),
        pa.field("version_labels", pa.map_(pa.string(), pa.string()), False),
        pa.field("prompt_len", pa.int32(), False),
        pa.field("reward", pa.float64()),
        pa.field("rewards", pa.map_(pa.string(), pa.float64()), False),
        pa.field("reward_valid", pa.bool_(), False),
        pa.field("failure_cause", pa.string()),
        pa.field("is_truncated", pa.bool_(), False),
        pa.field("stop_reason", pa.string()),
        pa.field("status", pa.string(), False),
        pa.field("model", pa.string(), False),
        pa.field("vocab_size", pa.int32()),
        pa.field("logprobs_mode", pa.string(), False),
        pa.field("has_media", pa.bool_(), False),
        pa.field("calls", pa.list_(pa.field("element", call, False)), False),
    ])


class Noise:
    """Generates numbers that look random and are the same in every run."""

    def __init__(self) -> None:
        self.state = 1

    def below(self, bound: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound


def rollout(number: int, length: int, noise: Noise) -> dict:
    """Returns one trial. Its sequence begins with an observation and ends with the last call."""
    turn = 2 * SAMPLED_PER_CALL
    mask = [int(at % turn >= SAMPLED_PER_CALL) for at in range(length)]
    if not any(mask):
        mask[-1] = 1
    starts = [at for at in range(length) if mask[at] and not (at and mask[at - 1])]
    ends = [at + 1 for at in range(length) if mask[at] and (at + 1 == length or not mask[at + 1])]
    calls = [
        {
            "call_id": f"call-{number}-{index}",
            "choice_index": 0,
            "parent_call_id": f"call-{number}-{index - 1}" if index else None,
            "role": "main",
            "model": "policy",
            "prompt_len": start,
            "start": start,
            "end": end,
            "finish_reason": "stop",
            "version": 3,
            "sampled_at": 1_700_000_000_000_000_000 + index,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "constrained": False,
            "sampling": '{"temperature":1.0}',
            "messages": None,
        }
        for index, (start, end) in enumerate(zip(starts, ends))
    ]
    if ends[-1] != length:
        del mask[ends[-1] :]
    length = len(mask)
    return {
        "schema_version": "rollout/1",
        "trial_id": f"trial-{number}",
        "group_id": f"group-{number // GROUP}",
        "group_size": GROUP,
        "sample_index": number % GROUP,
        "attempt": 0,
        "superseded": False,
        "task_id": f"org/task-{number // GROUP}",
        "branch_index": 0,
        "num_branches": 1,
        "is_last_branch": True,
        "branch_cause": "first_call",
        "token_ids": [noise.below(VOCABULARY) for _ in mask],
        "sampled_mask": mask,
        "trainable_mask": mask,
        "loss_mask": mask,
        "logprobs": [-noise.below(1 << 24) / (1 << 22) if sampled else 0.0 for sampled in mask],
        "token_version": [3 if sampled else -1 for sampled in mask],
        "version_labels": [("3", "step-3")],
        "prompt_len": starts[0],
        "reward": float(noise.below(2)),
        "rewards": [("reward", 1.0)],
        "reward_valid": True,
        "failure_cause": None,
        "is_truncated": False,
        "stop_reason": "stop",
        "status": "completed",
        "model": "policy",
        "vocab_size": VOCABULARY,
        "logprobs_mode": "processed_logprobs",
        "has_media": False,
        "calls": calls,
    }


def generate(path: Path, rollouts: int, tokens: int) -> None:
    """Writes whole groups, and prints the numbers of rollouts and of tokens."""
    rollouts -= rollouts % GROUP
    noise = Noise()
    total = 0
    schema = fields()
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as file:
        for first in range(0, rollouts, GROUP):
            rows = [rollout(number, tokens, noise) for number in range(first, first + GROUP)]
            total += sum(len(row["token_ids"]) for row in rows)
            file.write_table(pa.Table.from_pylist(rows, schema=schema))
    print(rollouts, total)


if __name__ == "__main__":
    generate(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
