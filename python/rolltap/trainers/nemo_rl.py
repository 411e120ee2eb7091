"""Results for NeMo-RL (commit 7ea279a), in the form that its Gym environment gives to the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def result(line: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the result of an exported line, with tensors instead of lists of token ids and logprobs."""
    log = [_tensors(message) for message in line["message_log"]]
    return {**line, "message_log": log, "input_message_log": log[:1]}


def _tensors(message: Mapping[str, Any]) -> dict[str, Any]:
    made = {**message, "token_ids": torch.tensor(message["token_ids"], dtype=torch.int64)}
    if "generation_logprobs" in message:
        made["generation_logprobs"] = torch.tensor(message["generation_logprobs"], dtype=torch.float32)
    return made
