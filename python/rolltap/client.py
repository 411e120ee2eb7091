"""The proxy's admin plane, for programs that wait and for asyncio: the same calls under the same names."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import Any

import httpx
from httpx import USE_CLIENT_DEFAULT

from rolltap.errors import RolltapError, raise_for
from rolltap.lines import LineBuffer
from rolltap.messages import (
    DEFAULT_URL,
    OpenedTrial,
    headers,
    of_group,
    of_trial,
    opened_trial,
    reward_body,
    rows_of,
)
from rolltap.prepare import Prepare
from rolltap.rollouts import Reading, opening
from rolltap.row import Prepared, Row, Trial

__all__ = ["DEFAULT_URL", "AsyncClient", "Client", "OpenedTrial"]


class Client:
    """Calls the admin plane. Usable from several threads."""

    def __init__(self, url: str = DEFAULT_URL, *, token: str | None = None, timeout: float = 60.0) -> None:
        self._http = httpx.Client(base_url=url, headers=headers(token), timeout=timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; what is under way ends with an error."""
        self._http.close()

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout: Any = USE_CLIENT_DEFAULT,
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        response = self._http.request(method, path, json=body, params=params, timeout=timeout)
        raise_for(response, response.content)
        return response.content

    def open_trial(self, task_id: str, **fields: Any) -> OpenedTrial:
        """Opens a trial; `fields` are those of `POST /v1/trials`."""
        return opened_trial(json.loads(self._ask("POST", "/v1/trials", opening(task_id, fields))))

    def seal(self, trial_id: str) -> None:
        """No further call; idempotent."""
        self._ask("POST", of_trial(trial_id, "/seal"))

    def reward(
        self,
        trial_id: str,
        rewards: Mapping[str, float],
        *,
        reward: float | None = None,
        valid: bool | None = None,
        failure_cause: str | None = None,
    ) -> dict[str, Any]:
        """Gives the trial its reward, once, and returns its status. The proxy makes one number of several rewards."""
        body = reward_body(rewards, reward, valid, failure_cause)
        return json.loads(self._ask("PUT", of_trial(trial_id, "/reward"), body))  # type: ignore[no-any-return]

    def trial(self, trial_id: str) -> dict[str, Any]:
        """Its status and counts."""
        return json.loads(self._ask("GET", of_trial(trial_id)))  # type: ignore[no-any-return]

    def rollout(self, trial_id: str) -> list[Row]:
        """The rows of a sealed trial."""
        return rows_of(self._ask("GET", of_trial(trial_id, "/rollout")))

    def prepared(self, trial_id: str, prepare: Prepare = Prepare()) -> Prepared:
        """The rows of a sealed trial after the rules of an export, or why the trial cannot be trained."""
        return json.loads(self._ask("GET", of_trial(trial_id, "/rollout"), params=prepare.params()))  # type: ignore[no-any-return]

    def group(self, group_id: str) -> dict[str, Any]:
        """How many of its samples are open, sealed, complete, and whether it is closed."""
        return json.loads(self._ask("GET", of_group(group_id)))  # type: ignore[no-any-return]

    def close_group(self, group_id: str) -> None:
        """No further trial of the group; idempotent."""
        self._ask("POST", of_group(group_id, "/close"))

    def policy(self) -> dict[str, Any]:
        """The policy version that new tokens bear, and those before it."""
        return json.loads(self._ask("GET", "/v1/policy"))  # type: ignore[no-any-return]

    def set_policy(self, version: str | int) -> None:
        """Names the weights that all upstreams have from now on."""
        self._ask("POST", "/v1/policy", {"version": version})

    def pause(self, *, wait: bool = False) -> None:
        """New calls wait before they go upstream; with `wait`, returns once none is under way."""
        timeout = None if wait else self._http.timeout
        self._ask("POST", "/v1/policy/pause", {"wait": wait}, timeout=timeout)

    def resume(self) -> None:
        """Calls that wait go upstream."""
        self._ask("POST", "/v1/policy/resume")

    def rollouts(
        self,
        *,
        after: str | None = None,
        wait: float = 60.0,
        closed_groups: bool = False,
        superseded: bool = False,
        allow_gap: bool = False,
        limit: int | None = None,
        follow: bool = True,
        prepare: Prepare | None = None,
    ) -> Iterator[Trial]:
        """Complete trials in their order, from the one after the cursor `after`, and on as they come.

        Asks again where an answer ends or breaks off. Keep each trial's `cursor` together with what you made of it, and
        give it as `after` when you start again. Without `follow` it ends with the first answer, which may be
        empty, and raises where that does not come or breaks off. It raises too where trials behind `after` are gone by
        their retention, unless `allow_gap` is set. With `prepare` the proxy applies the rules of an export to each trial.
        """
        reading = Reading(after, wait, closed_groups, superseded, allow_gap, limit, follow, prepare)
        while not reading.is_over():
            try:
                for trial in self._answer(reading):
                    reading.taken(trial)
                    yield trial
            except (httpx.TransportError, RolltapError) as error:
                time.sleep(reading.pause(error))
            else:
                if not follow:
                    return

    def _answer(self, reading: Reading) -> Iterator[Trial]:
        stream = self._http.stream("GET", "/v1/rollouts", params=reading.params(), timeout=reading.timeout())
        with stream as response:
            if response.status_code >= 400:
                raise_for(response, response.read())
            buffer = LineBuffer()
            for piece in response.iter_bytes():
                yield from reading.trials(buffer, piece)


