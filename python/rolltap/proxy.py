"""Starts and stops a proxy (`rolltap proxy`) for the program that needs it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from rolltap.client import AsyncClient, Client
from rolltap.program import Server, find_program

if TYPE_CHECKING:
    from typing_extensions import Self

Paths = Union[str, "os.PathLike[str]"]

AGENT_PLANE = "agent plane listens on "
"""The text before the address of the agent plane, in a line that `rolltap proxy` prints."""

ADMIN_PLANE = "admin plane listens on "
"""The text before the address of the admin plane. `rolltap proxy` prints this line last."""

GRACE = 45.0
"""Seconds for a stopping proxy, before it is killed. The proxy itself gives calls in flight 30 s to end."""

STEP = 0.02
"""Seconds between two looks at a process that starts or stops."""


class Proxy:
    """A proxy that runs for as long as a `with` or `async with` block.

        with Proxy(upstream="http://127.0.0.1:8000") as proxy, proxy.client() as client:
            trial = client.open_trial("org/task")

    `upstream` is one vLLM server, or several replicas. `listen` and `admin` are addresses of this machine; port 0 takes
    a free port. `data` is the directory of the captures. If it is None, they are in a temporary directory, which is
    removed at the end of the block. `log` is a file to which the proxy appends its log. If it is None, the log is in
    that temporary directory too. Errors quote its last lines.

    `settings` are further options of `rolltap proxy`, by their names with underscores: `history="sampled"`,
    `model_alias=["gpt-*=qwen3"]`, `allow_media_urls=True`, `generation_defaults={"temperature": 0.6}`. A list repeats
    the option, and a dictionary becomes JSON. None and False omit the option. Its environment variable then applies.

    The program is `program`, else the value of the variable ROLLTAP_PROGRAM, else the `rolltap` of this Python's
    environment, else `rolltap` on PATH. It stops at the end of the block or of this process, however they end.

    Entering the block raises RuntimeError if there is no such program, if it ends early, or if it does not listen
    within `timeout` seconds. Leaving it raises RuntimeError if the proxy failed. If the block itself raised an
    exception, that exception goes on, and the failure of the proxy is logged.
    """

    def __init__(
        self,
        upstream: str | Sequence[str] = (),
        *,
        data: Paths | None = None,
        listen: str | Sequence[str] = "127.0.0.1:0",
        admin: str = "127.0.0.1:0",
        upstream_api_key: str | None = None,
        admin_token_file: Paths | None = None,
        log: Paths | None = None,
        program: Paths | None = None,
        timeout: float = 60.0,
        **settings: Any,
    ) -> None:
        self._settings: dict[str, Any] = {
            **settings,
            "upstream": upstream,
            "listen": listen,
            "admin": admin,
            "admin_token_file": admin_token_file,
        }
        # Other users of the machine can read the arguments of a process, but not its environment.
        self._env = {} if upstream_api_key is None else {"ROLLTAP_UPSTREAM_API_KEY": upstream_api_key}
        self._token_file = admin_token_file
        self._data = data
        self._log = log
        self._program = program
        self._timeout = timeout
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._server: Server | None = None
        self._addresses: tuple[str, str] | None = None

    @property
    def url(self) -> str:
        """The address of the agent plane, without the key of a trial. Agents use the `base_urls` of a trial."""
        return self._listening()[0]

    @property
    def admin_url(self) -> str:
        """The address of the admin plane."""
        return self._listening()[1]

    def client(self, *, timeout: float = 60.0) -> Client:
        """Returns a new client of the admin plane."""
        return Client(self.admin_url, token=self._token(), timeout=timeout)

    def async_client(self, *, timeout: float = 60.0) -> AsyncClient:
        """Returns a new client of the admin plane for asyncio."""
        return AsyncClient(self.admin_url, token=self._token(), timeout=timeout)

    def __enter__(self) -> Self:
        self._refuse_second_entry()
        try:
            for _ in self._starting():
                time.sleep(STEP)
        except BaseException:
            self._clean()
            raise
        return self

    async def __aenter__(self) -> Self:
        self._refuse_second_entry()
        try:
            for _ in self._starting():
                await asyncio.sleep(STEP)
        except BaseException:
            self._clean()
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            for _ in self._stopping():
                time.sleep(STEP)
            self._judge(error)
        finally:
            self._clean()

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            for _ in self._stopping():
                await asyncio.sleep(STEP)
            self._judge(error)
        finally:
            self._clean()

    def _refuse_second_entry(self) -> None:
        if self._server is not None:
            raise RuntimeError("this Proxy is running: make another Proxy object for another proxy")

    def _starting(self) -> Iterator[None]:
        """Starts the program, yields until it listens, and sets its addresses."""
        program = find_program(self._program)
        until = time.monotonic() + self._timeout
        self._temporary = tempfile.TemporaryDirectory(prefix="rolltap-", ignore_cleanup_errors=True)
        folder = Path(self._temporary.name)
        settings = {"data": self._data or folder / "data", **self._settings}
        command = [program, "proxy", "--until-stdin-ends", *flags(settings)]
        server = Server(command, self._env, folder / "output", Path(self._log or folder / "log"))
        self._server = server
        while (admin := server.address(ADMIN_PLANE)) is None:
            if time.monotonic() > until:
                raise RuntimeError(
                    f"`rolltap proxy` did not listen within {self._timeout:g} s:\n{server.tail()}"
                )
            yield
        agents = server.address(AGENT_PLANE)
        assert agents is not None, "the line of the agent plane comes before that of the admin plane"
        self._addresses = agents, admin

    def _stopping(self) -> Iterator[None]:
        """Asks the program to stop, and yields until it has ended or had its time."""
        server = self._running()
        until = time.monotonic() + GRACE
        server.terminate()
        while server.ended() is None and time.monotonic() < until:
            yield

    def _judge(self, error: BaseException | None) -> None:
        """Raises RuntimeError if the program failed. Logs it instead if the block has raised `error`."""
        server = self._running()
        status = server.ended()
        if status == 0:
            return
        how = f"did not stop within {GRACE:g} s, and was killed" if status is None else f"ended with {status}"
        message = f"`rolltap proxy` {how}; its log ends with:\n{server.tail()}"
        if error is None:
            raise RuntimeError(message)
        logging.getLogger(__name__).error(message)

    def _clean(self) -> None:
        """Ends the process at once if it still runs, and removes the temporary directory."""
        if self._server is not None:
            self._server.kill()
            self._server = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _listening(self) -> tuple[str, str]:
        if self._addresses is None:
            raise RuntimeError("this Proxy has not started: use it within `with Proxy(…) as proxy:`")
        return self._addresses

    def _running(self) -> Server:
        assert self._server is not None, "the block was entered"
        return self._server

    def _token(self) -> str | None:
        return None if self._token_file is None else Path(self._token_file).read_text().strip()


def flags(settings: dict[str, Any]) -> list[str]:
    """Returns the command line of these options. Omits those that are None or False."""
    made: list[str] = []
    for name, value in settings.items():
        flag = f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                made.append(flag)
            elif one is not None and one is not False:
                made.append(f"{flag}={json.dumps(one) if isinstance(one, dict) else one}")
    return made
