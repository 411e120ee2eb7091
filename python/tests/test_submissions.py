"""Tests the submissions of the clients with the real `rolltap serve`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest
from conftest import limit
from fake_server import serving
from service import ORACLE, TASKS, Service, service

import rolltap.client
from rolltap import AsyncClient, Client, RolltapError
from rolltap.retries import Patience

TASK = "rolltap/hello-file"


@pytest.fixture(scope="module")
def solving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Runs a service whose agent solves the tasks at once."""
    with service(tmp_path_factory.mktemp("solving"), *ORACLE) as running:
        yield running


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Service]:
    """Runs a service whose agent waits at the gate. One sample runs, and two may be queued."""
    with service(tmp_path) as running:
        yield running


@pytest.fixture
def solver(solving: Service) -> Iterator[Client]:
    with Client(solving.url, timeout=limit(60)) as client:
        yield client


@pytest.fixture
def waiter(waiting: Service) -> Iterator[Client]:
    with Client(waiting.url, timeout=limit(60)) as client:
        yield client


def pauses(client: Client | AsyncClient, before: Callable[[], object]) -> list[float]:
    """Calls `before` before each pause of the client. Returns the list of the pauses, which is empty at first."""
    transport = (client._client if isinstance(client, Client) else client)._transport
    sleep: Callable[[float], Awaitable[None]] = transport.sleep
    made: list[float] = []

    async def observed(seconds: float) -> None:
        made.append(seconds)
        before()
        await sleep(seconds)

    transport.sleep = observed
    return made


def test_a_submission_becomes_a_closed_group_of_the_feed(solver: Client) -> None:
    sampling, metadata = {"temperature": 0.5}, {"step": 3}
    given = {"sampling": sampling, "metadata": metadata, "priority": 1, "deadline": limit(600)}
    made = solver.submit(TASK, samples=2, **given)
    assert {name: made["request"][name] for name in given} == given
    assert len(made["request"]["idempotency_key"]) == 32
    done = solver.wait_for_submission(made["id"], poll=0.05, timeout=limit(120))
    assert (done["id"], done["state"]) == (made["id"], "done"), done
    (group,) = done["groups"]
    assert (group["task_id"], group["samples"], group["ended"], group["running"]) == (TASK, 2, 2, 0)
    assert done["ended_at"] is not None and "error" not in done and "failures" not in group
    assert solver.group(group["group_id"])["closed"] is not None
    read = solver.rollouts(wait=0, closed_groups=True, follow=False)
    mine = [trial for trial in read if trial["group_id"] == group["group_id"]]
    assert [trial["reward"] for trial in mine] == [1.0, 1.0]
    assert [trial["group_remaining"] for trial in mine] == [1, 0]
    # The oracle calls no model.
    assert [trial["rows"] for trial in mine] == [[], []]


def test_the_same_for_asyncio(solving: Service) -> None:
    async def go() -> None:
        async with AsyncClient(solving.url, timeout=limit(60)) as client:
            made = await client.submit(TASK)
            done = await client.wait_for_submission(made["id"], poll=0.05, timeout=limit(120))
            assert done["state"] == "done", done
            assert await client.submission(made["id"]) == done
            assert await client.cancel_submission(made["id"]) == done, "it had ended"
            assert made["id"] in [one["id"] async for one in client.submissions()]
            group_id = done["groups"][0]["group_id"]
            read = client.rollouts(wait=0, closed_groups=True, follow=False)
            assert [trial["reward"] async for trial in read if trial["group_id"] == group_id] == [1.0]

    asyncio.run(go())


def test_each_task_of_a_dataset_and_a_directory_are_groups(solver: Client) -> None:
    of_dataset = solver.submit(dataset="tasks")
    assert sorted(group["task_id"] for group in of_dataset["groups"]) == ["rolltap/count-errors", TASK]
    (group,) = solver.submit(task_path=TASKS / "hello-file")["groups"]
    assert group["task_id"] == TASK


def test_a_key_makes_one_submission(solver: Client) -> None:
    first = solver.submit(TASK, idempotency_key="step-1")
    assert solver.submit(TASK, idempotency_key="step-1")["id"] == first["id"]
    assert solver.submit(TASK)["id"] != solver.submit(TASK)["id"]
    with pytest.raises(RolltapError, match="whose other fields differ") as refused:
        solver.submit(TASK, samples=3, idempotency_key="step-1")
    assert refused.value.status == 409


def test_a_refusal_has_the_words_of_the_service(solver: Client, client: Client) -> None:
    with pytest.raises(RolltapError, match='there is no task "hello"') as unknown:
        solver.submit("hello")
    assert unknown.value.status == 400
    with pytest.raises(RolltapError, match="exactly one of task, task_path and dataset"):
        solver.submit()
    for ask in (solver.submission, solver.cancel_submission, solver.wait_for_submission):
        with pytest.raises(RolltapError, match="there is no submission nobody") as missing:
            ask("nobody")
        assert missing.value.status == 404
    with pytest.raises(RolltapError, match="`rolltap serve` is the proxy that does") as ordinary:
        client.submit(TASK)
    assert ordinary.value.status == 404


