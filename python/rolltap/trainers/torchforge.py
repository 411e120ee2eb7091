"""Episodes for torchforge's GRPO application (commit 6e77f0b), from an export.

`Episode` is a class of the application (`apps/grpo/main.py`), which users copy, so it is an argument here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from forge.data_models.completion import Completion
from forge.data_models.prompt import Prompt

EpisodeType = TypeVar("EpisodeType")


def completion(line: Mapping[str, Any]) -> Completion:
    """Returns the completion of an exported line. It has no text."""
    return Completion(
        prompt=Prompt(messages=[]),
        text="",
        prompt_ids=torch.tensor(line["prompt_ids"], dtype=torch.long),
        token_ids=torch.tensor(line["token_ids"], dtype=torch.long),
        logprobs=torch.tensor(line["logprobs"], dtype=torch.float32),
        stop_reason=line["stop_reason"],
        generator_version=line["generator_version"],
        metadata=line["metadata"],
    )


def episode(
    line: Mapping[str, Any],
    episode_type: Callable[..., EpisodeType],
    *,
    pad_id: int,
    request_len: int,
    response_len: int,
) -> EpisodeType:
    """Returns the episode of an exported line, without `ref_logprobs`, which the application's own model computes.

    Raises ValueError if the prompt has more than `request_len` tokens or the completion more than `response_len`. The
    application pads to these lengths, and cannot put a longer episode into a batch.
    """
    for name, limit in (("prompt_ids", request_len), ("token_ids", response_len)):
        if len(line[name]) > limit:
            raise ValueError(
                f"episode {line['episode_id']} has {len(line[name])} {name}, and the limit is {limit}; raise "
                "max_req_tokens or max_res_tokens, or leave the episode out"
            )
    return episode_type(
        episode_id=line["episode_id"],
        pad_id=pad_id,
        request_len=request_len,
        response_len=response_len,
        completion=completion(line),
        reward=line["reward"],
        advantage=line["advantage"],
    )
