"""Has the fields of `forge.data_models.completion` (torchforge 6e77f0b, src/forge/data_models/completion.py:16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from forge.data_models.prompt import Prompt


@dataclass
class Completion:
    prompt: Prompt
    text: str
    prompt_ids: torch.Tensor
    token_ids: torch.Tensor
    logprobs: torch.Tensor | None = None
    stop_reason: str | None = None
    generator_version: int | None = None
    metadata: dict[str, Any] | None = None
