"""What the proxy hands out: `rollout/1` rows, and complete trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import NamedTuple, TypedDict


class CallSpan(TypedDict):
    """Where one call's sampled tokens stand in its branch."""

    call_id: str
    choice_index: int
    parent_call_id: str | None
    role: str
    """`main`, `sub_agent`, `compaction`, `title` or `probe`."""
    model: str | None
    """The model or adapter that sampled, as the answer named it."""
    prompt_len: int
    start: int
    """First sampled token."""
    end: int
    """One past the last sampled token."""
    finish_reason: str | None
    version: int
    sampled_at: str
    temperature: float | None
    top_p: float | None
    top_k: int | None
    constrained: bool
    """The recorded logprob is not that of the distribution sampled from."""
    sampling: str
    """Every sampling key of the request, a JSON object as text."""
    messages: str | None
    """The request's messages, JSON as text."""


class Row(TypedDict):
    """One branch of a sealed trial. All per-token lists have the length of `token_ids`."""

    schema_version: str
    trial_id: str
    group_id: str | None
    group_size: int | None
    sample_index: int
    attempt: int
    superseded: bool
    task_id: str
    environment: str | None
    branch_index: int
    num_branches: int
    is_last_branch: bool
    branch_cause: str
    branch_reprefilled: int | None
    token_ids: list[int]
    sampled_mask: list[int]
    trainable_mask: list[int]
    loss_mask: list[int]
    """What this branch trains; a token that several branches share is in one of their masks."""
    logprobs: list[float]
    """Nats; 0.0 where not sampled."""
    token_version: list[int]
    """-1 where not sampled."""
    version_labels: dict[str, str]
    prompt_len: int
    """Index of the first sampled token."""
    reward: float | None
    rewards: dict[str, float]
    reward_valid: bool
    failure_cause: str | None
    advantage: float | None
    """The trial's within its group, where an export was asked to weigh trials; None from the proxy."""
    origin: str | None
    """Whose record the tokens are: "captured", or "agent" where the agent handed them back."""
    is_truncated: bool
    stop_reason: str | None
    status: str
    """`completed`, `truncated`, `aborted` or `failed`."""
    model: str
    tokenizer_hash: str | None
    vocab_size: int | None
    logprobs_mode: str
    has_media: bool
    calls: list[CallSpan]


class TrialFacts(TypedDict):
    """What every trial that is handed out says."""

    trial_id: str
    task_id: str
    group_id: str | None
    sample_index: int
    reward: float | None
    rewards: dict[str, float]
    reward_valid: bool
    failure_cause: str | None
    rows: list[Row]
    """None where the trial has not a single sampled token."""


class Trial(TrialFacts, total=False):
    """A complete trial. The feed's lines have these too."""

    cursor: str
    attempt: int
    superseded: bool
    completed_at: str
    group_remaining: int | None
    """Of a closed group: how many of its trials follow."""
    late: bool
    """It was complete only after its group had closed."""


def loss_mask(row: Row, *, constrained: bool = False) -> list[int]:
    """What to train of a row that no export has masked: all of it 0 where the reward does not measure the agent.

    Answers that were constrained (structured output, a forced tool choice) are 0 too unless `constrained`: their
    logprobs are not those of the distribution that they were sampled from.

    Raises ValueError where tokens would be trained and the row held images, audio or video.
    """
    if not row["reward_valid"] or row["reward"] is None:
        return [0] * len(row["loss_mask"])
    return checked(row, row["loss_mask"], constrained=constrained)


def checked(row: Row, mask: Sequence[int], *, constrained: bool = False) -> list[int]:
    """What of this mask can be trained, whatever the reward; see `loss_mask`."""
    made = list(mask)
    for call in row["calls"]:
        if call["constrained"] and not constrained:
            made[call["start"] : call["end"]] = [0] * (call["end"] - call["start"])
    if row["has_media"] and any(made):
        # They stand in the ids as placeholders; a trainer without them would compute other logprobs than were sampled.
        raise ValueError(
            f"trial {row['trial_id']}, branch {row['branch_index']}: it held images, audio or video, which a rollout "
            "does not carry; leave the trial out"
        )
    return made


class PolicyNumbers:
    """The numbers by which a trainer knows the weights that sampled a trial's tokens.

    A trainer that names its own step at each update finds that step in the label of a version, and measures staleness by
    it. Where not every version of the trial bears a whole number as its label (an upstream's own is a word), rolltap's
    count of the versions is all there is. The same rule as that of an export.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        labels = {
            version: _number(row["version_labels"].get(str(version)))
            for row in rows
            for version in set(compress(row["token_version"], row["sampled_mask"]))
        }
        numbers = {version: label for version, label in labels.items() if label is not None}
        self._labels = numbers if len(numbers) == len(labels) else {}

    def number(self, version: int) -> int:
        """Of a token's version; -1 where nothing was sampled."""
        return self._labels.get(version, version)

    def trained(self, row: Row) -> set[int]:
        """Of those that sampled what is trained of the row."""
        return {self.number(version) for version in set(compress(row["token_version"], row["loss_mask"]))}


def _number(label: str | None) -> int | None:
    # Trainers hold it in 64 bits.
    return int(label) if label and label.isascii() and label.isdigit() and len(label) < 19 else None


def ready(row: Row, *, constrained: bool = False) -> Row:
    """The row as an export gives it: masked (see `loss_mask`), and without what follows the last token that is trained.

    That would cost a forward pass for nothing, and trainers that put the reward on the last token would lose it there.
    Where nothing is trained the row stays whole. `calls` stay as they are.
    """
    mask = loss_mask(row, constrained=constrained)
    end = next((at + 1 for at in reversed(range(len(mask))) if mask[at]), len(mask))
    return {
        **row,
        "token_ids": row["token_ids"][:end],
        "sampled_mask": row["sampled_mask"][:end],
        "trainable_mask": row["trainable_mask"][:end],
        "loss_mask": mask[:end],
        "logprobs": row["logprobs"][:end],
        "token_version": row["token_version"][:end],
    }


class Response(NamedTuple):
    """A row as trainers take it that keep the prompt apart. The last three are of one length."""

    prompt_ids: list[int]
    ids: list[int]
    mask: list[int]
    logprobs: list[float]


def response(row: Row) -> Response:
    """The row from its first sampled token on."""
    start = row["prompt_len"]
    return Response(
        row["token_ids"][:start], row["token_ids"][start:], row["loss_mask"][start:], row["logprobs"][start:]
    )


def stand_in() -> Response:
    """In the place of a trial that sampled nothing, where a trainer wants a sequence of each: two tokens, not trained.

    They are the model's first, whatever that is. A prompt or an answer without any token would end the trainer's step.
    """
    return Response([0], [0], [0], [0.0])


def alone(trial: Trial) -> Row:
    """The branch that trains the most, for a trainer that takes one sequence per trial.

    It trains what it shares with the branches that are left out, too.
    """
    if not trial["rows"]:
        raise ValueError(f"trial {trial['trial_id']} sampled no token, so that there is nothing to hand over")
    row = max(trial["rows"], key=lambda row: sum(row["trainable_mask"]))
    return {**row, "loss_mask": row["trainable_mask"]}


def earned(trial: Trial) -> float | None:
    """What the trial is trained on; None where its reward does not measure the agent, or nothing was sampled."""
    return trial["reward"] if trial["reward_valid"] and trial["rows"] else None
