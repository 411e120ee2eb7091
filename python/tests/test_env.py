"""Tests the client of environments with a scripted server: its requests, and its reactions to errors."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rolltap import RolltapError
from rolltap.env import AsyncTerminalGymEnv, TerminalGymEnv, UnverifiedError, checked, serve

CREATED = (
    201,
    {
        "env_id": "e1",
        "task_id": "hello",
        "instruction": "Say hello.",
        "lease_seconds": 600,
        "status": "created",
    },
)
BEGUN = (200, {"observation": "$ ", "info": {"instruction": "Say hello.", "task_id": "hello", "step": 0}})
WENT_ON = (200, {"observation": "$ ls\n", "reward": 0.0, "done": False, "info": {"step": 1, "warnings": []}})
OVER = (
    200,
    {
        "observation": "",
        "reward": 1,
        "done": True,
        "info": {"step": 2, "terminated": True, "rewards": {"reward": 1.0}},
    },
)
REMOVED = (204, None)


def refused(status: int, code: str, message: str = "no") -> tuple[int, dict]:
    return status, {"error": {"code": code, "message": message}}


class Scripted(ThreadingHTTPServer):
    """Gives the scripted answers in order, and records the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.answers: list[tuple[int, dict | None]] = []
        self.asked: list[tuple[str, str, object]] = []
        self.shown: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def paths(self) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.asked]


class Answering(BaseHTTPRequestHandler):
    server: Scripted
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append((self.command, self.path, json.loads(body) if body else None))
        self.server.shown = self.headers.get("authorization")
        status, said = self.server.answers.pop(0)
        content = b"" if said is None else json.dumps(said).encode()
        self.send_response(status)
        if status == 503:
            self.send_header("retry-after", "0")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_DELETE = do_GET = _answer


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
        assert not server.answers, "it was asked less than the script has"


