"""The transports of the clients. A client is written once, with `async`; its transport decides how it waits.

The coroutines of a client on a BlockingTransport never suspend. `blocking` turns them into plain methods, which need
no event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, Union

import httpx
from httpx import USE_CLIENT_DEFAULT

from rolltap.errors import raise_for

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec

    from typing_extensions import Self

    P = ParamSpec("P")

T = TypeVar("T")


class AsyncioTransport:
    """A transport that waits in the event loop of asyncio."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.sleep = asyncio.sleep
        self.close = http.aclose

    async def request(
        self,
        method: str,
        path: str,
        body: Any,
        timeout: Any = USE_CLIENT_DEFAULT,
        params: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Sends a request with a JSON body and returns the whole answer."""
        return await self._http.request(method, path, json=body, params=params, timeout=timeout)

    async def pieces(self, path: str, params: Mapping[str, str], timeout: Any) -> AsyncGenerator[bytes, None]:
        """Sends a GET request and yields its answer in pieces. Raises RolltapError if the status is an error."""
        async with self._http.stream("GET", path, params=params, timeout=timeout) as response:
            if response.status_code >= 400:
                raise_for(response, await response.aread())
            async for piece in response.aiter_bytes():
                yield piece


class BlockingTransport:
    """A transport that blocks the calling thread. Its coroutines await nothing."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    async def request(
        self,
        method: str,
        path: str,
        body: Any,
        timeout: Any = USE_CLIENT_DEFAULT,
        params: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        return self._http.request(method, path, json=body, params=params, timeout=timeout)

    async def pieces(self, path: str, params: Mapping[str, str], timeout: Any) -> AsyncGenerator[bytes, None]:
        with self._http.stream("GET", path, params=params, timeout=timeout) as response:
            if response.status_code >= 400:
                raise_for(response, response.read())
            for piece in response.iter_bytes():
                yield piece

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def close(self) -> None:
        self._http.close()


Transport = Union[AsyncioTransport, BlockingTransport]


class AsyncClosing:
    """The base of clients that `async with` closes."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        raise NotImplementedError


class Blocking:
    """The base of classes that offer the methods of `_client` as blocking methods. `with` closes the client."""

    _client: Any
    """A client on a BlockingTransport."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        finished(self._client.close())


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that never suspends. Raises RuntimeError if it suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("a client on a blocking transport waited for an event loop")


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Returns a method of a Blocking class that calls `method` and returns its result instead of a coroutine."""

    @wraps(method)
    def call(self: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finished(method(self._client, *args, **kwargs))

    return call


def blocking_iterator(
    method: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Returns a method of a Blocking class that iterates over the asynchronous generator of `method`."""

    @wraps(method)
    def call(self: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self._client, *args, **kwargs)

        # `finished` takes a coroutine, and `__anext__` returns only an awaitable.
        async def following() -> T:
            return await items.__anext__()

        try:
            while True:
                try:
                    item = finished(following())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            # If the caller leaves its loop early, this closes the connection of the answer.
            finished(items.aclose())

    return call
