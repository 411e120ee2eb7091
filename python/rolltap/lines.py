"""Readers of JSON lines, as the proxy sends and `rolltap export` writes them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any


class LineBuffer:
    """Joins the pieces of a stream to whole lines.

    Only a line feed ends a line, because JSON text may contain the other line ends of Unicode. A last line without a
    line feed was cut off and is never returned.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Returns the lines that this piece completes, without their line feeds. Skips blank lines."""
        # A line of a long trial has thousands of pieces: each is scanned once, and all are joined at the end.
        end, *others = piece.split(b"\n")
        self._rest.append(end)
        if not others:
            return []
        lines = [b"".join(self._rest), *others[:-1]]
        self._rest = others[-1:]
        return [line for line in lines if line.strip()]


def read_lines(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yields the objects of a JSON Lines file of `rolltap export`.

    Raises ValueError with the path and the line number if a line is not JSON.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{os.fspath(path)}, line {number}: {error}") from error
