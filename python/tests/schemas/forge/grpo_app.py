"""Has the `Episode` of torchforge's GRPO application and its batching (torchforge 6e77f0b, in no usable package).

- `Episode`: apps/grpo/main.py:44-76; `collate`: apps/grpo/main.py:84-118
- The package `torchforge` 0.0.1 of the package index has no code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad

from forge.data_models.completion import Completion


@dataclass
class Episode:
    episode_id: str
    pad_id: int
    request_len: int
    response_len: int
    target: Any | None = None
    completion: Completion | None = None
    ref_logprobs: torch.Tensor | None = None
    reward: float | None = None
    advantage: float | None = None

    @property
    def policy_version(self) -> int | None:
        assert self.completion is not None
        return self.completion.generator_version

    @property
    def request_tensor(self) -> torch.Tensor:
        assert self.completion is not None
        ids = self.completion.prompt_ids
        return pad(ids, (self.request_len - len(ids), 0), value=self.pad_id)

    @property
    def response_tensor(self) -> torch.Tensor:
        assert self.completion is not None
        ids = self.completion.token_ids
        return pad(ids, (0, self.response_len - len(ids)), value=self.pad_id)


def collate(episodes: Sequence[Episode]) -> dict[str, torch.Tensor]:
    """Returns the tensors of a batch: every token of a response is trained, except those with the id of the padding."""
    responses = torch.stack([episode.response_tensor for episode in episodes])
    requests = torch.stack([episode.request_tensor for episode in episodes])
    return {
        "tokens": torch.cat([requests, responses], dim=1),
        "response": responses,
        "advantages": torch.tensor([episode.advantage for episode in episodes]).unsqueeze(-1),
        "padding_mask": responses != episodes[0].pad_id,
    }
