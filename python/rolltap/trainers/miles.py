"""Samples for miles (commit 31f1ca9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from miles.utils.types import Sample


def sample(line: Mapping[str, Any]) -> Sample:
    """Returns the sample of a line of `rolltap export --format miles`."""
    return Sample.from_dict(dict(line))
