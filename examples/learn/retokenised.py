"""Implements the control `retokenised`: rows made from the text of the conversations, which is all that a gateway without
token ids offers to a trainer.

The pipeline behind such a gateway renders the final conversation with the model's chat template, tokenises the text, and
masks the assistant parts as trained. It has no logprobs of these tokens. It recomputes them with the weights at the time
of training and uses them as the old logprobs, as verl does by default, and this control does the same. The importance
ratio is therefore 1, whatever the policy sampled. The pipeline cannot check its old logprobs: it would compare them with
themselves.

A tokenizer is not the inverse of its decoder. A policy also samples tokens that the tokenizer never produces for the same
text, and the pipeline then trains tokens that the policy did not sample. The control has the captured tokens too, and
aligns both by their text, so that a token that was never sampled is visible.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import accumulate, compress, pairwise
from statistics import fmean
from typing import Any, NamedTuple

import torch
from model import render
from rollouts import Sample

from rolltap.row import Row


class Piece(NamedTuple):
    """Represents a shortest piece of an answer at whose two ends both tokenisations have a boundary.

    Both ranges are positions of tokens. One of them is empty if the text exists on one side only, such as the end of an
    answer that ran into the length limit.
    """

    sampled: range
    made: range


@dataclass(frozen=True)
class Retokenised:
    """Holds a branch as tokenised again, with the branch as captured."""

    sample: Sample
    """All logprobs are 0 until the trainer recomputes them. A token has the version of the sampled token at its place."""
    captured: Sample
    pieces: list[Piece]
    """The pieces of all trained answers."""

    def is_sampled(self, piece: Piece) -> bool:
        """Returns whether the piece is one token that the policy sampled."""
        made = [self.sample.ids[at] for at in piece.made]
        return len(made) == 1 and made == [self.captured.ids[at] for at in piece.sampled]


def retokenise(tokenizer: Any, samples: Sequence[Sample], rows: Sequence[Row]) -> list[Retokenised]:
    """Returns the samples as tokenised again, in their order. The rows must have their messages. The result lacks branches
    whose conversation was not recorded."""
    of_sample = {(row["trial_id"], row["branch_index"]): row for row in rows}
    made = (_of_row(tokenizer, one, of_sample[one.trial_id, one.branch]) for one in samples)
    return [one for one in made if one is not None]


def recomputed(made: Sequence[Retokenised], logprobs: Sequence[torch.Tensor]) -> list[Sample]:
    """Returns the samples to train on, with the recomputed logprobs of the trained tokens as the old ones."""
    filled = []
    for one, values in zip(made, logprobs):
        left = iter(values.tolist())
        filled.append(replace(one.sample, logprobs=[next(left) if trained else 0.0 for trained in one.sample.mask]))
    return filled


def figures(made: Sequence[Retokenised], logprobs: Sequence[torch.Tensor]) -> dict[str, float]:
    """Returns the comparison with the captured tokens, given the logprobs of the trained tokens under the weights that
    sampled them.

    A difference of logprobs is that of a piece: the sum of the recomputed logprobs of its tokens less the sum of the captured
    ones. Pieces without sampled tokens have none.
    """
    apart: list[float] = []
    apart_never: list[float] = []
    trained = never = 0
    differing = {one.sample.trial_id: False for one in made}
    for one, values in zip(made, logprobs):
        differing[one.sample.trial_id] |= one.sample.ids != one.captured.ids
        now = dict(zip(compress(range(len(one.sample.ids)), one.sample.mask), values.tolist()))
        trained += len(now)
        for piece in one.pieces:
            was_sampled = one.is_sampled(piece)
            never += 0 if was_sampled else len(piece.made)
            if piece.sampled and piece.made:
                old = sum(one.captured.logprobs[at] for at in piece.sampled)
                apart.append(abs(sum(now[at] for at in piece.made) - old))
                if not was_sampled:
                    apart_never.append(apart[-1])
    return {
        "logprob_diff_mean": fmean(apart) if apart else 0.0,
        "logprob_diff_max": max(apart, default=0.0),
        "ids_differ": sum(differing.values()) / max(len(differing), 1),
        "never_sampled": never / max(trained, 1),
        "never_sampled_diff": fmean(apart_never) if apart_never else 0.0,
    }


def tokenise(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> tuple[list[int], dict[int, range]]:
    """Renders and tokenises a conversation up to its last answer. Returns the ids, and the tokens of each answer with its
    end of turn by the answer's index in the conversation."""
    text = render(tokenizer, messages)
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    starts = [start for start, _ in encoding["offset_mapping"]]
    answers = {}
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            begin = len(render(tokenizer, messages[:index], add_generation_prompt=True))
            end = render(tokenizer, messages[: index + 1]).rindex(tokenizer.eos_token)
            inside = [at for at, start in enumerate(starts) if begin <= start <= end]
            answers[index] = range(inside[0], inside[-1] + 1)
    return encoding["input_ids"][: max((one.stop for one in answers.values()), default=0)], answers


