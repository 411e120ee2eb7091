"""The pauses between attempts at one request."""

from __future__ import annotations

import time

from rolltap.errors import RolltapError, passes

LONGEST_PAUSE = 10.0
"""The longest time between two attempts, in seconds, unless the server names a longer one."""


def backoff(failures: int) -> float:
    """Returns the seconds until the next attempt: 0.5 after the first failure, then doubled each time up to 10."""
    # The exponent is bounded, because `failures` has no limit and a large power overflows.
    return min(LONGEST_PAUSE, 0.25 * 2.0 ** min(failures, 6))


class Patience:
    """The time for which a request is repeated. It begins when this object is made."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._failures = 0

    def pause(self, error: Exception) -> float:
        """Returns the seconds until the next attempt: those of the server's `Retry-After`, or else `backoff`.

        Raises `error` if a retry cannot help, or if the time is over before the next attempt.
        """
        self._failures += 1
        named = error.retry_after if isinstance(error, RolltapError) else None
        # A server may name 0 seconds. The pause is then that of a server that names none.
        pause = named or backoff(self._failures)
        if not passes(error) or time.monotonic() + pause > self._until:
            raise error
        return pause
