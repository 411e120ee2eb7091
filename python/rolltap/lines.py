"""Lines of JSON, as the proxy sends and `rolltap export` writes them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any


class LineBuffer:
    """Whole lines of a stream that comes in pieces.

    A line ends with a line feed and nothing else: JSON may hold the other characters that Unicode calls line ends. What
    has no line feed yet is no line; where the stream breaks off there, it never was one.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that are whole with this piece, without their line feeds; blank ones are left out."""
        # A line of a long trial comes in thousands of pieces: each is looked at once, and joined at the end.
        end, *others = piece.split(b"\n")
        self._rest.append(end)
        if not others:
            return []
        lines = [b"".join(self._rest), *others[:-1]]
        self._rest = others[-1:]
        return [line for line in lines if line.strip()]


def read_lines(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The objects of a file that `rolltap export` wrote as JSON Lines, one after the other."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{os.fspath(path)}, line {number}: {error}") from error
