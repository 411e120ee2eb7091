"""Batches for ROLL (commit 8eb27cc), from an export.

ROLL's agentic pipeline has no hook that takes batches from outside, except its mock of rollouts, which reads a file per
step.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from roll.distributed.scheduler.protocol import DataProto


def data_proto(lines: Iterable[Mapping[str, Any]], sequence_length: int, pad_token_id: int) -> DataProto:
    """Returns a batch with a row per exported line, padded on the right to `sequence_length`.

    Raises ValueError if there is no line, or if a line has more tokens than `sequence_length`.
    """
    rows = list(lines)
    if not rows:
        raise ValueError("there is no line, and ROLL takes no empty batch")
    for row in rows:
        if len(row["input_ids"]) > sequence_length:
            raise ValueError(
                f"{row['non_tensor']['traj_id']} has {len(row['input_ids'])} tokens, and sequence_length is "
                f"{sequence_length}; raise sequence_length, or leave the trial out"
            )
    lengths = [len(row["input_ids"]) for row in rows]
    attention = [[1] * length for length in lengths]
    prompts = [[1] * row["prompt_len"] for row in rows]
    # ROLL sums the scores of a row, and puts them on its last token.
    scores = [[0.0] * (length - 1) + [row["score"]] for row, length in zip(rows, lengths)]
    attention_mask = _padded(attention, sequence_length, torch.long, 0)
    tensors = {
        "input_ids": _padded([row["input_ids"] for row in rows], sequence_length, torch.long, pad_token_id),
        "attention_mask": attention_mask,
        # ROLL pads positions with 0.
        "position_ids": (attention_mask.cumsum(-1) - 1) * attention_mask,
        "response_mask": _padded([row["response_mask"] for row in rows], sequence_length, torch.bool, 0),
        "prompt_mask": _padded(prompts, sequence_length, torch.bool, 0),
        "scores": _padded(scores, sequence_length, torch.float32, 0.0),
        # The entry i is the logprob of the token i + 1.
        "infer_logprobs": _padded([row["infer_logprobs"] for row in rows], sequence_length - 1, torch.float32, 0.0),
    }
    names = rows[0]["non_tensor"]
    columns = {name: np.array([row["non_tensor"][name] for row in rows], dtype=object) for name in names}
    return DataProto.from_dict(tensors=tensors, non_tensors=columns, meta_info={"metrics": {}})


def save_mock_batch(batch: DataProto, dump_dir: str | Path, global_step: int) -> Path:
    """Writes the batch as the rollouts of a step, for ROLL's `rollout_mock` with `mode: mock`. Returns the path."""
    path = Path(dump_dir) / "train" / f"step_{global_step:06d}.pkl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        pickle.dump(batch, file)
    return path


def _padded(rows: Sequence[Sequence[Any]], width: int, dtype: torch.dtype, filling: Any) -> torch.Tensor:
    return torch.tensor([[*row, *[filling] * (width - len(row))] for row in rows], dtype=dtype)
