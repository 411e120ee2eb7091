"""Micro-batches for prime-rl (commit 559b447), whose trainer reads a file per step and rank."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from prime_rl.transports.rollouts.types import MicroBatch


def micro_batches(path: str | os.PathLike[str]) -> list[MicroBatch]:
    """Returns the micro-batches of a file that `rolltap export --format prime-rl` wrote."""
    return msgspec.msgpack.decode(Path(path).read_bytes(), type=list[MicroBatch])


def place(path: str | os.PathLike[str], output: str | os.PathLike[str], step: int, rank: int = 0) -> Path:
    """Moves an exported file to the path from which the trainer of `rank` reads `step`, and returns that path.

    `output` is prime-rl's output directory. It must be on the file system of the exported file, so that the move is
    atomic and the trainer never reads an incomplete file.
    """
    folder = Path(output) / "rollouts" / f"step_{step}"
    folder.mkdir(parents=True, exist_ok=True)
    return Path(path).replace(folder / f"rank_{rank}.bin")
