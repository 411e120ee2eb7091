"""Trainers' own sampling parameters, as the `sampling` of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NOT_OF_A_TRIAL = {"logprobs", "prompt_logprobs"}
"""What trainers ask an engine for beside sampling: that logprobs come is rolltap's to see to."""

_LIMITS = {"max_tokens", "min_tokens", "max_new_tokens", "max_generate_length"}
"""How long one answer is, an agent knows better than a trainer that counts a whole response."""


def of_a_trial(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What of these parameters is laid over every call of a trial; None where nothing is."""
    unfit = _NOT_OF_A_TRIAL | _LIMITS
    kept = {key: value for key, value in (params or {}).items() if key not in unfit and value is not None}
    return kept or None
