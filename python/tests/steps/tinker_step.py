"""Runs one step of tinker-cookbook's loop on a proxy's feed: `python tinker_step.py ADMIN MODEL FOLDER`.

The loop is the cookbook's own `do_sync_training`, as `examples/learn/with_tinker.py` calls it. The example's client
takes the place of Tinker's service. FOLDER gets what the client was sent, and its weights after the step.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tinker
import torch
from local_client import LocalClient
from loop import Sampling
from rollouts import Taken, take
from with_tinker import Batches, train

from rolltap import Client, Prepare


class Recorded(LocalClient):
    """Is the example's client, and also writes each batch and the weights after the step."""

    def __init__(self, model: Path, folder: Path) -> None:
        super().__init__(model, folder / "policy")
        self._folder_of_records = folder

    def _forward_backward(self, data: Sequence[tinker.Datum]) -> tinker.ForwardBackwardOutput:
        made = super()._forward_backward(data)
        batch = [
            {name: tensor.to_torch().tolist() for name, tensor in datum.loss_fn_inputs.items()}
            | {"inputs": datum.model_input.to_ints(), "now": output["logprobs"].to_torch().tolist()}
            for datum, output in zip(data, made.loss_fn_outputs, strict=True)
        ]
        torch.save(batch, self._folder_of_records / f"batch-{self._steps}.pt")
        return made

    def _optim_step(self, params: tinker.AdamParams) -> tinker.OptimStepResponse:
        path = self._folder_of_records / f"weights-{self._steps}.pt"
        made = super()._optim_step(params)
        torch.save(self._model.state_dict(), path)
        return made


class Feed(Sampling):
    """Reads the only group of the batch from the feed. Its trials have ended already."""

    def __init__(self, admin: str) -> None:
        self._admin = admin

    def submit(self, last: int) -> None:
        """Submits nothing."""

    def take(self, step: int, cursor: str | None, prepare: Prepare | None = None) -> Taken:
        """Returns the next group."""
        with Client(self._admin) as client:
            return take(client, cursor, 1, lambda: True, prepare)


class Metrics:
    """Writes the cookbook's figures of the step."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "metrics.json"

    def write(self, step: int, taken: Taken, trainer: dict[str, Any]) -> None:
        """Writes one step."""
        self._path.write_text(json.dumps(trainer))


if __name__ == "__main__":
    admin, model, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    flags = argparse.Namespace(out=folder, taught=model, learning_rate=1e-2, steps=1)
    asyncio.run(train(flags, Recorded(model, folder), Batches(Feed(admin), 1, 1), Metrics(folder)))
