"""Tests `Proxy` with the real program, in front of `rolltap sim`."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from conftest import chat, limit
from simulated import simulator

from rolltap import Proxy
from rolltap.program import find_program
from rolltap.proxy import flags


@pytest.fixture(scope="module")
def program() -> str:
    return os.environ["ROLLTAP_TEST_PROGRAM"]


@pytest.fixture(scope="module")
def upstream(program: str) -> Iterator[str]:
    """Runs a simulator and yields its URL."""
    with simulator(program) as url:
        yield url


@pytest.fixture
def proxy(program: str, upstream: str) -> Proxy:
    return Proxy(upstream, program=program, timeout=limit(30))


def refuses(url: str) -> bool:
    """Returns whether no process listens at this address."""
    address = httpx.URL(url)
    try:
        # A request instead of a connection fails in other ways while the process ends.
        socket.create_connection((address.host, address.port), timeout=limit(10)).close()
    except ConnectionRefusedError:
        return True
    return False


def temporary(proxy: Proxy) -> Path:
    assert proxy._temporary is not None
    return Path(proxy._temporary.name)


def test_a_block_has_a_proxy_that_captures_and_leaves_nothing(proxy: Proxy) -> None:
    with proxy as entered, proxy.client() as client:
        assert entered is proxy
        folder = temporary(proxy)
        assert [path.name for path in folder.iterdir() if path.is_dir()] == ["data"]
        trial = client.open_trial("org/folder")
        assert trial.base_urls["openai"].startswith(proxy.url)
        chat(trial, [{"role": "user", "content": "What lies in the folder?"}])
        client.seal(trial.trial_id)
        (row,) = client.rollout(trial.trial_id)
        assert sum(row["trainable_mask"]) == 12
    assert refuses(proxy.admin_url) and refuses(proxy.url) and not folder.exists()


def test_async_with_is_the_same(proxy: Proxy) -> None:
    async def run() -> None:
        async with proxy, proxy.async_client() as client:
            trial = await client.open_trial("org/folder")
            await asyncio.to_thread(chat, trial, [{"role": "user", "content": "What lies in the folder?"}])
            await client.seal(trial.trial_id)
            assert len(await client.rollout(trial.trial_id)) == 1

    asyncio.run(run())
    assert refuses(proxy.admin_url)


def test_a_cancelled_task_leaves_no_proxy(upstream: str, tmp_path: Path) -> None:
    # This program never listens, so the task is waiting for its addresses when it is cancelled. The real one may listen
    # before the task waits for the first time.
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec cat\n")
    silent.chmod(0o755)
    proxy = Proxy(upstream, program=silent, timeout=limit(30))

    async def run() -> int:
        task = asyncio.create_task(proxy.__aenter__())
        while proxy._server is None:
            await asyncio.sleep(0)
        pid, folder = proxy._server.pid, temporary(proxy)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not folder.exists()
        return pid

    with pytest.raises(ProcessLookupError):
        os.kill(asyncio.run(run()), 0)


def test_an_exception_of_the_block_stops_the_proxy_and_goes_on(proxy: Proxy) -> None:
    with pytest.raises(KeyError, match="of the block"), proxy:
        raise KeyError("of the block")
    assert refuses(proxy.admin_url)


def test_captures_in_a_directory_are_there_for_the_next_proxy(
    program: str, upstream: str, tmp_path: Path
) -> None:
    proxy = Proxy(
        [upstream], program=program, data=tmp_path / "data", log=tmp_path / "log", timeout=limit(30)
    )
    with proxy, proxy.client() as client:
        trial = client.open_trial("org/folder")
        chat(trial, [{"role": "user", "content": "What lies in the folder?"}])
        client.seal(trial.trial_id)
    with proxy, proxy.client() as client:
        assert len(client.rollout(trial.trial_id)) == 1
    assert (tmp_path / "log").is_file()


def test_two_proxies_run_at_once_and_one_object_runs_once(program: str, upstream: str, proxy: Proxy) -> None:
    with proxy, Proxy(upstream, program=program, timeout=limit(30)) as other:
        assert len({proxy.url, proxy.admin_url, other.url, other.admin_url}) == 4
        assert proxy._server is not None
        assert os.getpgid(proxy._server.pid) != os.getpgid(0), "Ctrl-C in a terminal would reach the proxy"
        with pytest.raises(RuntimeError, match="another Proxy object"), proxy:
            pass
        assert not refuses(proxy.admin_url)


def test_settings_are_options_of_the_program(program: str, upstream: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-the-test\n")
    token.chmod(0o600)
    settings = {
        "model_alias": ["gpt-*=sim"],
        "generation_defaults": {"temperature": 0.5},
        "allow_media_urls": True,
    }
    with (
        Proxy(upstream, program=program, admin_token_file=token, timeout=limit(30), **settings) as proxy,
        proxy.client() as client,
    ):
        assert httpx.get(f"{proxy.admin_url}/v1/policy").status_code == 401
        chat(client.open_trial("org/folder"), [{"role": "user", "content": "Hello."}], model="gpt-5")
    assert flags({"a_b": [1, "x"], "c": None, "d": False, "e": True, "f": {"g": 0.5}}) == [
        "--a-b=1",
        "--a-b=x",
        "--e",
        '--f={"g": 0.5}',
    ]


def test_a_key_of_the_upstream_is_not_among_the_arguments(program: str, upstream: str) -> None:
    with Proxy(upstream, program=program, upstream_api_key="secret-key", timeout=limit(30)) as proxy:
        assert proxy._server is not None
        process = Path(f"/proc/{proxy._server.pid}")
        assert b"secret-key" not in (process / "cmdline").read_bytes()
        assert b"ROLLTAP_UPSTREAM_API_KEY=secret-key" in (process / "environ").read_bytes()


def test_what_the_program_refuses_is_in_the_error(program: str, upstream: str, proxy: Proxy) -> None:
    with pytest.raises(RuntimeError, match="ended with 2 before it listened:\n.*--no-such-option"):
        Proxy(upstream, program=program, timeout=limit(30), no_such_option=1).__enter__()
    with proxy:
        address = proxy.admin_url.removeprefix("http://")
        with pytest.raises(RuntimeError, match=f"(?s)ended with 2.*{address}.*in use"):
            Proxy(upstream, program=program, admin=address, timeout=limit(30)).__enter__()


def test_a_program_that_does_not_come_up_is_ended(tmp_path: Path) -> None:
    slow = tmp_path / "rolltap"
    slow.write_text(
        f"#!{sys.executable}\nimport sys, time\nprint('slow', file=sys.stderr, flush=True)\ntime.sleep(600)\n"
    )
    slow.chmod(0o755)
    proxy = Proxy("http://127.0.0.1:9", program=slow, timeout=limit(2))
    with pytest.raises(RuntimeError, match="has not started"):
        proxy.client()
    with pytest.raises(RuntimeError, match="did not listen within .* s:\nslow"), proxy:
        pass
    assert proxy._server is None and proxy._temporary is None


def test_a_proxy_that_fails_within_the_block_is_an_error(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    def kill() -> None:
        assert proxy._server is not None
        os.kill(proxy._server.pid, signal.SIGKILL)
        while proxy._server.ended() is None:
            time.sleep(0.01)

    with pytest.raises(RuntimeError, match="ended with -9"), proxy:
        kill()
    with pytest.raises(KeyError, match="of the block"), proxy:
        kill()
        raise KeyError("of the block")
    assert "ended with -9" in caplog.text


def test_the_proxy_stops_when_this_process_is_killed(program: str, upstream: str) -> None:
    lines = f"""
