"""Samples trials from a model with transformers, as rollout/1 rows. The rows hold the model's own logprobs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

ANSWER_TOKENS = 8
"""The number of tokens of each answer."""
VERSION = 0
"""The policy version that sampled every token: that of weights before any step. It is also the label of that version."""


@dataclass
class Branch:
    """Has the tokens of one conversation, and the spans of its answers."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[tuple[int, int, str]] = field(default_factory=list)
    """Start, end and call of each answer."""

    def copy(self) -> Branch:
        """Returns a conversation that starts with the same tokens and calls."""
        return Branch([*self.token_ids], [*self.logprobs], [*self.spans])


class Sampler:
    """Samples conversations from a model at temperature 1, the same ones for the same seed."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._generator = torch.Generator().manual_seed(seed)

    def turn(self, branch: Branch, text: str) -> Branch:
        """Appends a message of the user and a sampled answer to the branch, and returns the branch."""
        asked = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        prompt = self._tokenizer(asked, add_special_tokens=False)["input_ids"]
        branch.token_ids += prompt
        branch.logprobs += [0.0] * len(prompt)
        start = len(branch.token_ids)
        for _ in range(ANSWER_TOKENS):
            token, logprob = self._next(branch.token_ids)
            branch.token_ids.append(token)
            branch.logprobs.append(logprob)
        branch.spans.append((start, len(branch.token_ids), uuid.uuid4().hex))
        return branch

    @torch.no_grad()
    def _next(self, ids: list[int]) -> tuple[int, float]:
        logits = self._model(input_ids=torch.tensor([ids])).logits[0, -1]
        logprobs = torch.log_softmax(logits.float(), dim=-1)
        token = int(torch.multinomial(logprobs.exp(), 1, generator=self._generator))
        return token, float(logprobs[token])


def rows_of_trial(branches: list[Branch], group_id: str, group_size: int, index: int, reward: float) -> list[Any]:
    """Returns a row for each branch of a trial. A token that branches share is trained in the first of them."""
    trial_id, owned, rows = uuid.uuid4().hex, set(), []
    for number, branch in enumerate(branches):
        sampled, trained = [0] * len(branch.token_ids), [0] * len(branch.token_ids)
        for start, end, call_id in branch.spans:
            sampled[start:end] = [1] * (end - start)
            trained[start:end] = [int(call_id not in owned)] * (end - start)
        owned |= {call_id for *_, call_id in branch.spans}
        rows.append(
            {
                **_identity(trial_id, group_id, group_size, index, reward),
                "branch_index": number,
                "num_branches": len(branches),
                "is_last_branch": number == len(branches) - 1,
                "branch_cause": "fork" if number else "first_call",
                "branch_reprefilled": 0,
                "token_ids": branch.token_ids,
                "sampled_mask": sampled,
                "trainable_mask": sampled,
                "loss_mask": trained,
                "logprobs": branch.logprobs,
                "token_version": [VERSION if one else -1 for one in sampled],
                "prompt_len": branch.spans[0][0],
                "calls": _calls(branch),
            }
        )
    return rows


def _identity(trial_id: str, group_id: str, group_size: int, index: int, reward: float) -> dict[str, Any]:
    return {
        "schema_version": "rollout/1",
        "trial_id": trial_id,
        "group_id": group_id,
        "group_size": group_size,
        "sample_index": index,
        "attempt": 0,
        "superseded": False,
        "task_id": "org/folder",
        "environment": None,
        "version_labels": {str(VERSION): str(VERSION)},
        "reward": reward,
        "advantage": None,
        "rewards": {"reward": reward},
        "reward_valid": True,
        "failure_cause": None,
        "is_truncated": True,
        "stop_reason": "length",
        "status": "truncated",
        "model": "tiny",
        "tokenizer_hash": None,
        "vocab_size": 4096,
        "logprobs_mode": "raw_logprobs",
        "has_media": False,
        "origin": "captured",
    }


def _calls(branch: Branch) -> list[dict[str, Any]]:
    return [
        {
            "call_id": call_id,
            "choice_index": 0,
            "parent_call_id": branch.spans[place - 1][2] if place else None,
            "role": "main",
            "model": "tiny",
            "prompt_len": start,
            "start": start,
            "end": end,
            "finish_reason": "length",
            "version": VERSION,
            "sampled_at": f"2026-11-01T00:00:{place:02}Z",
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "constrained": False,
            "sampling": '{"temperature": 1.0}',
            "messages": None,
        }
        for place, (start, end, call_id) in enumerate(branch.spans)
    ]
