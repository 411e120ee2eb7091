"""Clients of the proxy's admin plane, blocking and for asyncio, with the same methods."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
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
from rolltap.retries import Patience
from rolltap.rollouts import Reading, opening
from rolltap.row import Prepared, Row, Trial
from rolltap.submissions import (
    PAGE,
    Submission,
    TaskPath,
    has_ended,
    of_submission,
    submission_body,
)
from rolltap.transport import (
    AsyncClosing,
    AsyncioTransport,
    Blocking,
    BlockingTransport,
    Transport,
    blocking,
    blocking_iterator,
)

__all__ = ["DEFAULT_URL", "AsyncClient", "Client", "OpenedTrial"]


class _Calls(AsyncClosing):
    """The calls of the admin plane on any transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def close(self) -> None:
        """Closes the connections. Requests in flight end with an error."""
        await self._transport.close()

    async def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout: Any = USE_CLIENT_DEFAULT,
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        response = await self._transport.request(method, path, body, timeout, params)
        raise_for(response, response.content)
        return response.content

    async def _ask_patiently(
        self, patience: float, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> bytes:
        attempts = Patience(patience)
        while True:
            try:
                return await self._ask(method, path, body)
            except (httpx.TransportError, RolltapError) as error:
                await self._transport.sleep(attempts.pause(error))

    async def open_trial(self, /, task_id: str, **fields: Any) -> OpenedTrial:
        """Opens a trial. `fields` are further fields of `POST /v1/trials`. Fields that are None get the defaults."""
        return opened_trial(json.loads(await self._ask("POST", "/v1/trials", opening(task_id, fields))))

    async def seal(self, trial_id: str) -> None:
        """Seals the trial, which then accepts no further call. Idempotent."""
        await self._ask("POST", of_trial(trial_id, "/seal"))

    async def reward(
        self,
        trial_id: str,
        rewards: Mapping[str, float],
        *,
        reward: float | None = None,
        valid: bool | None = None,
        failure_cause: str | None = None,
        suspicious: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Sets the reward of the trial, once, and returns the trial's status.

        If `reward` is None, the proxy derives the number to train on from `rewards`. `suspicious` lists reasons to
        suspect the trial of cheating, for the rows.
        """
        body = reward_body(rewards, reward, valid, failure_cause, suspicious)
        return json.loads(await self._ask("PUT", of_trial(trial_id, "/reward"), body))  # type: ignore[no-any-return]

    async def trial(self, trial_id: str) -> dict[str, Any]:
        """Returns the status and the counts of the trial."""
        return json.loads(await self._ask("GET", of_trial(trial_id)))  # type: ignore[no-any-return]

    async def rollout(self, trial_id: str, *, messages: bool = False) -> list[Row]:
        """Returns the rows of a sealed trial, as they were captured. `messages` adds the words of each call."""
        params = {"messages": "true"} if messages else None
        return rows_of(await self._ask("GET", of_trial(trial_id, "/rollout"), params=params))

    async def prepared(self, trial_id: str, prepare: Prepare = Prepare()) -> Prepared:
        """Returns the rows of a sealed trial after the rules of an export.

        If the trial cannot be trained, `refused` of the answer has the reason.
        """
        body = await self._ask("GET", of_trial(trial_id, "/rollout"), params=prepare.params())
        return json.loads(body)  # type: ignore[no-any-return]

    async def group(self, group_id: str) -> dict[str, Any]:
        """Returns the numbers of open, sealed and complete samples of the group, and whether the group is closed."""
        return json.loads(await self._ask("GET", of_group(group_id)))  # type: ignore[no-any-return]

    async def close_group(self, group_id: str) -> None:
        """Closes the group, which then accepts no further trial. Idempotent."""
        await self._ask("POST", of_group(group_id, "/close"))

    async def policy(self) -> dict[str, Any]:
        """Returns the current policy version and the earlier ones, and whether new calls are held."""
        return json.loads(await self._ask("GET", "/v1/policy"))  # type: ignore[no-any-return]

    async def set_policy(self, version: str | int) -> None:
        """Names the weights that all upstreams have from now on: a string or an integer."""
        await self._ask("POST", "/v1/policy", {"version": version})

    async def pause(self, *, wait: bool = False) -> None:
        """Holds new calls before they go upstream. With `wait`, returns once no call is in flight."""
        # Calls in flight may last for any time, so a wait has no timeout.
        timeout = None if wait else USE_CLIENT_DEFAULT
        await self._ask("POST", "/v1/policy/pause", {"wait": wait}, timeout=timeout)

    async def resume(self) -> None:
        """Releases held calls."""
        await self._ask("POST", "/v1/policy/resume")

    async def submit(
        self,
        task: str | None = None,
        *,
        task_path: TaskPath | None = None,
        dataset: str | None = None,
        agent: str | None = None,
        samples: int | None = None,
        sampling: Mapping[str, Any] | None = None,
        priority: int | None = None,
        deadline: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        patience: float = 60.0,
    ) -> Submission:
        """Asks `rolltap serve` to sample groups, and returns the submission, which the service has on its disk.

        Exactly one of `task`, `task_path` and `dataset` names what to sample. `task` and `dataset` are names that the
        service was started with, and each task of a dataset becomes a group. `task_path` is the absolute path of a task
        directory on the host of the service. `agent` is needed only if the service has several agents.

        `samples` is the number of samples of each group. `sampling` overrides keys of every request of the trials.
        Submissions with a higher `priority` begin first. After `deadline` seconds the submission is stopped. The
        submission and its trials have `metadata` unchanged.

        A second request with the same `idempotency_key` and equal fields returns the first submission. If the key is
        None, a random one is made. The request is therefore repeated for `patience` seconds if no answer comes, if the
        queue is full, and if the service is starting or stopping, with the pauses that the service names.

        Raises RolltapError if the service refuses the request: status 400 if it makes no sense, 404 if the server is
        no `rolltap serve`, 409 if the key belongs to another request, and 429 or 503 when `patience` is over. Raises
        httpx.TransportError if no answer came until then.
        """
        fields = {
            "task": task,
            "dataset": dataset,
            "agent": agent,
            "samples": samples,
            "sampling": sampling,
            "priority": priority,
            "deadline": deadline,
            "metadata": metadata,
            "idempotency_key": uuid.uuid4().hex if idempotency_key is None else idempotency_key,
        }
        body = submission_body(task_path, fields)
        answer = await self._ask_patiently(patience, "POST", "/v1/submissions", body)
        return json.loads(answer)  # type: ignore[no-any-return]

    async def submission(self, submission_id: str) -> Submission:
        """Returns the submission. Raises RolltapError with status 404 if it is unknown."""
        return json.loads(await self._ask("GET", of_submission(submission_id)))  # type: ignore[no-any-return]

    async def submissions(self, *, active: bool = False) -> AsyncGenerator[Submission, None]:
        """Yields the submissions, the oldest first. With `active`, yields only those that have not ended.

        Raises RolltapError if the service refuses a request, with status 404 if the server is no `rolltap serve`.
        """
        params = {"limit": str(PAGE), "active": "true" if active else "false"}
        while True:
            response = await self._transport.request("GET", "/v1/submissions", None, params=params)
            raise_for(response, response.content)
            page: list[Submission] = json.loads(response.content)
            for submission in page:
                yield submission
            if "next" not in response.links:
                return
            params["after"] = page[-1]["id"]

    async def cancel_submission(self, submission_id: str) -> Submission:
        """Cancels the submission and returns it. Idempotent.

        Its running trials are being stopped when this returns. `wait_for_submission` waits for its end. A submission
        that had ended is returned unchanged. Raises RolltapError with status 404 if the submission is unknown.
        """
        body = await self._ask("POST", of_submission(submission_id, "/cancel"))
        return json.loads(body)  # type: ignore[no-any-return]

    async def cancel_submissions(self, policy_version: int) -> list[Submission]:
        """Cancels the submissions that were made under this policy version, and returns those that had not ended.

        `policy_version` is rolltap's count, as in `Submission` and in `version` of `policy()`, not the label of
        `set_policy`. Raises RolltapError if the service refuses the request.
        """
        body = await self._ask("POST", "/v1/submissions/cancel", {"policy_version": policy_version})
        return json.loads(body)  # type: ignore[no-any-return]

    async def wait_for_submission(
        self, submission_id: str, *, poll: float = 0.5, timeout: float | None = None, patience: float = 60.0
    ) -> Submission:
        """Waits until the submission has ended, and returns it. `state` has how it ended.

        Reads the submission every `poll` seconds. A failing read is repeated for `patience` seconds, because a service
        that restarts continues its submissions. Raises TimeoutError if the submission has not ended after `timeout`
        seconds; it goes on. Raises RolltapError with status 404 if it is unknown. Raises the error of the last read if
        reads fail until `patience` or `timeout` is over.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0.0, until - time.monotonic())
            answer = await self._ask_patiently(min(patience, left), "GET", of_submission(submission_id))
            submission: Submission = json.loads(answer)
            if has_ended(submission):
                return submission
            if left == 0.0:
                state = submission["state"]
                raise TimeoutError(f"submission {submission_id} is {state} after {timeout:g} s, and goes on")
            await self._transport.sleep(min(poll, left))

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
        reward_version: str | None = None,
        messages: bool = False,
    ) -> AsyncGenerator[Trial, None]:
        """Yields complete trials in the order of the feed, after the cursor `after`, as they become complete.

        Repeats the request when an answer ends or is cut off. Store each trial's `cursor` together with the result of
        its processing, and pass the cursor as `after` when you start again. `limit` is the number of trials to yield.

        Without `follow`, ends with the first answer, which may be empty, and raises if that answer fails or is cut
        off. Raises RolltapError if retention has removed trials after the cursor, unless `allow_gap` is set. With
        `prepare`, the proxy applies the rules of an export to each trial. `reward_version` chooses the rewards of a
        later verification. `messages` adds the words of each call to the rows, and excludes `prepare`.
        """
        reading = Reading(
            after, wait, closed_groups, superseded, allow_gap, limit, follow, prepare, reward_version, messages
        )
        while not reading.is_over():
            try:
                async with aclosing(self._answer(reading)) as trials:
                    async for trial in trials:
                        reading.taken(trial)
                        yield trial
            except (httpx.TransportError, RolltapError) as error:
                await self._transport.sleep(reading.pause(error))
            else:
                if not follow:
                    return

    async def _answer(self, reading: Reading) -> AsyncGenerator[Trial, None]:
        # A new buffer for each answer: an incomplete last line belongs to no later answer.
        buffer = LineBuffer()
        pieces = self._transport.pieces("/v1/rollouts", reading.params(), reading.timeout())
        async with aclosing(pieces):
            async for piece in pieces:
                for trial in reading.trials(buffer, piece):
                    yield trial


