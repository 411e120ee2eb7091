"""What `test_verl_step` adds to verl, through verl's own registries: an engine that writes down the batches that it
trains, and a rollout server that serves nothing, because the agents sample elsewhere.

verl imports this module in each of its processes, because the setting `model.external_lib` names it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

RECORDS = "ROLLTAP_TEST_RECORDS"
"""The variable that names the folder of the engine's records."""
COLUMNS = ["input_ids", "prompts", "responses", "response_mask", "rollout_log_probs", "old_log_probs", "advantages"]

if "RANK" in os.environ and not torch.distributed.is_initialized():
    # verl asks for the backends "cpu:gloo" and that of the device, and PyTorch refuses two backends of one device.
    torch.distributed.init_process_group("gloo")


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")
class Engine(FSDPEngineWithLMHead):
    """Is verl's FSDP engine, and also writes each trained batch and the weights after each step of the optimizer."""

    _steps = 0

    def forward_backward_batch(self, data: Any, loss_function: Callable[..., Any], forward_only: bool = False) -> Any:
        """Computes the gradient as verl does. Writes what the loss function gets."""

        def written(model_output: Any, data: Any, dp_group: Any = None) -> Any:
            record = {name: data[name] for name in COLUMNS} | {"log_probs": model_output["log_probs"]}
            lists = {name: [one.detach().tolist() for one in tensor.unbind()] for name, tensor in record.items()}
            torch.save(lists, self._record("batch"))
            return loss_function(model_output=model_output, data=data, dp_group=dp_group)

        return super().forward_backward_batch(data, loss_function if forward_only else written, forward_only)

    def optimizer_step(self) -> Any:
        """Makes verl's step, and writes the weights after it."""
        length = super().optimizer_step()
        named = self.module.state_dict().items()
        torch.save(
            {name: one.full_tensor() if isinstance(one, DTensor) else one for name, one in named},
            self._record("weights"),
        )
        self._steps += 1
        return length

    def _record(self, what: str) -> Path:
        return Path(os.environ[RECORDS]) / f"{what}-{self._steps}.pt"


class NoRollout(BaseRollout):
    """Takes weights and does nothing with them, because the agents sample from a server of their own."""

    async def resume(self, tags: list[str]) -> None:
        """Does nothing, because no weights were released."""

    async def update_weights(self, weights: Any, wire_format: str = "named_tensors", **kwargs: Any) -> None:
        """Reads the weights to the end, as an engine would."""
        for _ in weights:
            pass

    async def release(self) -> None:
        """Does nothing, because there are no weights."""


class NoReplica(RolloutReplica):
    """Is a replica without servers."""

    async def launch_servers(self) -> None:
        """Starts nothing. verl's trainer only asks the servers in `servers` to sleep and to wake up."""
        self._server_address = "none"


RolloutReplicaRegistry.register("none", lambda: NoReplica)
_ROLLOUT_REGISTRY["none", "async"] = f"{__name__}.{NoRollout.__name__}"
