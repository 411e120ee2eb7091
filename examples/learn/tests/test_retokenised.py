"""Tests the control whose rows are tokenised again, with a tokenizer that merges what the policy sampled apart."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import pytest
import torch
import trainer as trainer_module
from model import make_model, make_tokenizer, render, save
from retokenised import Piece, Retokenised, align, figures, recomputed, retokenise, tokenise
from rollouts import Sample, Taken
from step import logprobs
from trainer import Settings, Trainer

TASK, ANSWERS, SCREEN = "some words", ("and some words", "some more words"), "more"
CONVERSATION = [
    {"role": "user", "content": TASK},
    {"role": "assistant", "content": ANSWERS[0]},
    {"role": "user", "content": SCREEN},
    {"role": "assistant", "content": ANSWERS[1]},
]


@pytest.fixture
def tokenizer() -> Any:
    return make_tokenizer(["some words", "and some more words"] * 3)


def captured(tokenizer: Any, *, apart: bool, end: bool = True) -> tuple[Sample, Any]:
    """Returns a branch of two answers and its row. With `apart`, the first answer was sampled as one token per
    character. Without `end`, the last one ran into the length limit."""
    ids: list[int] = []
    mask: list[int] = []
    calls: list[dict[str, Any]] = []
    for turn, answer in enumerate(ANSWERS):
        prompt = render(tokenizer, CONVERSATION[: 2 * turn + 1], add_generation_prompt=True)
        # The exact prompt is that of the turn before with its sampled ids, and the text after them.
        known = render(tokenizer, CONVERSATION[: 2 * turn]).removesuffix("\n") if turn else ""
        heard = tokenizer.encode(prompt.removeprefix(known))
        parts = answer if apart and turn == 0 else [answer]
        said = [one for part in parts for one in tokenizer.encode(part)]
        if end or turn == 0:
            said.append(tokenizer.eos_token_id)
        start = len(ids) + len(heard)
        messages = CONVERSATION[: 2 * turn + 2]
        calls.append({"call_id": str(turn), "start": start, "end": start + len(said), "messages": json.dumps(messages)})
        ids += heard + said
        mask += [0] * len(heard) + [1] * len(said)
    versions = [int(at >= calls[0]["end"]) for at in range(len(ids))]
    row = {"trial_id": "t", "branch_index": 1, "calls": calls}
    return Sample("t", ids, mask, [-0.5 * one for one in mask], versions, 1.0, 1), row


def only(tokenizer: Any, sample: Sample, row: Any) -> Retokenised:
    (made,) = retokenise(tokenizer, [sample], [row])
    return made


def test_the_tokenizer_is_not_the_inverse_of_its_decoder(tokenizer: Any) -> None:
    apart = [one for sign in ANSWERS[0] for one in tokenizer.encode(sign)]
    assert tokenizer.decode(apart) == ANSWERS[0] and tokenizer.encode(ANSWERS[0]) != apart


def test_pieces_end_where_both_tokenisations_have_a_boundary() -> None:
    made = align(["a", "b", "cd", "e", "f"], ["ab", "c", "de", "f"])
    assert made == [Piece(range(0, 2), range(0, 1)), Piece(range(2, 4), range(1, 3)), Piece(range(4, 5), range(3, 4))]
    assert align([], []) == []


def test_text_that_changed_is_a_piece_between_equal_ones() -> None:
    made = align(["a", "b", "xy", "c", "END"], ["a", "b", "z", "c", "END"])
    assert made == [Piece(range(at, at + 1), range(at, at + 1)) for at in range(5)]
    # Special tokens, which the text does not show, at two places.
    made = align(["START", "a", "b", "START", "c"], ["a", "b", "c", "END"])
    assert [(len(piece.sampled), len(piece.made)) for piece in made] == [(1, 0), (1, 1), (1, 1), (1, 0), (1, 1), (0, 1)]
    # The end of a turn that was never sampled, and white space that the agent removed.
    assert align(["a"], ["a", "END"])[1] == Piece(range(1, 1), range(1, 2))
    assert align(["a", " ", "END"], ["a", "END"])[1] == Piece(range(1, 2), range(1, 1))
    # A sign is not aligned twice if the end repeats the beginning.
    assert align(["a", "a", "a"], ["a"]) == [Piece(range(0, 1), range(0, 1)), Piece(range(1, 3), range(1, 1))]


def test_trained_are_the_answers_with_their_ends_as_in_the_capture(tokenizer: Any) -> None:
    sample, row = captured(tokenizer, apart=False)
    made = only(tokenizer, sample, row)
    assert made.sample.ids == sample.ids and made.sample.mask == sample.mask and made.sample.branch == 1
    at = [place for place, trained in enumerate(sample.mask) if trained]
    assert [made.sample.versions[place] for place in at] == [sample.versions[place] for place in at]
    told = figures([made], [torch.tensor([-0.5] * len(at))])
    assert told == dict.fromkeys(told, 0.0)


def test_a_token_that_was_never_sampled_is_visible(tokenizer: Any) -> None:
    sample, row = captured(tokenizer, apart=True)
    made = only(tokenizer, sample, row)
    answer = tokenizer.encode(ANSWERS[0])
    said = [one for one, trained in zip(made.sample.ids, made.sample.mask) if trained]
    assert said == [*answer, tokenizer.eos_token_id, *tokenizer.encode(ANSWERS[1]), tokenizer.eos_token_id]
    never = sum(len(piece.made) for piece in made.pieces if not made.is_sampled(piece))
    assert 0 < never <= len(answer)
    told = figures([made], [torch.tensor([-0.5] * len(said))])
    assert told["ids_differ"] == 1.0 and told["never_sampled"] == never / len(said)
    # A piece of n sampled tokens has n times the logprob here, and the token made of it has it once.
    longest = max(len(piece.sampled) for piece in made.pieces if len(piece.made) == 1)
    assert told["logprob_diff_max"] == pytest.approx(0.5 * (longest - 1)) and longest > 2


def test_the_end_of_an_answer_that_ran_into_the_limit_was_never_sampled(tokenizer: Any) -> None:
    sample, row = captured(tokenizer, apart=False, end=False)
    made = only(tokenizer, sample, row)
    assert made.sample.ids == [*sample.ids, tokenizer.eos_token_id] and made.sample.mask[-1] == 1
    assert made.sample.versions[-1] == sample.versions[-1]
    told = figures([made], [torch.tensor([-0.5] * sum(made.sample.mask))])
    assert told["never_sampled"] == 1 / sum(made.sample.mask) and told["logprob_diff_max"] == 0.0


def test_an_answer_that_another_branch_trains_is_not_trained_again(tokenizer: Any) -> None:
    sample, row = captured(tokenizer, apart=True)
    start, end = row["calls"][0]["start"], row["calls"][0]["end"]
    mask = [0 if start <= at < end else trained for at, trained in enumerate(sample.mask)]
    made = only(tokenizer, Sample("t", sample.ids, mask, sample.logprobs, sample.versions, 1.0, 1), row)
    trained = list(compress(made.sample.ids, made.sample.mask))
    assert trained == [*tokenizer.encode(ANSWERS[1]), tokenizer.eos_token_id]


def test_a_branch_without_recorded_messages_is_left_out(tokenizer: Any) -> None:
    sample, row = captured(tokenizer, apart=False)
    for call in row["calls"]:
        call["messages"] = None
    assert retokenise(tokenizer, [sample], [row]) == []


def test_old_logprobs_are_those_of_the_weights_at_the_time(tokenizer: Any) -> None:
    sample, row = captured(tokenizer, apart=True)
    made = only(tokenizer, sample, row)
    model = make_model(tokenizer, seed=3).eval()
    with torch.no_grad():
        values = logprobs(model, [made.sample])
    (filled,) = recomputed([made], values)
    assert list(compress(filled.logprobs, filled.mask)) == values[0].tolist()
    assert not any(one for one, trained in zip(filled.logprobs, filled.mask) if not trained)


def test_the_text_is_tokenised_as_a_whole(tokenizer: Any) -> None:
    ids, answers = tokenise(tokenizer, CONVERSATION)
    whole = tokenizer.apply_chat_template(CONVERSATION, return_dict=False)
    assert ids == whole[: len(ids)] and tokenizer.decode(whole[len(ids) :]) == "\n"
    spoken = [tokenizer.decode([ids[at] for at in answers[index]]) for index in (1, 3)]
    assert spoken == [f"{one}<|im_end|>" for one in ANSWERS]


def test_the_trainer_trains_the_text_and_shows_what_was_never_sampled(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, row = captured(tokenizer, apart=True)
    save(make_model(tokenizer, seed=3), tokenizer, tmp_path / "taught")
    settings = Settings(1e-3, 4, 1.0, 0.05, "retokenised", 0, "rolltap")
    trainer = Trainer(tmp_path / "taught", tmp_path, settings, lambda _: None)
    monkeypatch.setattr(trainer_module, "export", lambda *_: [replace(sample, versions=[0] * len(sample.ids))])
    facts = {"trial_id": "t", "reward": 1.0, "reward_valid": True, "failure_cause": None, "group_id": "g"}
    spans = [{**call, "parent_call_id": None} for call in row["calls"]]
    full = {**row, **facts, "calls": spans, "token_ids": sample.ids, "sampled_mask": sample.mask}
    trials: list[Any] = [{**facts, "rows": [full]}]
    assert trainer.needs_messages
    told = trainer.step(Taken("5", trials))
    assert told["ids_differ"] == 1.0 and told["never_sampled"] > 0.0 and told["not_finite"] == 0.0
    assert told["trained_tokens"] == sum(only(tokenizer, sample, row).sample.mask) and told["staleness_max"] == 0.0