class AsyncClient(_Calls):
    """A client of the admin plane for asyncio."""

    def __init__(self, url: str = DEFAULT_URL, *, token: str | None = None, timeout: float = 60.0) -> None:
        http = httpx.AsyncClient(base_url=url, headers=headers(token), timeout=timeout)
        super().__init__(AsyncioTransport(http))


class Client(Blocking):
    """A blocking client of the admin plane. Several threads can use it at once."""

    def __init__(self, url: str = DEFAULT_URL, *, token: str | None = None, timeout: float = 60.0) -> None:
        http = httpx.Client(base_url=url, headers=headers(token), timeout=timeout)
        self._client = _Calls(BlockingTransport(http))

    close = blocking(_Calls.close)
    open_trial = blocking(_Calls.open_trial)
    seal = blocking(_Calls.seal)
    reward = blocking(_Calls.reward)
    trial = blocking(_Calls.trial)
    rollout = blocking(_Calls.rollout)
    prepared = blocking(_Calls.prepared)
    group = blocking(_Calls.group)
    close_group = blocking(_Calls.close_group)
    policy = blocking(_Calls.policy)
    set_policy = blocking(_Calls.set_policy)
    pause = blocking(_Calls.pause)
    resume = blocking(_Calls.resume)
    submit = blocking(_Calls.submit)
    submission = blocking(_Calls.submission)
    submissions = blocking_iterator(_Calls.submissions)
    cancel_submission = blocking(_Calls.cancel_submission)
    cancel_submissions = blocking(_Calls.cancel_submissions)
    wait_for_submission = blocking(_Calls.wait_for_submission)
    rollouts = blocking_iterator(_Calls.rollouts)