class AsyncClient:
    """Calls the admin plane, for asyncio."""

    def __init__(self, url: str = DEFAULT_URL, *, token: str | None = None, timeout: float = 60.0) -> None:
        self._http = httpx.AsyncClient(base_url=url, headers=headers(token), timeout=timeout)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections; what is under way ends with an error."""
        await self._http.aclose()

    async def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout: Any = USE_CLIENT_DEFAULT,
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        response = await self._http.request(method, path, json=body, params=params, timeout=timeout)
        raise_for(response, response.content)
        return response.content

    async def open_trial(self, task_id: str, **fields: Any) -> OpenedTrial:
        """See `Client.open_trial`."""
        return opened_trial(json.loads(await self._ask("POST", "/v1/trials", opening(task_id, fields))))

    async def seal(self, trial_id: str) -> None:
        """See `Client.seal`."""
        await self._ask("POST", of_trial(trial_id, "/seal"))

    async def reward(
        self,
        trial_id: str,
        rewards: Mapping[str, float],
        *,
        reward: float | None = None,
        valid: bool | None = None,
        failure_cause: str | None = None,
    ) -> dict[str, Any]:
        """See `Client.reward`."""
        body = reward_body(rewards, reward, valid, failure_cause)
        return json.loads(await self._ask("PUT", of_trial(trial_id, "/reward"), body))  # type: ignore[no-any-return]

    async def trial(self, trial_id: str) -> dict[str, Any]:
        """See `Client.trial`."""
        return json.loads(await self._ask("GET", of_trial(trial_id)))  # type: ignore[no-any-return]

    async def rollout(self, trial_id: str) -> list[Row]:
        """See `Client.rollout`."""
        return rows_of(await self._ask("GET", of_trial(trial_id, "/rollout")))

    async def prepared(self, trial_id: str, prepare: Prepare = Prepare()) -> Prepared:
        """See `Client.prepared`."""
        body = await self._ask("GET", of_trial(trial_id, "/rollout"), params=prepare.params())
        return json.loads(body)  # type: ignore[no-any-return]

    async def group(self, group_id: str) -> dict[str, Any]:
        """See `Client.group`."""
        return json.loads(await self._ask("GET", of_group(group_id)))  # type: ignore[no-any-return]

    async def close_group(self, group_id: str) -> None:
        """See `Client.close_group`."""
        await self._ask("POST", of_group(group_id, "/close"))

    async def policy(self) -> dict[str, Any]:
        """See `Client.policy`."""
        return json.loads(await self._ask("GET", "/v1/policy"))  # type: ignore[no-any-return]

    async def set_policy(self, version: str | int) -> None:
        """See `Client.set_policy`."""
        await self._ask("POST", "/v1/policy", {"version": version})

    async def pause(self, *, wait: bool = False) -> None:
        """See `Client.pause`."""
        timeout = None if wait else self._http.timeout
        await self._ask("POST", "/v1/policy/pause", {"wait": wait}, timeout=timeout)

    async def resume(self) -> None:
        """See `Client.resume`."""
        await self._ask("POST", "/v1/policy/resume")

    async def rollouts(
        self,
        *,
        after: str | None = None,
        wait: float = 60.0,
        closed_groups: bool = False,
        superseded: bool = False,
        allow_gap: bool = False,
        limit: int | None = None,
        follow: bool = True,
        prepare: Prepare | None = None,
    ) -> AsyncIterator[Trial]:
        """See `Client.rollouts`."""
        reading = Reading(after, wait, closed_groups, superseded, allow_gap, limit, follow, prepare)
        while not reading.is_over():
            try:
                async for trial in self._answer(reading):
                    reading.taken(trial)
                    yield trial
            except (httpx.TransportError, RolltapError) as error:
                await asyncio.sleep(reading.pause(error))
            else:
                if not follow:
                    return

    async def _answer(self, reading: Reading) -> AsyncIterator[Trial]:
        stream = self._http.stream("GET", "/v1/rollouts", params=reading.params(), timeout=reading.timeout())
        async with stream as response:
            if response.status_code >= 400:
                raise_for(response, await response.aread())
            buffer = LineBuffer()
            async for piece in response.aiter_bytes():
                for trial in reading.trials(buffer, piece):
                    yield trial
