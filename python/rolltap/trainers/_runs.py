"""The stretches of a prepared branch that a trainer without a mask per token can train: trained tokens of one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rolltap.row import PreparedRow


class Run(NamedTuple):
    """Consecutive trained tokens of one call. `ids` and `logprobs` have one length."""

    prompt_ids: list[int]
    """All tokens of the branch before the run."""
    ids: list[int]
    logprobs: list[float]
    finish_reason: str | None
    """vLLM's finish reason of the call. None if it is unknown, or if the run ends before the call."""
    policy: int
    """The lowest policy number of the run."""
    model: str


def call_runs(rows: Iterable[PreparedRow]) -> Iterator[Run]:
    """Yields the runs of each row in order, by the rule of `rolltap export`. They cover each trained token once."""
    for row in rows:
        mask = row["loss_mask"]
        starts = {call["start"] for call in row["calls"]}
        start = None
        for place in range(len(mask) + 1):
            trained = place < len(mask) and mask[place] == 1
            if start is not None and (not trained or place in starts):
                yield _run(row, start, place)
                start = None
            if trained and start is None:
                start = place


def _run(row: PreparedRow, start: int, end: int) -> Run:
    finish_reason = next((call["finish_reason"] for call in row["calls"] if call["end"] == end), None)
    ids = row["token_ids"]
    numbers = row["policy_numbers"]
    return Run(
        prompt_ids=ids[:start],
        ids=ids[start:end],
        logprobs=row["logprobs"][start:end],
        finish_reason=finish_reason,
        policy=min(numbers[start:end]),
        model=row["model"],
    )
