"""The types of the proxy's answers: `rollout/1` rows, prepared rows, and complete trials."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from rolltap._rollout_types import CallSpan, Prepared, PreparedRow, Row

__all__ = ["CallSpan", "Prepared", "PreparedRow", "Response", "Row", "Trial", "TrialFacts", "response", "stand_in"]


class TrialFacts(TypedDict):
    """The members of every trial, from the feed or from `run_trial`."""

    trial_id: str
    task_id: str
    group_id: str | None
    sample_index: int
    reward: float | None
    rewards: dict[str, float]
    reward_valid: bool
    failure_cause: str | None
    suspicious: list[str] | None
    """The reasons for which the trial is suspected of cheating. None if it was not examined."""
    rows: list[Row]
    """The rows of the branches. Empty if the trial sampled no token."""


class Trial(TrialFacts, total=False):
    """A complete trial. The feed adds the members below. `run_trial` adds only `prepared`, if requested."""

    cursor: str
    attempt: int
    superseded: bool
    completed_at: str
    group_remaining: int | None
    """With `closed_groups`: how many trials of the group follow; 0 on the last. None without a group."""
    late: bool
    """With `closed_groups`: whether the trial became complete after its group had closed."""
    prepared: Prepared
    """The prepared trial, if requested. `rows` are then the rows of `prepared`."""


class Response(NamedTuple):
    """A row for trainers that separate the prompt. `ids`, `mask` and `logprobs` have one length."""

    prompt_ids: list[int]
    ids: list[int]
    mask: list[int]
    logprobs: list[float]


def response(row: PreparedRow) -> Response:
    """Splits the row at its first sampled token into prompt and response."""
    start = row["prompt_len"]
    return Response(
        row["token_ids"][:start], row["token_ids"][start:], row["loss_mask"][start:], row["logprobs"][start:]
    )


def stand_in() -> Response:
    """Returns two untrained tokens for a trial that sampled nothing, if a trainer requires a sequence per trial.

    Both tokens have id 0, the first of the vocabulary. An empty prompt or answer would end the trainer's step.
    """
    return Response([0], [0], [0], [0.0])
