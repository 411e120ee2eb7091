"""prime-rl (commit 559b447): micro-batches, as its trainer reads them from a file per step and rank."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from prime_rl.transports.rollouts.types import MicroBatch


def micro_batches(path: str | os.PathLike[str]) -> list[MicroBatch]:
    """Those of a file that `rolltap export --format prime-rl` wrote."""
    return msgspec.msgpack.decode(Path(path).read_bytes(), type=list[MicroBatch])


def place(path: str | os.PathLike[str], output: str | os.PathLike[str], step: int, rank: int = 0) -> Path:
    """Puts an exported file where the trainer of that rank looks for a step's rollouts; gives the place.

    `output` is prime-rl's own output directory, on the same file system: the file is there whole, or not at all.
    """
    folder = Path(output) / "rollouts" / f"step_{step}"
    folder.mkdir(parents=True, exist_ok=True)
    return Path(path).replace(folder / f"rank_{rank}.bin")