def test_submissions_are_listed_over_all_pages(waiter: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # The queue has room for the third one once the first one runs.
    made = [waiter.submit(TASK, patience=limit(60))["id"] for _ in range(3)]
    waiter.cancel_submission(made[1])
    waiter.wait_for_submission(made[1], poll=0.05, timeout=limit(60))
    for size in (1, 2, 3, 4):
        monkeypatch.setattr(rolltap.client, "PAGE", size)
        assert [one["id"] for one in waiter.submissions()] == made
        assert [one["id"] for one in waiter.submissions(active=True)] == [made[0], made[2]]
    assert next(waiter.submissions())["id"] == made[0]


def test_a_wait_that_is_too_short_ends_and_the_submission_goes_on(waiting: Service, waiter: Client) -> None:
    made = waiter.submit(TASK)
    for timeout in (0.0, 0.1):
        with pytest.raises(TimeoutError, match=made["id"]):
            waiter.wait_for_submission(made["id"], timeout=timeout)
    waiting.gate.touch()
    waited = waiter.wait_for_submission(made["id"], poll=0.05, timeout=limit(120))
    assert waited["state"] == "done"


def test_cancelled_submissions_stop(waiter: Client) -> None:
    first = waiter.submit(TASK)
    assert waiter.cancel_submission(first["id"])["state"] in ("stopping", "cancelled")
    cancelled = waiter.wait_for_submission(first["id"], poll=0.05, timeout=limit(120))
    assert (cancelled["state"], cancelled["groups"][0]["ended"]) == ("cancelled", 0)
    second = waiter.submit(TASK)
    waiter.set_policy("step-1")
    third = waiter.submit(TASK, patience=limit(60))
    assert [one["id"] for one in waiter.cancel_submissions(second["policy_version"])] == [second["id"]]
    waited = waiter.wait_for_submission(second["id"], poll=0.05, timeout=limit(120))
    assert waited["state"] == "cancelled"
    assert waiter.submission(third["id"])["state"] in ("queued", "running")
    assert third["policy_version"] == waiter.policy()["version"]


def test_a_full_queue_is_asked_again_until_there_is_room(waiting: Service, waiter: Client) -> None:
    first = waiter.submit(TASK, samples=2)
    with pytest.raises(RolltapError, match="--max-queued") as full:
        waiter.submit(TASK, samples=2, patience=0)
    assert (full.value.status, full.value.retry_after) == (429, 5.0)
    with Client(waiting.url, timeout=limit(60)) as other:

        def make_room() -> None:
            waiting.gate.touch()
            other.wait_for_submission(first["id"], poll=0.05, timeout=limit(120))

        made = pauses(waiter, make_room)
        second = waiter.submit(TASK, samples=2, patience=limit(180))
        assert made == [5.0], "the service names the pause"
    assert second["id"] != first["id"] and len(list(waiter.submissions())) == 2


def test_the_same_full_queue_for_asyncio(waiting: Service) -> None:
    async def go() -> None:
        async with AsyncClient(waiting.url, timeout=limit(60)) as client:
            await client.submit(TASK, samples=2)
            made = pauses(client, waiting.gate.touch)
            second = await client.submit(TASK, samples=2, patience=limit(120))
            assert made[0] == 5.0
            done = await client.wait_for_submission(second["id"], poll=0.05, timeout=limit(120))
            assert done["state"] == "done"

    asyncio.run(go())


class Unwell(BaseHTTPRequestHandler):
    """Closes the connection without an answer, then answers 503 and 429, then accepts. Reads are answered alike."""

    bodies: list[bytes] = []
    asked: int = 0

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.do_GET()

    def do_GET(self) -> None:
        Unwell.asked += 1
        answers = [None, (503, {}), (429, {"retry-after": "0"}), (202, {})]
        answer = answers[min(Unwell.asked, len(answers)) - 1]
        if answer is None:
            return
        status, headers = answer
        body = json.dumps({"id": "one", "state": "done"}).encode() if status == 202 else b"busy"
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def unwell() -> Iterator[str]:
    Unwell.bodies, Unwell.asked = [], 0
    with serving(Unwell) as url:
        yield url


def test_a_request_without_an_answer_is_repeated_with_its_key() -> None:
    with unwell() as url, Client(url) as client:
        made = pauses(client, lambda: None)
        assert client.submit("task", patience=limit(60))["id"] == "one"
        assert made == [0.5, 1.0, 2.0]
    assert len(Unwell.bodies) == 4 and len(set(Unwell.bodies)) == 1
    assert len(json.loads(Unwell.bodies[0])["idempotency_key"]) == 32


def test_a_wait_survives_a_service_that_restarts() -> None:
    with unwell() as url, Client(url) as client:
        assert client.wait_for_submission("one", patience=limit(60))["state"] == "done"
    with unwell() as url, Client(url) as client, pytest.raises(httpx.RemoteProtocolError):
        client.wait_for_submission("one", patience=0)


def test_an_impatient_request_is_not_repeated() -> None:
    with unwell() as url, Client(url) as client:
        made = pauses(client, lambda: None)
        with pytest.raises(httpx.RemoteProtocolError):
            client.submit("task", patience=0)
        with pytest.raises(RolltapError, match="503: busy"):
            client.submit("task", patience=0)
        assert made == []
    with Client(url) as client, pytest.raises(httpx.ConnectError):
        client.submit("task", patience=0)


def test_no_pause_goes_beyond_the_patience() -> None:
    patience = Patience(limit(60))
    full = RolltapError(429, "full", retry_after=5.0)
    assert [patience.pause(full), patience.pause(RolltapError(503, "starting"))] == [5.0, 1.0]
    with pytest.raises(RolltapError, match="later"):
        patience.pause(RolltapError(429, "later", retry_after=limit(60) + 1))
    with pytest.raises(RolltapError, match="wrong"):
        patience.pause(RolltapError(400, "wrong"))
