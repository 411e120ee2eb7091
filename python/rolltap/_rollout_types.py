"""The shapes of rows, generated from the Rust types by `just docs`. Do not edit."""

from __future__ import annotations

from typing import TypedDict


class CallSpan(TypedDict):
    """The position of one call's sampled tokens in its branch."""

    call_id: str
    """The call."""

    choice_index: int
    """The index of the call's choice."""

    parent_call_id: str | None
    """The call whose prompt and answer this call's prompt begins with."""

    role: str
    """The purpose of the call."""

    model: str | None
    """The model or adapter that sampled the tokens: the name in the answer, or else the name in the
    request. `None` if neither named a model, and in files of rolltap versions before this field.
    """

    prompt_len: int
    """The number of tokens of the call's prompt. The branch up to here equals the prompt that vLLM
    reported.
    """

    start: int
    """The index of the first sampled token."""

    end: int
    """One past the index of the last sampled token."""

    finish_reason: str | None
    """vLLM's finish reason."""

    version: int
    """The policy version that sampled the first token. `token_version` has the version of each token."""

    sampled_at: str
    """When the answer was complete."""

    temperature: float | None
    """The divisor of the logits. `None` if unknown."""

    top_p: float | None
    """The nucleus size. `None` if unknown."""

    top_k: int | None
    """The number of candidates. `None` if unknown."""

    constrained: bool
    """Whether the recorded logprob differs from that of the distribution that was sampled from."""

    sampling: str
    """Every sampling key of the request: a JSON object as text."""

    messages: str | None
    """The messages of the request and, last, the answer of this choice: a JSON array as text, in the
    form of chat completions for every dialect. `None` if the row was made without messages, or if
    they were not recorded.
    """

    tools: str | None
    """The tools that the request offers: a JSON array as text, in the same form. `None` if the request
    offers none, if `messages` is `None`, and in files of rolltap versions before this field.
    """


class Row(TypedDict):
    """One branch of a sealed trial with the trial's reward.

    All per-token lists have the length of `token_ids`.
    """

    schema_version: str
    """`SCHEMA_VERSION`."""

    trial_id: str
    """The trial of this branch."""

    group_id: str | None
    """The group of samples that a trainer compares."""

    group_size: int | None
    """The number of samples in the complete group."""

    sample_index: int
    """The index of the sample in its group, from 0."""

    attempt: int
    """The number of the attempt at this sample, from 0. A retry is a separate trial."""

    superseded: bool
    """Whether a later attempt at the same sample counts instead."""

    task_id: str
    """Harbor's task name."""

    environment: str | None
    """The environment in which the agent worked: `docker`, `local`, …. `None` if the opener did not
    name it.
    """

    branch_index: int
    """The index of the branch within the trial, from 0, in order of the branches' first calls."""

    num_branches: int
    """The number of branches of the trial."""

    is_last_branch: bool
    """Whether this is the last branch of the trial."""

    branch_cause: str
    """Why the branch started: see `BranchCause`."""

    branch_reprefilled: int | None
    """The cost of the branch: the tokens of its first call's prompt that no earlier sequence of the
    trial begins with. `None` in files of rolltap versions without this count.
    """

    token_ids: list[int]
    """The prompt and sampled tokens of the branch, from first to last."""

    sampled_mask: list[int]
    """1 if the policy sampled this token in this trial."""

    trainable_mask: list[int]
    """1 if the token was sampled with a finite logprob, in a complete call with a trained role and an
    unambiguous parent.
    """

    loss_mask: list[int]
    """1 if the token is trainable and this branch owns it. Among branches that share a token, the
    lowest index owns it.
    """

    logprobs: list[float]
    """The captured logprobs in nats. 0.0 for tokens that were not sampled or have no captured logprob."""

    token_version: list[int]
    """The policy version that sampled the token, or −1 if it was not sampled."""

    version_labels: dict[str, str]
    """The names that the trainer or the upstream gives to the versions in `token_version`, by version."""

    prompt_len: int
    """The index of the first sampled token."""

    reward: float | None
    """The verifier's reward. `None` (never 0) if there is no reward."""

    advantage: float | None
    """The trial's advantage within its group, the same for each of its branches. `None` unless an
    export with advantages wrote the row.
    """

    rewards: dict[str, float]
    """Every number that the verifier gave, by name."""

    reward_valid: bool
    """Whether the reward measures the agent: false if something else failed."""

    failure_cause: str | None
    """Why the trial failed, in Harbor's terms."""

    reward_version: str | None
    """The version of the reward, if a later verification gave it. `None` for the reward of the trial
    itself.
    """

    suspicious: list[str] | None
    """The reasons for which the trial is suspected of cheating, each once, in alphabetical order.
    Empty if nothing was found. `None` if the trial was not examined, and in files of rolltap
    versions before this field.
    """

    is_truncated: bool
    """Whether the last answer of the branch was cut off, by the length limit or otherwise."""

    stop_reason: str | None
    """The finish reason of the branch's last call."""

    status: str
    """`completed`, `truncated`, `aborted` or `failed`: see `rollout`."""

    model: str
    """The model as the agent named it."""

    tokenizer_hash: str | None
    """The hash of the tokenizer, if known."""

    vocab_size: int | None
    """The exclusive upper bound of the ids of the model's vocabulary, if known."""

    logprobs_mode: str
    """vLLM's `--logprobs-mode`: `raw_logprobs` (before temperature and penalties) or
    `processed_logprobs`.
    """

    has_media: bool
    """Whether a call of the branch contained images, audio or video."""

    origin: str | None
    """Which side recorded the tokens: see `Origin`. `None` in files of rolltap versions before
    agent-reported tokens, and then it means `captured`.
    """

    calls: list[CallSpan]
    """The calls along the branch, in order. Their spans cover the sampled tokens exactly."""


class PreparedRow(Row):
    """A `RolloutRow` after all rules. Its lists per token have one length, and its first `prompt_len`
    tokens are the prompt. `calls` are those of the whole branch, without `sampling`, `messages` and
    `tools`.
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
    """The number to train on. A trial that sampled nothing has one too, and counts in the baseline of
    its group. `None` if the reward does not measure the agent, or if the trial is refused.
    """

    rows: list[PreparedRow]
    """The branches to train, in order of their index. Empty if nothing was sampled or the trial is
    refused.
    """

    left_out: int
    """Branches of the trial that are not in `rows`."""

    refused: str | None
    """Why the trial cannot be trained: the problem, its place and the remedy."""
