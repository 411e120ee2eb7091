#!/usr/bin/env python3
"""Runs an instrumented rolltap under the loads for which a release is optimised: a proxy between agents and a simulated vLLM.

usage: profile.py PROGRAM

The program writes its profile when its processes end, to the directory of its instrumentation. The loads have the calls of
agents: streams, short whole answers, conversations of 20 turns and large requests. Their trials are rewarded and read.
"""

import concurrent.futures
import contextlib
import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

AGENTS = 16
# The numbers of calls and of conversations.
STREAMS, SHORT, CONVERSATIONS, LARGE = 640, 6400, 96, 160
WORDS = [f"{word}{number}" for number in range(40) for word in ("read", "file", "test", "line", "the", "error", "value")]


class Agent:
    """An agent with a trial and a connection of its own."""

    def __init__(self, proxy: "Proxy", number: int) -> None:
        self.proxy, self.random = proxy, random.Random(number)
        self.id = f"trial-{number}"
        self.key = json.loads(proxy.ask("/v1/trials", {"task_id": "profile", "trial_id": self.id}))["key"]
        self.connection = http.client.HTTPConnection(proxy.agents, timeout=60)

    def text(self, words: int) -> str:
        return " ".join(self.random.choices(WORDS, k=words))

    def call(self, messages: list[dict], tokens: int, *, stream: bool = False) -> bytes:
        body = {"model": "sim", "messages": messages, "max_tokens": tokens, "stream": stream, "temperature": 1.0}
        path = f"/t/{self.key}/v1/chat/completions"
        headers = {"content-type": "application/json", "authorization": "Bearer any"}
        self.connection.request("POST", path, json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"a call failed with {answer.status}: {text[:500]!r}")
        return text

    def say(self, words: int, tokens: int, *, stream: bool = False) -> None:
        self.call([{"role": "user", "content": self.text(words)}], tokens, stream=stream)

    def converse(self) -> None:
        messages = [{"role": "system", "content": self.text(800)}]
        for _ in range(20):
            messages.append({"role": "user", "content": self.text(300)})
            answer = json.loads(self.call(messages, 60))
            messages.append(answer["choices"][0]["message"])

    def work(self) -> None:
        for _ in range(STREAMS // AGENTS):
            self.say(40, 150, stream=True)
        for _ in range(SHORT // AGENTS):
            self.say(10, 16)
        for _ in range(CONVERSATIONS // AGENTS):
            self.converse()
        for _ in range(LARGE // AGENTS):
            self.say(30000, 100)
        self.proxy.ask(f"/v1/trials/{self.id}/seal", {})
        self.proxy.ask(f"/v1/trials/{self.id}/reward", {"rewards": {"reward": 1.0}}, "PUT")


class Proxy:
    """The addresses of a proxy."""

    def __init__(self, agents: str, admin: str) -> None:
        self.agents, self.admin = agents, admin

    def ask(self, path: str, body: dict | None = None, method: str | None = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"http://{self.admin}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(address: str) -> None:
    """Waits until a process accepts connections."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        host, port = address.split(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
            return
        time.sleep(0.05)
    raise SystemExit(f"nothing accepts connections at {address}")


@contextlib.contextmanager
def running(*command: str):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        # The process writes its profile when it ends by itself.
        process.send_signal(signal.SIGTERM)
        if process.wait(120) != 0:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")


def main() -> None:
    program = sys.argv[1]
    upstream, agents, admin = (f"127.0.0.1:{free_port()}" for _ in range(3))
    sim = ["sim", "--listen", upstream, "--token-delay-ms", "1", "--max-model-len", "100000"]
    with tempfile.TemporaryDirectory() as data, running(program, *sim):
        wait_for(upstream)
        planes = ["--listen", agents, "--admin", admin, "--data", data]
        with running(program, "proxy", "--upstream", f"http://{upstream}", *planes):
            wait_for(admin)
            proxy = Proxy(agents, admin)
            with concurrent.futures.ThreadPoolExecutor(AGENTS) as pool:
                list(pool.map(lambda number: Agent(proxy, number).work(), range(AGENTS)))
            proxy.ask("/v1/rollouts")


if __name__ == "__main__":
    main()
