"""What the proxy says when it refuses."""

from __future__ import annotations

import json

import httpx


class RolltapError(Exception):
    """The proxy refused a request; the text is the proxy's own."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        """The HTTP status."""
        self.message = message
        """The proxy's words."""
        self.code = code
        """The proxy's name of the cause, where it gave one."""


def raise_for(response: httpx.Response, body: bytes) -> None:
    """Raises what the proxy said, where the status is an error. `body` is the whole answer."""
    if response.status_code < 400:
        return
    try:
        error = json.loads(body)["error"]
        message, code = str(error["message"]), error.get("code")
    except (ValueError, KeyError, TypeError, AttributeError):
        # Not the proxy's own: something between, or no proxy at all.
        message, code = body.decode(errors="replace").strip() or response.reason_phrase, None
    raise RolltapError(response.status_code, message, None if code is None else str(code))