def align(sampled: Sequence[str], made: Sequence[str]) -> list[Piece]:
    """Aligns two tokenisations of an answer, whose tokens are spelled in the byte-level alphabet: one character per byte.

    The two texts differ if the policy sampled bytes that are no UTF-8, special tokens, or text that the agent or the
    template changed. Parts of them that are equal are then aligned.
    """
    first, second = "".join(sampled), "".join(made)
    if first == second:
        equal = [(0, 0, len(first))]
    else:
        blocks = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
        equal = [(block.a, block.b, block.size) for block in blocks]
    of_sampled, of_made = _boundaries(sampled), _boundaries(made)
    cuts = [(0, 0)]
    for here, there, length in [*equal, (len(first), len(second), 0)]:
        for at in range(length + 1):
            if here + at in of_sampled and there + at in of_made:
                cuts.append((of_sampled[here + at], of_made[there + at]))
    pieces = [Piece(range(a, c), range(b, d)) for (a, b), (c, d) in pairwise(cuts)]
    return [piece for piece in pieces if piece.sampled or piece.made]


def _boundaries(tokens: Sequence[str]) -> dict[int, int]:
    """Returns the number of tokens before each boundary, by its place in the text."""
    return {place: count for count, place in enumerate(accumulate(map(len, tokens), initial=0))}


def _of_row(tokenizer: Any, sample: Sample, row: Row) -> Retokenised | None:
    recorded = [(call, json.loads(call["messages"])) for call in row["calls"] if call["messages"] is not None]
    if not recorded:
        return None
    ids, answers = tokenise(tokenizer, recorded[-1][1])
    mask, versions = [0] * len(ids), [-1] * len(ids)
    pieces = []
    for call, messages in recorded:
        sampled, made = range(call["start"], call["end"]), answers.get(len(messages) - 1)
        # Another branch trains this answer or none does, or the agent has removed it from the conversation.
        if made is None or not any(sample.mask[at] for at in sampled):
            continue
        for piece in align(_spelled(tokenizer, sample.ids, sampled), _spelled(tokenizer, ids, made)):
            there = Piece(_moved(piece.sampled, sampled.start), _moved(piece.made, made.start))
            pieces.append(there)
            for at in there.made:
                mask[at] = 1
                # A token that stands for no sampled one follows the last sampled one.
                versions[at] = sample.versions[there.sampled.start if there.sampled else there.sampled.start - 1]
    again = Sample(sample.trial_id, ids, mask, [0.0] * len(ids), versions, sample.advantage, sample.branch)
    return Retokenised(again, sample, pieces)


def _spelled(tokenizer: Any, ids: Sequence[int], places: range) -> list[str]:
    spelled: list[str] = tokenizer.convert_ids_to_tokens([ids[at] for at in places])
    return spelled


def _moved(places: range, by: int) -> range:
    return range(places.start + by, places.stop + by)
