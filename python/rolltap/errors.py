"""Errors of the proxy and of the environment server."""

from __future__ import annotations

import json

import httpx


class RolltapError(Exception):
    """The proxy or the environment server refused a request. The text is the status and the server's message."""

    def __init__(
        self, status: int, message: str, code: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        """The HTTP status."""
        self.message = message
        """The server's message."""
        self.code = code
        """The server's name of the cause. None if it gave none."""
        self.retry_after = retry_after
        """Seconds after which to retry, from the header `Retry-After`. None if the server sent no number."""


def passes(error: Exception) -> bool:
    """Returns whether a retry may help: no answer came, or the server is busy, starting or stopping."""
    if isinstance(error, RolltapError):
        return error.status in (429, 502, 503, 504)
    return isinstance(error, httpx.TransportError)


def raise_for(response: httpx.Response, body: bytes) -> None:
    """Raises RolltapError with the server's message if the status is an error. `body` is the whole answer."""
    if response.status_code < 400:
        return
    try:
        error = json.loads(body)["error"]
        message, code = str(error["message"]), error.get("code")
    except (ValueError, KeyError, TypeError, AttributeError):
        # The error does not have rolltap's form: an intermediary or another server sent it.
        message, code = body.decode(errors="replace").strip() or response.reason_phrase, None
    retry_after = response.headers.get("retry-after", "")
    raise RolltapError(
        response.status_code,
        message,
        None if code is None else str(code),
        float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None,
    )
