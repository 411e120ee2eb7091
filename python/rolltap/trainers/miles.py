"""miles (commit 31f1ca9): samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from miles.utils.types import Sample


def sample(line: Mapping[str, Any]) -> Sample:
    """The sample of a line of `rolltap export --format miles`."""
    return Sample.from_dict(dict(line))
