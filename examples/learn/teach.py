"""Supervised training: the policy learns to speak as the teacher's transcripts do, mistakes included."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from model import END_OF_TURN, body, make_model, make_tokenizer, save
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2ForCausalLM

LEARNING_RATE = 3e-3
BATCH = 4
PROMPT = re.compile(r"\S+@[^\s:]+:(\S*)")
"""A shell's prompt up to the working directory, which is also the answer to `pwd`."""


class Lesson(NamedTuple):
    """A conversation in tokens, and which of them the policy says."""

    ids: torch.Tensor
    said: torch.Tensor


def elsewhere(conversation: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """The same, at another machine's prompt: the policy is not to depend on where it works."""
    found = PROMPT.search(conversation[0]["content"].rstrip().rpartition("\n")[2])
    if found is None:
        raise ValueError("the first message does not end with a shell's prompt")
    host = "".join(chance.choice("0123456789abcdef") for _ in range(12))
    here, there = found.group(0).rstrip("#$"), f"root@{host}:/app"
    folder = here.rpartition(":")[2]
    return [
        {**message, "content": message["content"].replace(here, there).replace(folder, "/app")}
        for message in conversation
    ]


class Usual(NamedTuple):
    """Tokens in a batch, on average. A batch of long lessons, in which the teacher erred more, counts for more than one of
    short ones; as means of their own both would count the same, and the policy would be better than the teacher."""

    said: float
    heard: float


def usual(lessons: Sequence[Lesson]) -> Usual:
    """Of these lessons."""
    said = sum(int(one.said.sum()) for one in lessons)
    heard = sum(len(one.ids) for one in lessons) - said
    return Usual(said * BATCH / len(lessons), heard * BATCH / len(lessons))


def lesson(tokenizer: PreTrainedTokenizerFast, conversation: Sequence[dict[str, Any]]) -> Lesson:
    """The conversation as the chat template shows it; said are the answers with their ends."""
    ids: list[int] = []
    said: list[bool] = []
    for message in conversation:
        header = tokenizer.encode(f"<|im_start|>{message['role']}\n", add_special_tokens=False)
        words = tokenizer.encode(body(message) + END_OF_TURN, add_special_tokens=False)
        rest = tokenizer.encode("\n", add_special_tokens=False)
        ids += header + words + rest
        said += [False] * len(header) + [message["role"] == "assistant"] * len(words) + [False] * len(rest)
    return Lesson(torch.tensor(ids), torch.tensor(said))


def batches(lessons: Sequence[Lesson], chance: random.Random) -> Iterator[list[Lesson]]:
    """For ever: lessons of like length together, so that little is padded."""
    while True:
        mixed = sorted(lessons, key=lambda one: (len(one.ids) // 100, chance.random()))
        starts = list(range(0, len(mixed), BATCH))
        chance.shuffle(starts)
        for start in starts:
            yield mixed[start : start + BATCH]


def loss(model: Qwen2ForCausalLM, batch: Sequence[Lesson], usual: Usual, heard: float) -> torch.Tensor:
    """Of what is said, in nats per token, and so much of that of all else.

    What is heard is not the policy's to say. But it teaches to copy names from the task and the screen, and soon.
    """
    ids = torch.nn.utils.rnn.pad_sequence([one.ids for one in batch], batch_first=True)
    said = torch.nn.utils.rnn.pad_sequence([one.said for one in batch], batch_first=True)[:, 1:]
    # Behind the end of a lesson 0 stands, which is a token too.
    real = torch.nn.utils.rnn.pad_sequence([torch.ones_like(one.said) for one in batch], batch_first=True)[:, 1:]
    hidden = model.model(input_ids=ids[:, :-1]).last_hidden_state

    def total(where: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model.lm_head(hidden[where]), ids[:, 1:][where], reduction="sum")

    value = total(said) / usual.said
    return value + heard * total(real & ~said) / usual.heard if heard else value


def teach(
    conversations: Sequence[list[dict[str, Any]]],
    folder: Path,
    *,
    shows_prompt: bool,
    seed: int,
    steps: int,
    say: Callable[[str], None],
) -> None:
    """Makes a tokenizer and a model, teaches it, and saves both. `shows_prompt`: the conversations show a shell's prompt."""
    chance = random.Random(seed)
    seen = [elsewhere(one, chance) if shows_prompt and at % 2 else one for at, one in enumerate(conversations)]
    tokenizer = make_tokenizer(body(message) for one in seen for message in one)
    model = make_model(tokenizer, seed)
    # transformers chooses a tokenizer's class by the type of the model beside it. The lessons have the tokens of that class, with
    # which the trainer and vLLM load this folder too.
    save(model, tokenizer, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    lessons = [lesson(tokenizer, one) for one in seen]
    of_batch = usual(lessons)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01, betas=(0.9, 0.98))
    told = time.monotonic()
    for step, batch in zip(range(steps), batches(lessons, chance)):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / 40) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        optimizer.zero_grad()
        # Towards the end the answers alone count: what cannot be read is a turn lost.
        value = loss(model, batch, of_batch, heard=1.0 if step < 0.6 * steps else 0.0)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if time.monotonic() - told > 5 or step + 1 == steps:
            told = time.monotonic()
            say(f"teaching: step {step + 1} of {steps}, {value.item():.4f} nats per token")
    save(model, tokenizer, folder)
