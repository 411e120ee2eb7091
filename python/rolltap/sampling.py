"""Converts a trainer's sampling parameters to the `sampling` of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NOT_OF_A_TRIAL = {"logprobs", "prompt_logprobs"}
"""Parameters of an engine that do not affect sampling. The proxy itself requests logprobs for each call."""

_LIMITS = {"max_tokens", "min_tokens", "max_new_tokens", "max_generate_length"}
"""Limits on the length of one answer. The agent sets them: a trainer's limit holds for a whole response."""


def of_a_trial(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns the parameters that override those of every call of a trial, or None if there are none."""
    unfit = _NOT_OF_A_TRIAL | _LIMITS
    kept = {key: value for key, value in (params or {}).items() if key not in unfit and value is not None}
    return kept or None
