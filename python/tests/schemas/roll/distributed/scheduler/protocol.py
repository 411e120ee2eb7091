"""Has the members of ROLL's `DataProto` that an export fills, and their checks (ROLL 8eb27cc, in no package index).

- `DataProto`, `batch`, `non_tensor_batch`, `meta_info`: roll/distributed/scheduler/protocol.py:153
- `check_consistency`: the same file, line 342
- `from_dict`: the same file, line 396
- `ROW_TENSORS`, `ROW_COLUMNS`: what a trajectory has, roll/pipeline/agentic/env_manager/traj_env_manager.py:307-390 and
  proxy_env_manager.py:470-499
- `normalized`: roll/pipeline/agentic/utils.py:100, for `grouping: traj_group_id`
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

ROW_TENSORS = {
    "input_ids": torch.int64,
    "attention_mask": torch.int64,
    "position_ids": torch.int64,
    "response_mask": torch.bool,
    "prompt_mask": torch.bool,
    "scores": torch.float32,
    "infer_logprobs": torch.float32,
}
ROW_COLUMNS = {"env_ids", "group_ids", "traj_group_id", "traj_id", "tags", "step_scores", "episode_scores"}


class DataProto:
    def __init__(
        self, batch: dict[str, torch.Tensor], non_tensor_batch: dict[str, Any], meta_info: dict[str, Any]
    ) -> None:
        self.batch = batch
        self.non_tensor_batch = non_tensor_batch
        self.meta_info = meta_info
        self.check_consistency()

    @classmethod
    def from_dict(
        cls,
        tensors: dict[str, torch.Tensor],
        non_tensors: dict[str, Any] | None = None,
        meta_info: dict[str, Any] | None = None,
    ) -> DataProto:
        return cls(tensors, non_tensors or {}, meta_info or {})

    def check_consistency(self) -> None:
        sizes = {tensor.shape[0] for tensor in self.batch.values()}
        assert len(sizes) == 1, f"tensors of several batch sizes: {sizes}"
        for name, column in self.non_tensor_batch.items():
            assert isinstance(column, np.ndarray) and column.dtype == object, name
            assert column.shape[0] in sizes and name not in self.batch, name

    def check_rows(self, sequence_length: int) -> None:
        """Checks what the environment managers of the agentic pipeline provide for each trajectory."""
        assert {name: tensor.dtype for name, tensor in self.batch.items()} == ROW_TENSORS
        assert set(self.non_tensor_batch) == ROW_COLUMNS
        for name, tensor in self.batch.items():
            # The logprobs lack the first token, because no logits exist for it.
            width = sequence_length - (name == "infer_logprobs")
            assert tensor.shape[1] == width, name

    def normalized(self, std: bool = True) -> list[float]:
        """Returns the scores of the rows compared within their `traj_group_id`, by the rule of ROLL."""
        scores = self.batch["scores"].sum(-1)
        groups = self.non_tensor_batch["traj_group_id"]
        made = torch.zeros_like(scores)
        for group in set(groups):
            places = [place for place, name in enumerate(groups) if name == group]
            own = scores[places]
            spread = own.std()
            if not std:
                made[places] = own - own.mean()
            elif len(places) > 1 and spread > 1e-6:
                made[places] = (own - own.mean()) / (spread + 1e-6)
        return made.tolist()
