"""Tests TRL's packed attention on the CPU: each sample attends to the same tokens as without packing."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from tree_attention import attend
from trl.experimental.async_grpo.packing import TreeRow

HEADS, SIZE, SCALE = 2, 8, 0.3


def test_each_sample_sees_its_own_path_alone() -> None:
    shared, start = [5, 6, 7, 8], [5, 6]
    samples = [[*shared, 1, 2, 3], [*shared, 1, 4], [*start, 9, 9, 9], shared]
    row = TreeRow()
    for ids in samples:
        row.add({"input_ids": np.asarray(ids), "completion_mask": np.ones(len(ids)), "group_id": 0,
                 "old_log_probs": np.zeros(len(ids)), "advantage": 1.0})
    packed = row.pack()
    tokens = len(packed["input_ids"])
    assert tokens < sum(map(len, samples)), "nothing is shared, and so nothing is tested"
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, HEADS, tokens, SIZE)
    tree = {name: packed[name] for name in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")}
    made, _ = attend(torch.nn.Identity(), query, key, value, None, scaling=SCALE, tree_max_seqlen_q=9, **tree)
    assert made.shape == (1, tokens, HEADS, SIZE)
    for path in paths(packed):
        alone = scaled_dot_product_attention(
            query[:, :, path], key[:, :, path], value[:, :, path], is_causal=True, scale=SCALE
        )
        torch.testing.assert_close(made[:, path], alone.transpose(1, 2))
    assert sorted(packed["input_ids"][path].tolist() for path in paths(packed)) == sorted(samples)


def paths(packed: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Returns the positions of each sample's tokens: the paths that are not a prefix of another path."""
    bounds = packed["tree_cu_seqlens_k"].tolist()
    every = [packed["tree_kv_index"][start:end] for start, end in zip(bounds, bounds[1:])]
    return [
        one
        for one in every
        if not any(len(other) > len(one) and torch.equal(other[: len(one)], one) for other in every)
    ]
