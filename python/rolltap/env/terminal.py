"""A terminal at a task as an environment with `reset` and `step`, blocking and for asyncio."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import httpx

from rolltap.env.wire import (
    DEFAULT_SERVER,
    FINISH,
    Action,
    EnvOptions,
    ResetInfo,
    Step,
    Task,
    answer,
    begun,
    creation,
    headers,
    httpx_timeout,
    is_gone,
    pause,
    place,
    reset_first,
    step_of,
    unreachable,
)
from rolltap.errors import RolltapError
from rolltap.transport import AsyncClosing, AsyncioTransport, Blocking, BlockingTransport, Transport, blocking

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _Terminal(AsyncClosing):
    """A terminal at an environment server, on any transport."""

    def __init__(
        self, task_dir: Task, options: EnvOptions, server: str, patience: float, transport: Transport
    ) -> None:
        self.env_id: str | None = None
        """The server's id of the environment. None before the first `reset` and after `close`."""
        self._creation = creation(task_dir, options)
        self._server = server
        self._patience = patience
        self._transport = transport

    async def reset(self) -> tuple[str, ResetInfo]:
        """Starts a fresh container and terminal, and returns the observation and the info with the task.

        Ends a step in flight. If all places of the server are taken, retries for `patience` seconds.
        """
        if self.env_id is not None:
            try:
                return begun(await self._ask("POST", place(self.env_id, "/reset"), {}))
            except RolltapError as error:
                # An environment that no longer exists is replaced by a new one.
                if not is_gone(error):
                    raise
        self.env_id = await self._create()
        return begun(await self._ask("POST", place(self.env_id, "/reset"), {}))

    async def step(self, action: Action) -> Step:
        """Performs the action and returns `(observation, reward, done, info)`.

        Raises RuntimeError before the first `reset` and after `close`.
        """
        return step_of(await self._ask("POST", place(reset_first(self.env_id), "/step"), {"action": action}))

    async def finish(self) -> Step:
        """Ends the episode, so that the verifier judges the work as for a model that ran out of turns."""
        step = await self.step(FINISH)
        # With `confirm_completion`, the episode ends only after two consecutive requests.
        return step if step.done else await self.step(FINISH)

    async def renew(self) -> None:
        """Renews the lease of the environment, for a model that takes longer than the lease."""
        await self._ask("POST", place(reset_first(self.env_id), "/lease"), {})

    async def close(self) -> None:
        """Removes the environment in any state. Idempotent."""
        env_id, self.env_id = self.env_id, None
        try:
            if env_id is not None:
                await self._ask("DELETE", place(env_id))
        except RolltapError as error:
            if not is_gone(error):
                raise
        except ConnectionError:
            # A stopped server has removed its environments. An unreachable one removes them when their leases end.
            pass
        finally:
            await self._transport.close()

    async def _create(self) -> str:
        until = time.monotonic() + self._patience
        while True:
            try:
                return str((await self._ask("POST", "/v1/envs", self._creation))["env_id"])
            except RolltapError as error:
                wait = pause(error, until - time.monotonic())
                if wait is None:
                    raise
            await self._transport.sleep(wait)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            return answer(await self._transport.request(method, path, body))
        except httpx.ConnectError as error:
            raise unreachable(self._server) from error


class AsyncTerminalGymEnv(_Terminal):
    """A terminal in a Harbor task's container, at a server (`rolltap env`).

    The reward is 0.0 until the episode is over, and is then the number of the task's verifier. The first `reset`
    creates the environment at the server, and no request is sent before. `close` removes the environment. The server
    also removes it after `lease_seconds` without a call.

    An action is a model's unchanged answer, or keys: see `rolltap.env.Action`. An error of the server raises
    RolltapError with the server's message and code, such as `done` for a step after the end and `vanished` for a
    container that no longer exists. In both cases a `reset` starts a new episode.
    """

    def __init__(
        self,
        task_dir: Task,
        *,
        server: str = DEFAULT_SERVER,
        token: str | None = None,
        patience: float = 600.0,
        timeout: float | None = 3600.0,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Takes the `options` of `rolltap.env.EnvOptions`. Sends no request.

        `token` is the token of the server; the default is the variable ROLLTAP_ENV_TOKEN. `patience` is the time in
        seconds for which `reset` retries if all places of the server are taken. `timeout` is the longest silence of
        the server in seconds, or None for no limit.
        """
        http = httpx.AsyncClient(base_url=server, headers=headers(token), timeout=httpx_timeout(timeout))
        super().__init__(task_dir, options, server, patience, AsyncioTransport(http))


class TerminalGymEnv(Blocking):
    """The blocking form of AsyncTerminalGymEnv, with the same methods."""

    def __init__(
        self,
        task_dir: Task,
        *,
        server: str = DEFAULT_SERVER,
        token: str | None = None,
        patience: float = 600.0,
        timeout: float | None = 3600.0,
        **options: Unpack[EnvOptions],
    ) -> None:
        """See `AsyncTerminalGymEnv`."""
        http = httpx.Client(base_url=server, headers=headers(token), timeout=httpx_timeout(timeout))
        self._client: _Terminal = _Terminal(task_dir, options, server, patience, BlockingTransport(http))

    @property
    def env_id(self) -> str | None:
        """The server's id of the environment. None before the first `reset` and after `close`."""
        return self._client.env_id

    @env_id.setter
    def env_id(self, name: str | None) -> None:
        self._client.env_id = name

    reset = blocking(_Terminal.reset)
    step = blocking(_Terminal.step)
    finish = blocking(_Terminal.finish)
    renew = blocking(_Terminal.renew)
    close = blocking(_Terminal.close)
