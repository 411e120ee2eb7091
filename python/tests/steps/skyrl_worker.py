"""Has SkyRL's policy worker on the CPU. It writes down what its loss function gets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from steps import cpu_as_cuda  # noqa: F401  (must precede SkyRL's workers)

import torch
from skyrl.backends.skyrl_train.workers.fsdp.fsdp_worker import FSDPPolicyWorkerBase
from torch.distributed.tensor import DTensor

RECORDS = "ROLLTAP_TEST_RECORDS"
"""The variable that names the folder of the worker's records."""


class Worker(FSDPPolicyWorkerBase):
    """Is SkyRL's FSDP worker, and also writes each trained batch and the weights after each step of the optimizer."""

    _steps = 0
    _micro = 0

    async def init_weight_sync_state(self, inference_engine_client: Any, inference_engine_cfg: Any) -> None:
        """Does nothing, because no engine samples during the step."""

    async def broadcast_to_inference_engines(self, *args: Any, **named: Any) -> None:
        """Does nothing, because no engine samples during the step."""

    def _forward_backward_micro(self, experience: Any, *args: Any, **named: Any) -> dict[str, Any]:
        status = super()._forward_backward_micro(experience, *args, **named)
        columns = ["sequences", "attention_mask", "loss_mask", "rollout_logprobs", "advantages"]
        record = {name: getattr(experience, name) for name in columns}
        torch.save({**record, "metrics": {**status}}, self._record(f"batch-{self._micro}"))
        self._micro += 1
        return status

    def optim_step(self) -> float:
        """Makes SkyRL's step, and writes the weights after it."""
        length = super().optim_step()
        named = self.model.model.state_dict().items()
        torch.save(
            {name: one.full_tensor() if isinstance(one, DTensor) else one for name, one in named},
            self._record(f"weights-{self._steps}"),
        )
        self._steps += 1
        return length

    def _record(self, name: str) -> Path:
        return Path(os.environ[RECORDS]) / f"{name}.pt"
