"""Has the fields of `forge.data_models.prompt` (torchforge 6e77f0b, src/forge/data_models/prompt.py:28)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class Prompt:
    messages: Sequence[Any]
