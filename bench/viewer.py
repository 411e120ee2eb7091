"""Measures the pages of `rolltap view`: the bytes that are read from files, the bytes of the answer, and the time.

`just bench viewer` fills a data directory through a proxy in front of the simulator, then starts the viewer on it and
opens each page several times. The kernel counts the bytes that the viewer reads from files (`rchar` in /proc/PID/io).
"""

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

ROUNDS = 5
LONG_BRANCH = 200_000


class Server:
    """A program of rolltap that prints an address on each of its first lines."""

    def __init__(self, program: str, *arguments: str, addresses: int = 1) -> None:
        self.process = subprocess.Popen(
            [program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        lines = [self.process.stdout.readline() for _ in range(addresses)]
        self.urls = [line.split()[-1].rstrip("/") for line in lines]

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


class Connection:
    """A connection that stays open."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.path = parts.path
        self.http = http.client.HTTPConnection(parts.hostname, parts.port)

    def send(self, method: str, path: str, body: object = None, key: str | None = None) -> bytes:
        headers = {"content-type": "application/json"} if body is not None else {}
        if key:
            headers["authorization"] = f"Bearer {key}"
        text = None if body is None else json.dumps(body)
        self.http.request(method, path, text, headers)
        answer = self.http.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {content.decode()}")
        return content


def fill(program: str, data: Path, trials: int) -> None:
    """Records this many trials of two calls, in groups of eight."""
    with Server(program, "sim", "--listen", "127.0.0.1:0") as sim, Server(
        program, "proxy", "--upstream", sim.urls[0], "--data", str(data), "--sync", "off",
        "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", addresses=2,
    ) as proxy:
        agents, admin = (Connection(url) for url in proxy.urls)
        for number in range(trials):
            record(agents, admin, number)


def record(agents: Connection, admin: Connection, number: int) -> None:
    group = f"task-{number // 8}"
    opening = {"task_id": group, "group_id": group, "sample_index": number % 8, "trial_id": f"trial-{number}"}
    key = json.loads(admin.send("POST", "/v1/trials", opening))["key"]
    messages = [{"role": "user", "content": f"Solve task {number}."}]
    for _ in range(2):
        request = {"model": "sim", "messages": messages, "max_tokens": 32}
        answer = json.loads(agents.send("POST", "/v1/chat/completions", request, key))
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "Go on."}]
    admin.send("POST", f"/v1/trials/trial-{number}/seal", {})
    admin.send("PUT", f"/v1/trials/trial-{number}/reward", {"rewards": {"reward": number % 2}})


def long_branch(file: Path) -> None:
    """Writes a row with one answer of 200,000 tokens."""
    tokens, prompt = LONG_BRANCH, 1000
    sampled = tokens - prompt
    mask = [0] * prompt + [1] * sampled
    call = {
        "call_id": "call", "choice_index": 0, "parent_call_id": None, "role": "main", "model": None,
        "prompt_len": prompt, "start": prompt, "end": tokens, "finish_reason": "stop", "version": 0,
        "sampled_at": "2026-01-01T00:00:00Z", "temperature": 1.0, "top_p": None, "top_k": None,
        "constrained": False, "sampling": "{}", "messages": None, "tools": None,
    }
    row = {
        "schema_version": "rollout/1", "trial_id": "long", "group_id": None, "group_size": None,
        "sample_index": 0, "attempt": 0, "superseded": False, "task_id": "task", "environment": None,
        "branch_index": 0, "num_branches": 1, "is_last_branch": True, "branch_cause": "first_call",
        "branch_reprefilled": None, "token_ids": [number % 50_000 for number in range(tokens)],
        "sampled_mask": mask, "trainable_mask": mask, "loss_mask": mask,
        "logprobs": [0.0] * prompt + [-0.5] * sampled, "token_version": [-1] * prompt + [0] * sampled,
        "version_labels": {}, "prompt_len": prompt, "reward": 1.0, "advantage": None, "rewards": {"reward": 1.0},
        "reward_valid": True, "failure_cause": None, "reward_version": None, "suspicious": None,
        "is_truncated": False, "stop_reason": None, "status": "completed", "model": "m", "tokenizer_hash": None,
        "vocab_size": None, "logprobs_mode": "raw_logprobs", "has_media": False, "origin": None, "calls": [call],
    }
    file.write_text(json.dumps(row) + "\n")


def read_bytes(process: int) -> int:
    """Returns the bytes that the process has read from files."""
    return int(re.search(r"rchar: (\d+)", Path(f"/proc/{process}/io").read_text())[1])


def measure(viewer: Server, name: str, path: str) -> None:
    connection = Connection(viewer.urls[0])
    times, before = [], read_bytes(viewer.process.pid)
    for _ in range(ROUNDS):
        start = time.perf_counter()
        page = connection.send("GET", path)
        times.append(time.perf_counter() - start)
    disk = (read_bytes(viewer.process.pid) - before) / ROUNDS
    print(f"{name:<34} {len(page):>10,} {disk:>14,.0f} {statistics.median(times) * 1e3:>9.1f}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rolltap", required=True)
    arguments.add_argument("--trials", type=int, default=10_000)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, rows = Path(folder) / "data", Path(folder) / "long.jsonl"
        fill(given.rolltap, data, given.trials)
        long_branch(rows)
        whole = sum(file.stat().st_size for file in data.iterdir())
        start = time.perf_counter()
        with Server(given.rolltap, "view", "--port", "0", str(data), str(rows)) as viewer:
            for path in ["/jobs/data", "/"]:
                Connection(viewer.urls[0]).send("GET", path)
            opened = time.perf_counter() - start
            print(f"{given.trials:,} trials in {whole:,} bytes; the first page after {opened:.2f} s")
            print(f"{'page':<34} {'page bytes':>10} {'bytes read':>14} {'ms':>9}")
            middle = given.trials // 2
            trial = f"/jobs/data/trials/trial-{middle}"
            measure(viewer, "jobs", "/")
            measure(viewer, "job, first 200 trials", "/jobs/data")
            measure(viewer, "job, filter by reward", "/jobs/data?min=0.5")
            measure(viewer, "job, search of words", f"/jobs/data?words=task+{middle}.")
            measure(viewer, "group of 8", f"/jobs/data/groups/task-{middle // 8}")
            measure(viewer, "trial", trial)
            measure(viewer, "branch", f"{trial}/branches/0")
            size = rows.stat().st_size
            print(f"a branch of {LONG_BRANCH:,} tokens, in a file of {size:,} bytes")
            branch = f"/jobs/{rows.name}/trials/long/branches/0"
            measure(viewer, "branch, first window", branch)
            measure(viewer, "branch, a window in the middle", f"{branch}/tokens?from={LONG_BRANCH // 2}")


if __name__ == "__main__":
    os.environ.pop("ROLLTAP_TOKENIZER", None)
    main()
