"""Measures the cost of a growing conversation: directly with vLLM, by token ids, and through rolltap.

An agent reads Python source over many turns and sends its whole conversation back each time. Every session begins with
unique words, so no side finds another side's prompts in the prefix cache. The sides alternate. The output has medians,
and the ratio of each side's sum to that of `direct`:

    latency      from the first byte of a request to the last byte of its answer, summed over a session
    server CPU   of vLLM's API process (template, tokenizer, HTTP, JSON), not of its engine
    rolltap CPU  of the proxy
    kept         turns whose prompt begins with the previous prompt and answer, token for token

`direct` is plain text. `tokens` adds the ids and logprobs that training needs. `ids` is the cheapest way that vLLM
itself has: the client sends ids that it made beforehand. `faithful` and `off` go through rolltap, with capture and
durability on.
"""

from __future__ import annotations

import argparse
import http.client
import inspect
import json
import os
import socket
import statistics
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

MODEL = "long"
SETTLE_SECONDS = 0.1
HEAD = "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
TAIL = "<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


@dataclass(frozen=True)
class Load:
    """Holds the load, which is the same for every side."""

    texts: list[str]
    max_tokens: int
    stream: bool


@dataclass(frozen=True)
class Cost:
    """Holds the cost of one session. Times are in milliseconds."""

    latency: float
    server: float
    rolltap: float
    kept: int | None


@dataclass(frozen=True)
class Bench:
    vllm: str
    vllm_pid: int
    admin: str
    rolltap_pid: int


def cpu_ms(pid: int) -> float:
    """Returns the user and system time of a process and all its threads, including ended threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def fetch(url: str, body: dict[str, Any] | None = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read()


def tokenized(vllm: str, text: str) -> list[int]:
    body = {"model": MODEL, "prompt": text, "add_special_tokens": False}
    return json.loads(fetch(f"{vllm}/tokenize", body))["tokens"]


class Connection:
    """Represents one keep-alive connection, as agents' clients use it."""

    def __init__(self, base_url: str) -> None:
        url = urlsplit(base_url)
        self.path = f"{url.path}/chat/completions"
        self.http = http.client.HTTPConnection(url.hostname or "", url.port, timeout=600)

    def ask(self, body: dict[str, Any]) -> tuple[float, bytes]:
        """Returns the milliseconds of a request, and the answer."""
        data = json.dumps(body).encode()
        begun = time.perf_counter()
        self.http.request("POST", self.path, data, {"content-type": "application/json"})
        response = self.http.getresponse()
        answer = response.read()
        took = (time.perf_counter() - begun) * 1000
        if response.status != 200:
            sys.exit(f"bench/prefix.py: {response.status}: {answer[:500]!r}")
        return took, answer


def said(answer: bytes, stream: bool) -> tuple[str, list[int]]:
    """Returns the text that an agent sends back, and the token ids if they were requested."""
    if not stream:
        choice = json.loads(answer)["choices"][0]
        return choice["message"]["content"] or "", choice.get("token_ids") or []
    text, ids = "", []
    for event in answer.split(b"\n\n"):
        if event.startswith(b"data: {"):
            for choice in json.loads(event[len(b"data: ") :])["choices"]:
                text += choice["delta"].get("content") or ""
                ids += choice.get("token_ids") or []
    return text, ids


def request(load: Load, messages: list[dict[str, str]]) -> dict[str, Any]:
    # The random answers would end in the middle of a thought. Without thinking, they are text that the agent sends
    # back.
    return {
        "model": MODEL,
        "messages": messages,
        "max_tokens": load.max_tokens,
        "ignore_eos": True,
        "stream": load.stream,
        "chat_template_kwargs": {"enable_thinking": False},
    }


# The request parameters for the data that a trainer needs, which rolltap also sets.
TOKENS = {"return_token_ids": True, "logprobs": True}


def talk(base_url: str, load: Load, tokens: bool = False, ids_of: Bench | None = None) -> float:
    """Runs a whole session, with ids instead of text if `ids_of` is given. Returns the milliseconds of waiting."""
    system = f"Session {uuid.uuid4().hex}. You read source text."
    ids: list[int] = []
    tails: list[list[int]] = []
    if ids_of:
        ids = tokenized(ids_of.vllm, HEAD.format(system=system, text=load.texts[0]))
        tails = [tokenized(ids_of.vllm, TAIL.format(text=text)) for text in load.texts[1:]]
    connection = Connection(base_url)
    messages = [{"role": "system", "content": system}]
    waited = 0.0
    for turn, text in enumerate(load.texts):
        messages.append({"role": "user", "content": text})
        body = request(load, messages)
        if tokens:
            body |= TOKENS
        if ids_of:
            body |= {"kv_transfer_params": {"prompt_token_ids": ids}}
        took, answer = connection.ask(body)
        waited += took
        content, sampled = said(answer, load.stream)
        messages.append({"role": "assistant", "content": content})
        if turn < len(tails):
            ids = ids + sampled + tails[turn]
    return waited