def test_an_episode_of_both_twins_asks_the_same(
    server: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    episode = [CREATED, BEGUN, WENT_ON, (200, {}), OVER, REMOVED]

    async def of_the_asynchronous() -> list:
        async with AsyncTerminalGymEnv("task", server=server.url, environment="local", max_steps=3) as env:
            made = [await env.reset(), await env.step("{}")]
            await env.renew()
            return [*made, await env.step({"keystrokes": "ls\n"})]

    def of_the_other() -> list:
        with TerminalGymEnv("task", server=server.url, environment="local", max_steps=3) as env:
            made = [env.reset(), env.step("{}")]
            env.renew()
            return [*made, env.step({"keystrokes": "ls\n"})]

    server.answers = [*episode]
    made = asyncio.run(of_the_asynchronous())
    asked, server.asked = server.asked, []
    server.answers = [*episode]
    assert of_the_other() == made and server.asked == asked

    assert [path for _, path, _ in asked] == [
        "/v1/envs",
        *(f"/v1/envs/e1/{what}" for what in ("reset", "step", "lease", "step")),
        "/v1/envs/e1",
    ]
    assert asked[0][2] == {"task": str(tmp_path / "task"), "environment": "local", "max_steps": 3}
    assert asked[2][2] == {"action": "{}"} and asked[4][2] == {"action": {"keystrokes": "ls\n"}}
    (observation, info), (_, reward, done, _), last = made
    assert (observation, info["instruction"], reward, done) == ("$ ", "Say hello.", 0.0, False)
    assert (last.reward, last.done, last.info["rewards"]) == (1.0, True, {"reward": 1.0})


def test_a_refusal_has_the_servers_own_words(server: Scripted) -> None:
    server.answers = [CREATED, BEGUN, refused(409, "done", "the episode is over: reset it"), REMOVED]
    with TerminalGymEnv("task", server=server.url) as env:
        env.reset()
        with pytest.raises(RolltapError, match="the episode is over") as said:
            env.step("{}")
    assert (said.value.status, said.value.code) == (409, "done")


@pytest.mark.parametrize("gone", [refused(410, "expired"), refused(404, "unknown_env")])
def test_a_reset_makes_an_environment_that_is_gone_anew(server: Scripted, gone: tuple[int, dict]) -> None:
    anew = (201, {**CREATED[1], "env_id": "e2"})
    server.answers = [CREATED, BEGUN, gone, anew, BEGUN, gone]
    with TerminalGymEnv("task", server=server.url) as env:
        env.reset()
        env.reset()
        assert env.env_id == "e2"
    assert server.paths()[2:] == [
        "POST /v1/envs/e1/reset",
        "POST /v1/envs",
        "POST /v1/envs/e2/reset",
        "DELETE /v1/envs/e2",
    ]


def test_a_place_is_waited_for(server: Scripted) -> None:
    server.answers = [refused(503, "too_many"), refused(503, "too_many"), CREATED, BEGUN, REMOVED]
    with TerminalGymEnv("task", server=server.url) as env:
        env.reset()
    server.answers = [refused(503, "too_many")]
    with TerminalGymEnv("task", server=server.url, patience=0) as env, pytest.raises(RolltapError) as full:
        env.reset()
    assert full.value.code == "too_many"


def test_a_server_that_wants_a_token_is_shown_one(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLTAP_ENV_TOKEN", "of the variable")
    for token, shown in ((None, "of the variable"), ("said", "said")):
        server.answers = [CREATED, BEGUN, REMOVED]
        with TerminalGymEnv("task", server=server.url, token=token) as env:
            env.reset()
        assert server.shown == f"Bearer {shown}"


def test_nothing_is_asked_before_the_first_reset(server: Scripted) -> None:
    with TerminalGymEnv("task", server=server.url) as env, pytest.raises(RuntimeError, match="reset"):
        env.step("{}")
    with pytest.raises(TypeError, match="no such option of an environment: enviroment"):
        TerminalGymEnv("task", server=server.url, enviroment="local")
    assert server.asked == []


def test_a_server_that_is_not_there_is_told_of() -> None:
    with (
        TerminalGymEnv("task", server="http://127.0.0.1:1") as env,
        pytest.raises(ConnectionError, match="rolltap env"),
    ):
        env.reset()


def test_an_environment_of_a_server_that_ended_is_closed() -> None:
    env = TerminalGymEnv("task", server="http://127.0.0.1:1")
    env.env_id = "e1"
    env.close()
    assert env.env_id is None


def test_an_answer_that_is_no_object_is_an_error(server: Scripted) -> None:
    server.answers = [(200, [1])]
    with (
        TerminalGymEnv("task", server=server.url) as env,
        pytest.raises(RolltapError, match="environment server"),
    ):
        env.reset()


def test_a_reward_that_nobody_gave_is_none(server: Scripted) -> None:
    info = {"step": 1, "terminated": True, "reward_valid": False, "failure_cause": "VerifierTimeoutError"}
    server.answers = [
        CREATED,
        BEGUN,
        (200, {"observation": "", "reward": 0.0, "done": True, "info": info}),
        REMOVED,
    ]
    with TerminalGymEnv("task", server=server.url) as env:
        env.reset()
        with pytest.raises(UnverifiedError, match="VerifierTimeoutError"):
            checked(env.step("{}"))


def program(folder: Path, lines: str) -> Path:
    path = folder / "rolltap"
    path.write_text(f"#!{sys.executable}\n{lines}")
    path.chmod(0o755)
    return path


def test_a_server_of_ones_own_is_stopped(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    lines = f"""
import signal, sys
def stop(*_):
    open({str(stopped)!r}, "w").write(" ".join(sys.argv[1:]))
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("listening on http://127.0.0.1:7", flush=True)
signal.pause()
"""
    with serve(["-e", "local"], program=program(tmp_path, lines)) as url:
        assert url == "http://127.0.0.1:7" and not stopped.exists()
    assert stopped.read_text() == "env --listen 127.0.0.1:0 -e local"


def test_a_server_that_does_not_come_up_is_told_of(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="ended with 3"),
        serve(program=program(tmp_path, "raise SystemExit(3)")),
    ):
        pass
    slow = program(tmp_path, "import time; time.sleep(60)")
    with pytest.raises(RuntimeError, match="within 0.2 s"), serve(program=slow, timeout=0.2):
        pass
    with pytest.raises(RuntimeError, match="no executable program"), serve(program=tmp_path / "nowhere"):
        pass
