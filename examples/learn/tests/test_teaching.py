"""Teaching: what is said, and where."""

from __future__ import annotations

import random

from model import make_tokenizer
from teach import elsewhere, lesson

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