def kept_turns(admin: str, trial: str) -> int:
    calls = [json.loads(line) for line in fetch(f"{admin}/v1/trials/{trial}/calls").splitlines()]
    kept = 0
    for before, after in zip(calls, calls[1:], strict=False):
        whole = before["prompt_token_ids"] + before["choices"][0]["token_ids"]
        kept += after["prompt_token_ids"][: len(whole)] == whole
    return kept


def session(bench: Bench, side: str, load: Load) -> Cost:
    trial = None
    base_url = f"{bench.vllm}/v1"
    if side not in ("direct", "tokens", "ids"):
        opened = json.loads(fetch(f"{bench.admin}/v1/trials", {"task_id": "bench", "history": side}))
        trial, base_url = opened["trial_id"], opened["base_urls"]["openai"]
    server, rolltap = cpu_ms(bench.vllm_pid), cpu_ms(bench.rolltap_pid)
    latency = talk(base_url, load, side in ("tokens", "ids"), bench if side == "ids" else None)
    time.sleep(SETTLE_SECONDS)  # the work after an answer counts too
    server, rolltap = cpu_ms(bench.vllm_pid) - server, cpu_ms(bench.rolltap_pid) - rolltap
    return Cost(latency, server, rolltap, trial and kept_turns(bench.admin, trial))


def compare(bench: Bench, sides: list[str], load: Load, repeats: int) -> None:
    costs: dict[str, list[Cost]] = {side: [] for side in sides}
    for repeat in range(repeats):
        for side in sides if repeat % 2 == 0 else reversed(sides):
            costs[side].append(session(bench, side, load))
    print(f"\n{len(load.texts)} turns, {load.max_tokens} tokens each, {'stream' if load.stream else 'JSON'}, {repeats} sessions a side")
    print(f"{'side':<9} {'latency ms':>11} {'ratio':>6} {'server CPU ms':>14} {'ratio':>6} {'rolltap CPU ms':>15} {'kept':>6}")
    base = costs["direct"]
    for side, of_side in costs.items():
        latency, server = [c.latency for c in of_side], [c.server for c in of_side]
        print(
            f"{side:<9} {statistics.median(latency):11.0f} {sum(latency) / sum(c.latency for c in base):6.2f}"
            f" {statistics.median(server):14.0f} {sum(server) / sum(c.server for c in base):6.2f}"
            f" {statistics.median(c.rolltap for c in of_side):15.0f} {'' if of_side[0].kept is None else min(c.kept or 0 for c in of_side):>6}",
            flush=True,
        )


@contextmanager
def proxy(program: str, vllm: str, tokenizer: str) -> Iterator[tuple[str, int]]:
    """Runs rolltap in front of vLLM. Yields the URL of its admin plane, and its pid."""
    agents, admin = (f"127.0.0.1:{port}" for port in free_ports(2))
    with TemporaryDirectory() as data:
        command = [program, "proxy", "--upstream", vllm, "--listen", agents, "--admin", admin, "--data", data]
        process = Popen([*command, *(["--tokenizer", tokenizer] if tokenizer else [])])
        try:
            wait_for(f"http://{admin}/v1/trials", process)
            yield f"http://{admin}", process.pid
        finally:
            process.terminate()
            process.wait()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def wait_for(url: str, process: Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            fetch(url)
            return
        except OSError:
            time.sleep(0.1)
    sys.exit("bench/prefix.py: rolltap ended before it answered")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True, help="URL of a vLLM with the long model")
    parser.add_argument("--vllm-pid", type=int, required=True, help="its API process")
    parser.add_argument("--rolltap", required=True, help="the program, built for release")
    parser.add_argument("--tokenizer", default="", help="the model's folder")
    parser.add_argument("--sides", default="direct,tokens,ids,faithful,off")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--characters", type=int, default=5920, help="of each turn; 20 turns make 24 000 tokens")
    parser.add_argument("--answers", default="1:6,256:2", help="answer's tokens : sessions a side, …")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    source = inspect.getsource(argparse) + inspect.getsource(inspect)
    texts = [source[at * asked.characters : (at + 1) * asked.characters] for at in range(asked.turns)]
    sides = asked.sides.split(",")
    with proxy(asked.rolltap, asked.vllm, asked.tokenizer) as (admin, pid):
        bench = Bench(asked.vllm, asked.vllm_pid, admin, pid)
        for side in sides:  # the first sessions compile the template
            session(bench, side, Load(texts, 1, stream=False))
        for pair in asked.answers.split(","):
            max_tokens, repeats = (int(number) for number in pair.split(":"))
            for stream in (False, True):
                compare(bench, sides, Load(texts, max_tokens, stream), repeats)


if __name__ == "__main__":
    main()
