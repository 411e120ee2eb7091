"""A terminal at a task, as an environment with `reset` and `step`: for asyncio, and for programs that wait."""

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
    """A terminal at a server, on any transport."""

    def __init__(
        self, task_dir: Task, options: EnvOptions, server: str, patience: float, transport: Transport
    ) -> None:
        self.env_id: str | None = None
        """The server's name of the environment, once it is there."""
        self._creation = creation(task_dir, options)
        self._server = server
        self._patience = patience
        self._transport = transport

    async def reset(self) -> tuple[str, ResetInfo]:
        """A fresh container and terminal: what it shows, and the task. A step under way is cancelled."""
        if self.env_id is not None:
            try:
                return begun(await self._ask("POST", place(self.env_id, "/reset"), {}))
            except RolltapError as error:
                if not is_gone(error):
                    raise
        self.env_id = await self._create()
        return begun(await self._ask("POST", place(self.env_id, "/reset"), {}))

    async def step(self, action: Action) -> Step:
        """Does it, and gives what the terminal shows then: `(observation, reward, done, info)`."""
        return step_of(await self._ask("POST", place(reset_first(self.env_id), "/step"), {"action": action}))

    async def finish(self) -> Step:
        """Ends the episode where it stands and has the work judged, as that of a model that ran out of turns."""
        step = await self.step(FINISH)
        # Where the environment wants completion confirmed, the first only asks for it.
        return step if step.done else await self.step(FINISH)

    async def renew(self) -> None:
        """Says that the environment is still wanted, where a model thinks for longer than the lease."""
        await self._ask("POST", place(reset_first(self.env_id), "/lease"), {})

    async def close(self) -> None:
        """Removes the environment, in whatever state it is; idempotent."""
        env_id, self.env_id = self.env_id, None
        try:
            if env_id is not None:
                await self._ask("DELETE", place(env_id))
        except RolltapError as error:
            if not is_gone(error):
                raise
        except ConnectionError:
            # A server that ended has removed all of its environments; one that is cut off does once the lease is over.
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

    The reward is 0.0 until the episode is over, and then what the task's verifier gives. Nothing is asked of the server
    before the first `reset`, which makes the environment there; `close` removes it. So does the server, where nobody
    has called for `lease_seconds`.

    An action is a model's answer as it came, or keys: see `rolltap.env.Action`. What the server refuses is raised as
    RolltapError with its words and code, such as `done` for a step after the end and `vanished` for a container that
    somebody removed; a `reset` begins anew in both cases.
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
        """`options` are those of `rolltap.env.EnvOptions`.

        `token` is what the server wants of its callers, the variable ROLLTAP_ENV_TOKEN unless it is said; `patience` is
        how many seconds `reset` waits for a place where all of the server's are taken, `timeout` how long the server
        may be silent.
        """
        http = httpx.AsyncClient(base_url=server, headers=headers(token), timeout=httpx_timeout(timeout))
        super().__init__(task_dir, options, server, patience, AsyncioTransport(http))


class TerminalGymEnv(Blocking):
    """AsyncTerminalGymEnv for programs that wait: the same calls under the same names."""

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
        """The server's name of the environment, once it is there."""
        return self._client.env_id

    @env_id.setter
    def env_id(self, name: str | None) -> None:
        self._client.env_id = name

    reset = blocking(_Terminal.reset)
    step = blocking(_Terminal.step)
    finish = blocking(_Terminal.finish)
    renew = blocking(_Terminal.renew)
    close = blocking(_Terminal.close)
