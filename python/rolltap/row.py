"""The shapes of what the proxy returns: `rollout/1` rows, prepared rows, and complete trials."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from rolltap._rollout_types import CallSpan, Prepared, PreparedRow, Row

__all__ = ["CallSpan", "Prepared", "PreparedRow", "Response", "Row", "Trial", "TrialFacts", "response", "stand_in"]


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
    prepared: Prepared
    """If it was asked for. `rows` are those of `prepared` then."""


class Response(NamedTuple):
    """A row as trainers take it that keep the prompt apart. The last three are of one length."""

    prompt_ids: list[int]
    ids: list[int]
    mask: list[int]
    logprobs: list[float]


def response(row: PreparedRow) -> Response:
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
