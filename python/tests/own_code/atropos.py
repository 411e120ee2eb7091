"""Runs Atropos' own server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from atroposlib.api.server import app
from starlette.testclient import TestClient


@contextmanager
def with_trainer(batch_size: int) -> Iterator[TestClient]:
    """Yields a client of the server, with a registered trainer that takes batches of `batch_size` samples.

    The server keeps its state in the process, so it is reset before and after.
    """
    trainer = {
        "wandb_group": "g",
        "wandb_project": "p",
        "batch_size": batch_size,
        "max_token_len": 4096,
        "checkpoint_dir": "",
        "save_checkpoint_interval": 1,
        "starting_step": 0,
        "num_steps": 1,
    }
    with TestClient(app) as server:
        server.get("/reset_data")
        server.post("/register", json=trainer).raise_for_status()
        # The first request for a batch marks the run as started.
        server.get("/batch")
        try:
            yield server
        finally:
            server.get("/reset_data")