import os, signal
from rolltap import Proxy
with Proxy({upstream!r}, program={program!r}) as proxy:
    print(proxy.admin_url, proxy._temporary.name, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=limit(60))
    assert done.returncode == -signal.SIGKILL, done.stderr
    url, folder = done.stdout.split()
    until = time.monotonic() + limit(20)
    while not refuses(url):
        assert time.monotonic() < until, "the proxy outlived the process that started it"
        time.sleep(0.05)
    assert Path(folder).is_dir(), "no process was left to remove it"
    subprocess.run(["rm", "-r", folder], check=True)


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_program_is_found_where_pip_puts_it_and_then_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROLLTAP_PROGRAM", raising=False)
    monkeypatch.setattr(
        "sysconfig.get_path", lambda name, scheme=None: str(tmp_path / (scheme or "environment"))
    )
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(
        RuntimeError, match=f"'rolltap' in {tmp_path}/environment, .*{tmp_path}/path: .*ROLLTAP_PROGRAM"
    ):
        find_program()
    on_path = executable(tmp_path / "path/rolltap")
    assert find_program() == str(on_path)
    of_pip = executable(tmp_path / "environment/rolltap")
    assert find_program() == str(of_pip)
    named = executable(tmp_path / "elsewhere/other")
    monkeypatch.setenv("ROLLTAP_PROGRAM", str(named))
    assert find_program() == str(named)
    assert find_program(on_path) == str(on_path)
    monkeypatch.setenv("ROLLTAP_PROGRAM", str(tmp_path / "nowhere"))
    with pytest.raises(RuntimeError, match="nowhere' at this path"):
        find_program()
