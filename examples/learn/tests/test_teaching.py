"""Tests the lessons and their loss."""

from __future__ import annotations

import random

import pytest
import torch
from model import make_tokenizer
from teach import Lesson, elsewhere, lesson, loss, usual

CONVERSATION = [
    {"role": "user", "content": "# Task\n\nMend it.\n\nTerminal screen:\n\nme@here:/tmp/rolltap-aB3/app#\n"},
    {"role": "assistant", "content": '{"commands": "pwd"}'},
    {"role": "user", "content": "New terminal output:\n\nme@here:/tmp/rolltap-aB3/app# pwd\n/tmp/rolltap-aB3/app\nme@here:/tmp/rolltap-aB3/app#\n"},
]


def test_elsewhere_is_a_container() -> None:
    first, said, second = (message["content"] for message in elsewhere(CONVERSATION, random.Random(0)))
    prompt = first.rstrip().rpartition("\n")[2]
    host = prompt.removeprefix("root@").removesuffix(":/app#")
    assert len(host) == 12 and prompt == f"root@{host}:/app#"
    assert said == CONVERSATION[1]["content"]
    assert second == f"New terminal output:\n\n{prompt} pwd\n/app\n{prompt}\n"


def test_said_are_the_answers_with_their_ends_as_the_template_shows_them() -> None:
    tokenizer = make_tokenizer([message["content"] for message in CONVERSATION])
    made = lesson(tokenizer, CONVERSATION)
    assert made.ids.tolist() == tokenizer.apply_chat_template(CONVERSATION, return_dict=False)
    assert tokenizer.decode(made.ids[made.said]) == CONVERSATION[1]["content"] + "<|im_end|>"


def test_each_token_said_counts_the_same_in_a_batch_of_long_lessons_as_in_one_of_short_ones(model: torch.nn.Module) -> None:
    """Regression: all batches had the same weight, and the policy made fewer mistakes than the teacher."""
    lessons = [made(length) for length in (30, 30, 30, 30, 90, 90, 90, 90)]
    of_batch = usual(lessons)
    short, long = (loss(model, batch, of_batch, heard=1.0).item() for batch in (lessons[:4], lessons[4:]))
    assert of_batch.said == 4 * 30 and of_batch.heard == 4 * 30
    # For an untrained model all tokens are about equally unlikely.
    assert long / short == pytest.approx(3.0, rel=0.1)


def made(length: int) -> Lesson:
    ids = torch.randint(3, 200, (length,), generator=torch.Generator().manual_seed(length))
    return Lesson(ids, torch.arange(length) % 2 == 0)
