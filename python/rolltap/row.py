"""The shapes of what the proxy returns: `rollout/1` rows, prepared rows, and complete trials."""

from __future__ import annotations

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


class PreparedRow(Row):
    """A row after the rules of an export. `calls` are those of the whole branch, without texts."""

    policy_numbers: list[int]
    """Per token, the trainer's number of the weights that sampled it; -1 if it was not sampled."""
    oldest_policy: int
    """The lowest number of what is trained, or of what was sampled if nothing is trained."""
    newest_policy: int
    policy_names: list[str]
    """The names of those weights, oldest first."""


class Prepared(TypedDict):
    """A trial as a trainer takes it."""

    reward: float | None
    """The number to train on. None if the reward does not measure the agent, or nothing was sampled."""
    rows: list[PreparedRow]
    left_out: int
    """Branches of the trial that are not in `rows`."""
    refused: str | None
    """Why the trial cannot be trained."""


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
