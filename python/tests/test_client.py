"""Tests the client with the real proxy."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import httpx
import pytest
from conftest import Capture, OneTrial, chat, two_turns
from fake_server import serving

from rolltap import AsyncClient, Client, Prepare, RolltapError, earned, prepared_rows, run_trial
from rolltap.lines import LineBuffer, read_lines
from rolltap.row import response


def test_the_captured_group_is_what_the_tests_take_it_for(capture: Capture) -> None:
    assert [len(capture.of(index)) for index in range(3)] == [1, 2, 1]
    first, second = capture.of(1)
    assert second["branch_cause"] in ("fork", "history_edited")
    shared = second["calls"][0]["end"]
    assert first["token_ids"][:shared] == second["token_ids"][:shared]
    assert sum(first["loss_mask"][:shared]) > 0 and sum(second["loss_mask"][:shared]) == 0
    assert sum(second["trainable_mask"][:shared]) == sum(first["loss_mask"][:shared])
    assert all(row["version_labels"] == {str(row["calls"][0]["version"]): "7"} for row in capture.rows)


def test_a_refusal_has_the_proxys_own_words(client: Client) -> None:
    with pytest.raises(RolltapError) as refused:
        client.open_trial("task", no_such_field=1)
    assert refused.value.status in (400, 422) and "no_such_field" in refused.value.message
    with pytest.raises(RolltapError) as unknown:
        client.seal("nobody")
    assert unknown.value.status == 404 and "nobody" in unknown.value.message


def test_a_reward_is_given_once(client: Client) -> None:
    trial = client.open_trial("task")
    client.seal(trial.trial_id)
    client.reward(trial.trial_id, {"reward": 1.0})
    client.reward(trial.trial_id, {"reward": 1.0})
    with pytest.raises(RolltapError) as again:
        client.reward(trial.trial_id, {"reward": 0.0})
    assert again.value.status == 409
    assert client.trial(trial.trial_id)["trial_id"] == trial.trial_id


def test_the_policy_is_named_paused_and_resumed(client: Client, capture: Capture) -> None:
    assert client.policy()["label"] == "7"
    client.set_policy("between")
    assert client.policy()["label"] == "between"
    client.pause(wait=True)
    assert client.policy()["paused"] is True
    client.resume()
    assert client.policy()["paused"] is False
    client.set_policy(7)


def test_the_feed_goes_on_from_a_cursor(client: Client, capture: Capture) -> None:
    read = list(client.rollouts(wait=0, closed_groups=True, follow=False))
    mine = [trial for trial in read if trial["group_id"] == capture.group_id]
    assert [trial["group_remaining"] for trial in mine] == [2, 1, 0]
    assert [row for trial in mine for row in trial["rows"]] == capture.rows
    after = list(client.rollouts(after=mine[0]["cursor"], wait=0, closed_groups=True, limit=2, follow=True))
    assert [trial["trial_id"] for trial in after] == [trial["trial_id"] for trial in mine[1:]]


def test_what_is_complete_while_waiting_comes(client: Client) -> None:
    last = [trial["cursor"] for trial in client.rollouts(wait=0, follow=False)][-1:]
    trial = client.open_trial("task")

    def complete() -> None:
        client.seal(trial.trial_id)
        client.reward(trial.trial_id, {"reward": 0.5})

    threading.Timer(0.2, complete).start()
    came = next(client.rollouts(after=last[0] if last else None, wait=30))
    assert (came["trial_id"], came["reward"], came["rows"]) == (trial.trial_id, 0.5, [])


def test_a_malformed_cursor_is_no_reason_to_ask_again(client: Client) -> None:
    with pytest.raises(RolltapError) as refused:
        next(client.rollouts(after="not a cursor", wait=0))
    assert refused.value.status == 400


class BreaksOff(BaseHTTPRequestHandler):
    """Answers with one line and half of the next, then with 503, then with the rest of the feed."""

    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        lines = [b'{"cursor": "1"}\n{"cursor": "2", "task', b"", b'{"cursor": "2", "task_id": "\xe2\x80\xa8"}\n']
        if len(self.asked) == 2:
            self.send_error(503)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(lines[len(self.asked) - 1])

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def broken_server() -> Iterator[str]:
    BreaksOff.asked = []
    with serving(BreaksOff) as url:
        yield url


def test_an_answer_that_breaks_off_is_asked_for_again_from_its_last_whole_line() -> None:
    with broken_server() as url, Client(url) as client:
        read = list(client.rollouts(wait=0, limit=2))
    assert [trial["cursor"] for trial in read] == ["1", "2"]
    assert read[1]["task_id"] == "\u2028"
    assert ["after" in path for path in BreaksOff.asked] == [False, True, True]


def test_one_answer_that_does_not_come_or_breaks_off_raises() -> None:
    """Regression: the client repeated the request without end.

    A reader that had to restart the proxy never got the error.
    """
    with broken_server() as url, Client(url) as client:
        answer = client.rollouts(wait=0, follow=False)
        assert next(answer)["cursor"] == "1"
        # The incomplete line is no trial.
        assert list(answer) == []
        with pytest.raises(RolltapError):
            list(client.rollouts(wait=0, follow=False))
    with Client(url) as client, pytest.raises(httpx.ConnectError):
        list(client.rollouts(wait=0, follow=False))


def test_the_same_for_asyncio() -> None:
    async def read(url: str) -> list[str]:
        async with AsyncClient(url) as client:
            return [trial["cursor"] async for trial in client.rollouts(wait=0, limit=2)]

    with broken_server() as url:
        assert asyncio.run(read(url)) == ["1", "2"]


def test_the_blocking_client_works_inside_an_event_loop_and_its_reader_may_stop_early() -> None:
    async def read(url: str) -> str:
        with Client(url) as client:
            trials = client.rollouts(wait=0)
            first = next(trials)
            trials.close()
            assert list(trials) == []
            return first["cursor"]

    with broken_server() as url:
        assert asyncio.run(read(url)) == "1"


def test_lines_come_whole_however_the_stream_is_cut() -> None:
    stream = b'{"a":"\xe2\x80\xa8"}\n\n{"b":2}\nrest'
    for cut in range(len(stream)):
        buffer = LineBuffer()
        lines = buffer.feed(stream[:cut]) + buffer.feed(stream[cut:])
        assert lines == [b'{"a":"\xe2\x80\xa8"}', b'{"b":2}'], cut


def test_a_line_that_is_no_json_is_told_by_its_number(tmp_path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n\nnot json\n')
    with pytest.raises(ValueError, match=r"x\.jsonl, line 3"):
        list(read_lines(tmp_path / "x.jsonl"))


def run(admin: str, agent, **opening):
    async def go():
        async with AsyncClient(admin) as client:
            return await run_trial(client, agent, {"turns": 2}, task_id="task", **opening)

    return asyncio.run(go())


def test_an_agent_runs_as_a_trial(admin: str) -> None:
    async def agent(trial, task):
        await asyncio.to_thread(two_turns, trial, "Open it.")
        return {"reward": 0.25, "turns": task["turns"]}

    trial = run(admin, agent, sample_index=4, prepare=Prepare())
    assert (trial["reward"], trial["rewards"], trial["sample_index"]) == (0.25, {"reward": 0.25, "turns": 2.0}, 4)
    assert earned(trial) == 0.25 and len(trial["rows"][0]["calls"]) == 2


def test_the_proxy_makes_one_number_of_several_also_where_nothing_was_sampled(admin: str) -> None:
    for given, number in [({"style": 0.5}, 0.5), ({"a": 1.0, "b": 0.0}, None), ({"a": 1.0, "reward": 0.0}, 0.0)]:

        async def agent(trial, task):
            return given

        trial = run(admin, agent)
        assert (trial["reward"], trial["rewards"], trial["rows"]) == (number, given, [])
        assert trial["reward_valid"] is (number is not None)


def test_an_agent_that_fails_leaves_a_masked_trial(admin: str) -> None:
    async def agent(trial, task):
        await asyncio.to_thread(chat, trial, [{"role": "user", "content": "hello"}])
        raise TimeoutError("too late")

    trial = run(admin, agent, prepare=Prepare())
    assert (trial["reward_valid"], trial["failure_cause"]) == (False, "TimeoutError")
    assert earned(trial) is None
    (row,) = prepared_rows(trial)
    assert sum(row["sampled_mask"]) > 0 and sum(row["loss_mask"]) == 0


def test_a_cancelled_agent_leaves_a_sealed_trial(admin: str) -> None:
    name = f"cancelled-{uuid.uuid4().hex}"

    async def cancelled(client: AsyncClient) -> None:
        begun = asyncio.Event()

        async def agent(trial, task):
            begun.set()
            await asyncio.Event().wait()

        running = asyncio.create_task(run_trial(client, agent, {}, task_id="task", trial_id=name))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async def go() -> None:
        async with AsyncClient(admin) as client:
            await cancelled(client)
            assert (await client.trial(name))["state"] == "sealed"

    asyncio.run(go())


def test_constrained_answers_are_masked_unless_asked_for(client: Client, ends_masked: OneTrial) -> None:
    trial_id, (captured,) = ends_masked.trial["trial_id"], ends_masked.trial["rows"]
    first, second = captured["calls"]
    (row,) = client.prepared(trial_id)["rows"]
    assert row["token_ids"] == captured["token_ids"][: first["end"]], "cut after the last token that is trained"
    assert row["loss_mask"] == captured["loss_mask"][: first["end"]]
    (row,) = client.prepared(trial_id, Prepare("mask"))["rows"]
    assert row["token_ids"] == captured["token_ids"] and sum(row["loss_mask"][second["start"] :]) == 0
    (row,) = client.prepared(trial_id, Prepare(train_constrained=True))["rows"]
    assert row["loss_mask"] == captured["loss_mask"] and sum(row["loss_mask"][second["start"] :]) > 0


def test_a_response_is_what_follows_the_prompt(client: Client, capture: Capture) -> None:
    (captured,) = capture.of(0)
    (row,) = client.prepared(captured["trial_id"])["rows"]
    made = response(row)
    start = captured["prompt_len"]
    assert made.prompt_ids == captured["token_ids"][:start] and made.ids == captured["token_ids"][start:]
    assert made.mask == captured["loss_mask"][start:] and made.logprobs == captured["logprobs"][start:]


def test_alone_the_longest_branch_trains_what_it_shares(client: Client, capture: Capture) -> None:
    rows = capture.of(1)
    prepared = client.prepared(rows[0]["trial_id"], Prepare(on_fork="longest"))
    (row,) = prepared["rows"]
    assert sum(row["loss_mask"]) == max(sum(row["trainable_mask"]) for row in rows)
    assert row["loss_mask"] == row["trainable_mask"] and prepared["left_out"] == 1


def test_prepared_rows_are_those_of_the_export(client: Client, capture: Capture) -> None:
    exported = iter(capture.lines("jsonl"))
    for index in range(3):
        for row in client.prepared(capture.of(index)[0]["trial_id"], Prepare("mask"))["rows"]:
            line = next(exported)
            for name in ("token_ids", "sampled_mask", "trainable_mask", "loss_mask", "logprobs", "token_version"):
                assert row[name] == line[name], name
            assert row["policy_numbers"] == [7 if sampled else -1 for sampled in row["sampled_mask"]]
            assert (row["oldest_policy"], row["newest_policy"], row["policy_names"]) == (7, 7, ["7"])
    assert next(exported, None) is None


def test_the_feed_prepares_what_it_is_asked_to(client: Client, capture: Capture) -> None:
    read = client.rollouts(wait=0, closed_groups=True, follow=False, prepare=Prepare())
    mine = [trial for trial in read if trial["group_id"] == capture.group_id]
    assert [earned(trial) for trial in mine] == [1.0, 0.0, None]
    assert [len(trial["rows"]) for trial in mine] == [1, 2, 1]
    for trial in mine:
        assert trial["prepared"] == client.prepared(trial["trial_id"])
        assert prepared_rows(trial) == trial["rows"]


def test_rows_as_they_were_captured_are_not_taken_for_prepared_ones(client: Client, capture: Capture) -> None:
    trial = next(client.rollouts(wait=0, follow=False))
    for read in (earned, prepared_rows):
        with pytest.raises(ValueError, match="prepare=Prepare"):
            read(trial)


def test_a_trial_that_is_refused_raises_the_proxys_reason(client: Client, capture: Capture) -> None:
    error = Prepare(on_fork="error")
    read = client.rollouts(wait=0, closed_groups=True, follow=False, prepare=error)
    (forked,) = [trial for trial in read if trial["trial_id"] == capture.of(1)[0]["trial_id"]]
    for made in (earned, prepared_rows):
        with pytest.raises(ValueError, match="2 branches"):
            made(forked)


def test_a_choice_that_the_proxy_does_not_know_is_refused(client: Client, capture: Capture) -> None:
    with pytest.raises(RolltapError, match="give one of longest, all, error") as refused:
        client.prepared(capture.rows[0]["trial_id"], Prepare(on_fork="both"))
    assert refused.value.status == 400
