"""AReaL (commit 4aef98d): the tensors that a workflow's `arun_episode` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

_PER_TOKEN = {
    "input_ids": (torch.int32, 0),
    "loss_mask": (torch.int32, 0),
    "logprobs": (torch.float32, 0.0),
    "versions": (torch.int32, -1),
}


def tensors(line: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of an exported line: a row per branch, filled up to the longest."""
    lengths = [len(ids) for ids in line["input_ids"]]
    width = max(lengths)
    made = {name: _filled(line[name], width, *how) for name, how in _PER_TOKEN.items()}
    attended = [[1] * length for length in lengths]
    return {
        **made,
        "attention_mask": _filled(attended, width, torch.bool, 0),
        "rewards": torch.tensor(line["rewards"], dtype=torch.float32),
    }


def _filled(rows: Sequence[Sequence[Any]], width: int, dtype: torch.dtype, filling: Any) -> torch.Tensor:
    return torch.tensor([[*row, *[filling] * (width - len(row))] for row in rows], dtype=dtype)
