"""Measures what a call costs in a cluster beside proxies without one: processor time of the nodes, and time per call.

`just bench cluster` starts three NATS servers, a simulated vLLM, one, two and four proxies without a cluster, and clusters of
as many nodes, each node with a shard of its own. Each round measures all of them after one another with the same calls. The less
a process has to do, the fewer records it writes at once, so each cluster is compared with as many single proxies under the same
load. `direct` sends each call to the node that holds its trial, as a balancer that hashes the path does, and `any` sends it to
each node in turn, which forwards it. The processor time of NATS is not included.

Without `--rate`, a client sends its next call when the last one is answered. A cluster answers later, so its nodes are idle for
longer, and code that runs after a pause is slower. With `--rate`, both sides get the same calls per second.
"""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import random
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

NODES = (1, 2, 4)
TRIALS = 32
# Each port is chosen once. The ports of outgoing connections begin at 32768 by default.
PORTS = iter(random.sample(range(20_000, 32_000), 1_000))
TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """Returns a port that is free and that the kernel gives to no outgoing connection, so that it stays free until a server of
    this benchmark binds it."""
    for port in PORTS:
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return port
    raise SystemExit("no port is free")


def ask(url: str, body: dict | None = None, headers: dict | None = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def until(what: str, is_so, process: subprocess.Popen | None = None) -> None:
    """Waits for a condition, and ends the benchmark if it does not come within a minute or if the process ends."""
    ends = time.monotonic() + 60
    while not is_so():
        if process and process.poll() is not None:
            raise SystemExit(f"waiting until {what}: {shlex.join(process.args)} ended with status {process.returncode}")
        if time.monotonic() > ends:
            raise SystemExit(f"waited a minute until {what}")
        time.sleep(0.05)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def start(stack: contextlib.ExitStack, command: list[str]) -> subprocess.Popen:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def nats(stack: contextlib.ExitStack, program: str, directory: Path) -> str:
    """Starts three servers, and returns their addresses."""
    ports, routes = [[free_port() for _ in range(3)] for _ in range(2)]
    monitors = [free_port() for _ in range(3)]
    others = ",".join(f"nats://127.0.0.1:{route}" for route in routes)
    for number in range(3):
        own = ["-n", f"server-{number}", "-p", str(ports[number]), "-m", str(monitors[number])]
        joined = ["--cluster_name", "bench", "--cluster", f"nats://127.0.0.1:{routes[number]}", "--routes", others]
        start(stack, [program, "-js", "-a", "127.0.0.1", "-sd", str(directory / f"nats-{number}"), *own, *joined])
    for port in monitors:
        until("NATS is healthy", lambda port=port: answers(f"http://127.0.0.1:{port}/healthz"))
    return ",".join(f"nats://127.0.0.1:{port}" for port in ports)


class Proxies:
    """The nodes of a cluster, or as many proxies without a cluster if there are no NATS servers."""

    def __init__(self, stack, rolltap: str, directory: Path, upstream: str, servers: str | None, nodes: int) -> None:
        self.nodes, self.is_cluster = nodes, servers is not None
        shared = ["--cluster", servers, "--cluster-name", f"bench-{nodes}", "--cluster-shards", str(nodes)] if servers else []
        self.agents, self.admins, self.processes = [], [], []
        for number in range(nodes):
            agents, admin = free_port(), free_port()
            place = ["--listen", f"127.0.0.1:{agents}", "--admin", f"127.0.0.1:{admin}"]
            data = ["--data", str(directory / f"data-{nodes}-{number}-{self.is_cluster}")]
            self.processes.append(start(stack, [rolltap, "proxy", "--upstream", upstream, *place, *data, *shared]))
            self.agents.append(agents)
            self.admins.append(f"http://127.0.0.1:{admin}")
        for admin, process in zip(self.admins, self.processes):
            until("a node is ready", lambda admin=admin: answers(f"{admin}/readyz"), process)
        until("all shards have a holder", lambda: answers(f"{self.admins[0]}/v1/trials"))
        opened = [ask(f"{self.admins[at % nodes]}/v1/trials", {"task_id": "bench"}) for at in range(TRIALS)]
        holders = {trial: number for number, trial in self.held()}
        places = (holders[trial["trial_id"]] if self.is_cluster else at % nodes for at, trial in enumerate(opened))
        self.calls = [(trial["key"], place) for trial, place in zip(opened, places)]

    def held(self):
        """Returns each node with the trials of its shard."""
        for number, admin in enumerate(self.admins):
            for shard in range(self.nodes if self.is_cluster else 0):
                try:
                    # A node answers a request that another one has forwarded to it for its own shard alone.
                    listed = ask(f"{admin}/v1/trials", headers={"x-rolltap-forwarded": str(shard)})
                except urllib.error.HTTPError:
                    continue
                yield from ((number, trial["trial_id"]) for trial in listed)

    def processor(self) -> float:
        """Returns the processor time of all nodes in seconds."""
        used = 0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            used += int(fields[11]) + int(fields[12])
        return used / TICKS

    def measure(self, load: "Load", is_direct: bool) -> "Figure":
        """Sends all calls, from several processes if the load has several clients."""
        with multiprocessing.get_context("fork").Pool(load.clients) as pool:
            shares = [(self.agents, self.calls, load, client, is_direct) for client in range(load.clients)]
            before, began = self.processor(), time.monotonic()
            times = sum(pool.starmap(send, shares), [])
            took = time.monotonic() - began
        assert len(times) == load.calls, "a call failed"
        processor = (self.processor() - before) * 1000 / load.calls
        return Figure(processor, statistics.median(times) * 1000, load.calls / took)


@dataclass(frozen=True)
class Load:
    """The calls of one measurement. `rate` is the number of calls per second and node, and `None` sends the next call when one is
    answered."""

    calls: int
    at_once: int
    tokens: int
    clients: int
    rate: float | None


@dataclass(frozen=True)
class Figure:
    """The result of one measurement: milliseconds of processor time per call, the median time of a call in milliseconds, and
    the calls per second."""

    processor: float
    latency: float
    throughput: float


def send(agents: list[int], held: list[tuple[str, int]], load: Load, client: int, is_direct: bool) -> list[float]:
    """Sends the calls of one client, and returns their times in seconds. An answer of more than 100 tokens is a stream. `held` has
    the key and the node of each trial. With a rate, a call is sent when it is due, or later if its connection waits for an
    answer."""
    message = {"role": "user", "content": "hello"}
    stream = load.tokens > 100
    body = json.dumps({"model": "sim", "max_tokens": load.tokens, "stream": stream, "messages": [message]})
    times: list[float] = []
    started, interval = time.monotonic(), 1 / (load.rate * len(agents)) if load.rate else 0

    def work(first: int) -> None:
        connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for port in agents]
        for number in range(first, load.calls, load.at_once):
            key, holder = held[number % TRIALS]
            node = holder if is_direct else number // load.at_once % len(agents)
            if (early := started + number * interval - time.monotonic()) > 0:
                time.sleep(early)
            began = time.monotonic()
            connections[node].request("POST", f"/t/{key}/v1/chat/completions", body, {"content-type": "application/json"})
            answer = connections[node].getresponse()
            text = answer.read()
            if answer.status != 200:
                raise SystemExit(f"{answer.status}: {text!r}")
            times.append(time.monotonic() - began)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(client, load.at_once, load.clients)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    return times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rolltap", required=True)
    parser.add_argument("--nats", required=True)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--rate", type=float)
    arguments = parser.parse_args()
    # The exit ends the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        directory, port = Path(place), free_port()
        upstream = f"http://127.0.0.1:{port}"
        start(stack, [arguments.rolltap, "sim", "--listen", f"127.0.0.1:{port}"])
        until("the simulator answers", lambda: answers(f"{upstream}/health"))
        servers = nats(stack, arguments.nats, directory)
        program = arguments.rolltap
        sides = [Proxies(stack, program, directory, upstream, at, nodes) for nodes in NODES for at in (None, servers)]
        kinds = [(side, True) for side in sides] + [(side, False) for side in sides if side.is_cluster and side.nodes > 1]
        load = Load(arguments.calls, arguments.at_once, arguments.tokens, arguments.clients, arguments.rate)
        figures: dict[tuple[int, bool, bool], list[Figure]] = {}
        # The first round warms everything up.
        for round_number in range(arguments.rounds + 1):
            for side, is_direct in kinds:
                figure = side.measure(load, is_direct)
                if round_number > 0:
                    figures.setdefault((side.nodes, side.is_cluster, is_direct), []).append(figure)
    pace = f"{load.rate:g} per second and node, at most {load.at_once}" if load.rate else f"{load.at_once}"
    print(
        f"{arguments.rounds} rounds of {load.calls} calls of {load.tokens} tokens, {pace} at once from {load.clients} "
        "processes; medians"
    )
    for (nodes, is_cluster, is_direct), rounds in sorted(figures.items(), key=lambda figure: (figure[0][0], figure[0][1])):
        alone = figures[(nodes, False, True)]
        name = f"{nodes} of a cluster, {'direct' if is_direct else 'any'}" if is_cluster else f"{nodes} alone"
        processor, latency, throughput = (
            statistics.median(getattr(figure, field) for figure in rounds) for field in ("processor", "latency", "throughput")
        )
        ratio = statistics.median(ours.processor / theirs.processor for ours, theirs in zip(rounds, alone))
        added = statistics.median(ours.latency - theirs.latency for ours, theirs in zip(rounds, alone))
        print(
            f"{name:>22}: {processor:.3f} ms of processor time per call ({ratio:.2f} of {nodes} alone), "
            f"{latency:.2f} ms per call ({added:+.2f} ms), {throughput:.0f} calls/s"
        )


if __name__ == "__main__":
    main()
