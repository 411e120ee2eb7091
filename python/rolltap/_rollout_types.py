"""The shapes of rows, generated from the Rust types by `just docs`. Do not edit."""

from __future__ import annotations

from typing import TypedDict


class CallSpan(TypedDict):
    """Where one call's sampled tokens stand in its branch."""

    call_id: str
    """The call."""

    choice_index: int
    """Which of the call's choices, where it was asked for several."""

    parent_call_id: str | None
    """The call whose prompt and answer this one's prompt begins with."""

    role: str
    """What the call was for."""

    model: str | None
    """The model or adapter that sampled, as the answer named it; where the answer named none, as the
    agent did. None where neither did, and in files of rolltap before calls named it.
    """

    prompt_len: int
    """Tokens of the call's prompt; the branch up to here equals the prompt that vLLM reported."""

    start: int
    """First sampled token."""

    end: int
    """One past the last sampled token."""

    finish_reason: str | None
    """vLLM's finish reason."""

    version: int
    """The policy version that sampled its first token; `token_version` has that of each."""

    sampled_at: str
    """When the answer was whole."""

    temperature: float | None
    """Divisor of the logits; none if unknown."""

    top_p: float | None
    """Nucleus size; none if unknown."""

    top_k: int | None
    """Number of candidates; none if unknown."""

    constrained: bool
    """The recorded logprob is not that of the distribution sampled from."""

    sampling: str
    """Every sampling key of the request, a JSON object as text."""

    messages: str | None
    """The request's messages, JSON as text; none where they were not kept."""


class Row(TypedDict):
    """One branch of a sealed trial with the trial's reward.

    All per-token lists have the length of `token_ids`.
    """

    schema_version: str
    """`SCHEMA_VERSION`."""

    trial_id: str
    """The trial that this branch is of."""

    group_id: str | None
    """The samples that a trainer compares with this one."""

    group_size: int | None
    """How many samples the group has when whole."""

    sample_index: int
    """Which sample of its group, from 0."""

    attempt: int
    """Which try at this sample, from 0; a retry is a trial of its own."""

    superseded: bool
    """A later attempt at the same sample counts instead."""

    task_id: str
    """Harbor's task name."""

    environment: str | None
    """Where the agent worked: `docker`, `local`, …; none if the opener did not say."""

    branch_index: int
    """This branch among the trial's, from 0, in order of their first calls."""

    num_branches: int
    """How many branches the trial has."""

    is_last_branch: bool
    """Whether no branch of the trial comes after this one."""

    branch_cause: str
    """Why the branch started: see `BranchCause`."""

    branch_reprefilled: int | None
    """What starting it cost: tokens of its first call's prompt that no earlier sequence of the trial
    began with. None in files of rolltap before it was counted.
    """

    token_ids: list[int]
    """Prompt and sampled tokens from the first to the last of the branch."""

    sampled_mask: list[int]
    """1 where the policy sampled this token in this trial."""

    trainable_mask: list[int]
    """1 where sampled, with a finite logprob, in a complete call, of a role that is trained, of
    unambiguous parentage.
    """

    loss_mask: list[int]
    """1 where trainable and owned by this branch: of branches that share a token the lowest index owns
    it.
    """

    logprobs: list[float]
    """Nats, as captured where sampled; 0.0 elsewhere and where none was captured."""

    token_version: list[int]
    """The policy version that sampled the token; −1 where it was not sampled."""

    version_labels: dict[str, str]
    """The trainer's or upstream's own names of the versions in `token_version`, by version."""

    prompt_len: int
    """Index of the first sampled token."""

    reward: float | None
    """The verifier's reward; none (never 0) where there is none."""

    advantage: float | None
    """The trial's advantage within its group, the same for each of its branches; none where nobody
    weighed trials against each other, as in all rows but those of an export that was asked to.
    """

    rewards: dict[str, float]
    """Every number that the verifier gave, by name."""

    reward_valid: bool
    """Whether the reward measures the agent: false where something else failed."""

    failure_cause: str | None
    """Why the trial failed, in Harbor's words."""

    is_truncated: bool
    """The branch's last answer was cut off, by length or otherwise."""

    stop_reason: str | None
    """The finish reason of the branch's last call."""

    status: str
    """`completed`, `truncated`, `aborted` or `failed`: see `rollout`."""

    model: str
    """The model as the agent named it."""

    tokenizer_hash: str | None
    """Hash of the tokenizer, where it is known."""

    vocab_size: int | None
    """Ids of the model's vocabulary lie below this, where it is known."""

    logprobs_mode: str
    """vLLM's `--logprobs-mode`: `raw_logprobs` (before temperature and penalties) or
    `processed_logprobs`.
    """

    has_media: bool
    """Some call of the branch held images, audio or video."""

    origin: str | None
    """Who kept the tokens: see `Origin`. None in files of rolltap before agents could hand tokens
    back, which means `captured`.
    """

    calls: list[CallSpan]
    """The calls along the branch, in order; their spans cover the sampled tokens exactly."""


class PreparedRow(Row):
    """A `RolloutRow` after all rules. Its lists per token have one length, and its first `prompt_len`
    tokens are the prompt. `calls` are those of the whole branch, without `sampling` and `messages`.
    """

    policy_numbers: list[int]
    """Per token, the number by which the trainer knows the weights that sampled the token: the label
    of the version if all labels of the trial are whole numbers, else rolltap's count. −1 if the
    token was not sampled.
    """

    oldest_policy: int
    """The lowest policy number of the trained tokens, or of the sampled tokens if none is trained."""

    newest_policy: int
    """The highest policy number of the same tokens."""

    policy_names: list[str]
    """The names of those policy versions, oldest first: the label, or rolltap's count."""


class Prepared(TypedDict):
    """A trial as a trainer takes it. Nothing in it is left to decide."""

    reward: float | None
    """The number to train on. `None` if the reward does not measure the agent, if nothing was sampled,
    or if the trial is refused.
    """

    rows: list[PreparedRow]
    """The branches to train, in order of their index. Empty if nothing was sampled or the trial is
    refused.
    """

    left_out: int
    """Branches of the trial that are not in `rows`."""

    refused: str | None
    """Why the trial cannot be trained: the problem, its place and the remedy."""
