"""NeMo-RL (commit 7ea279a): what its Gym environment hands to the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def result(line: Mapping[str, Any]) -> dict[str, Any]:
    """The result of an exported line, its lists as tensors."""
    log = [_tensors(message) for message in line["message_log"]]
    return {**line, "message_log": log, "input_message_log": log[:1]}


def _tensors(message: Mapping[str, Any]) -> dict[str, Any]:
    made = {**message, "token_ids": torch.tensor(message["token_ids"], dtype=torch.int64)}
    if "generation_logprobs" in message:
        made["generation_logprobs"] = torch.tensor(message["generation_logprobs"], dtype=torch.float32)
    return made
