"""What rolltap's servers say when they refuse."""

from __future__ import annotations

import json

import httpx


class RolltapError(Exception):
    """The proxy or the environment server refused a request; the text is its own."""

    def __init__(
        self, status: int, message: str, code: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        """The HTTP status."""
        self.message = message
        """The server's words."""
        self.code = code
        """The server's name of the cause, where it gave one."""
        self.retry_after = retry_after
        """Seconds after which the server wants to be asked again, where it said so."""


def passes(error: Exception) -> bool:
    """Whether asking again may help: nobody answered, or the server is busy, begins or ends."""
    if isinstance(error, RolltapError):
        return error.status in (429, 502, 503, 504)
    return isinstance(error, httpx.TransportError)


def raise_for(response: httpx.Response, body: bytes) -> None:
    """Raises what the server said, where the status is an error. `body` is the whole answer."""
    if response.status_code < 400:
        return
    try:
        error = json.loads(body)["error"]
        message, code = str(error["message"]), error.get("code")
    except (ValueError, KeyError, TypeError, AttributeError):
        # Not rolltap's own: something between, or another server.
        message, code = body.decode(errors="replace").strip() or response.reason_phrase, None
    retry_after = response.headers.get("retry-after", "")
    raise RolltapError(
        response.status_code,
        message,
        None if code is None else str(code),
        float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None,
    )
