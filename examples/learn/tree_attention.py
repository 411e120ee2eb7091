"""Implements TRL's packed attention on the CPU. TRL's own is a kernel for GPUs only (flash-attn3, as `tree_fa3`).

Samples of a group are packed as a tree, whose shared parts are computed once. A segment of the tree attends to the path
from the root to itself.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from trl.experimental.async_grpo.packing import TREE_ATTENTION


def register() -> None:
    """Replaces the GPU kernel, which a trainer registers when it is made."""
    AttentionInterface.register(TREE_ATTENTION, attend)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    tree_kv_index: torch.Tensor,
    tree_cu_seqlens_q: torch.Tensor,
    tree_cu_seqlens_k: torch.Tensor,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Takes `query`, `key` and `value` of shape (1, heads, tokens, size), and returns (1, tokens, heads, size).

    Segment i has the queries between `tree_cu_seqlens_q[i]` and `tree_cu_seqlens_q[i + 1]`. `tree_kv_index` lists the
    positions of its path between the same entries of `tree_cu_seqlens_k`. The path ends with the segment itself.
    """
    made = []
    segments, paths = (list(pairwise(bounds.tolist())) for bounds in (tree_cu_seqlens_q, tree_cu_seqlens_k))
    for (start, end), (path_start, path_end) in zip(segments, paths):
        path = tree_kv_index[path_start:path_end]
        length = end - start
        visible = torch.ones(length, len(path), dtype=torch.bool).tril(len(path) - length)
        made.append(
            scaled_dot_product_attention(
                query[:, :, start:end],
                key[:, :, path],
                value[:, :, path],
                attn_mask=visible,
                scale=scaling,
                enable_gqa=True,
            )
        )
    return torch.cat(made, dim=2).transpose(1, 2), None
