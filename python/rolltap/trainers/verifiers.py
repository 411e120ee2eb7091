"""verifiers' v1 interface (package `verifiers` 0.4.0).

A line of `rolltap export --format verifiers` is a trace; what reads traces needs no taskset of ours to load it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from verifiers.v1.trace import WireTrace


def trace(line: Mapping[str, Any]) -> WireTrace:
    """The trace of an exported line, logprobs to the last bit."""
    return WireTrace.model_validate_json(json.dumps(line))
