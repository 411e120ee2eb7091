"""Measures the prefix cache of a real vLLM under jobs of long conversations: `-n auto` beside fixed numbers of trials.

`just bench admission` starts a vLLM whose KV cache has 48 blocks of 128 tokens. Each trial is a conversation of six turns
that grows to about 1,100 tokens, with a pause for the agent's tools before each turn. Each trial has a task of its own, or
shares the task and its first prompt with others (`--tasks`). The figures are vLLM's own counters: prompt tokens that were
looked up in the prefix cache, and those that were found. The rest was computed. With several `--upstream`, the counters are
added.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

WORDS = "log disk user file path port node task main test word data list line time unit key map run set".split()
# The words of the output of a tool. Most have one token.
TOOL_OUTPUT = 90


def task(directory: Path, number: int) -> None:
    """Makes a task whose instruction has about 330 tokens, and whose tests pass at once."""
    chance = random.Random(number)
    files = {
        "instruction.md": " ".join(chance.choice(WORDS) for _ in range(300)),
        "task.toml": "",
        "environment/Dockerfile": "FROM x\nWORKDIR /app\n",
        "tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
    }
    for name, text in files.items():
        path = directory / f"long-{number}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def converse(turns: int, pause: float) -> None:
    """Is the agent: a conversation of this many turns, with tool output that no other trial has."""
    import os

    base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
    chance = random.Random(key)
    messages = [{"role": "user", "content": os.environ["ROLLTAP_INSTRUCTION"]}]
    for _ in range(turns):
        body = {
            "model": os.environ["OPENAI_MODEL"],
            "messages": messages,
            "max_tokens": 40,
            "temperature": 1,
            "ignore_eos": True,
        }
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        request = urllib.request.Request(f"{base}/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=600) as answer:
            message = json.load(answer)["choices"][0]["message"]
        messages.append({"role": "assistant", "content": message.get("content") or ""})
        messages.append({"role": "user", "content": " ".join(chance.choice(WORDS) for _ in range(TOOL_OUTPUT))})
        time.sleep(pause * (0.5 + chance.random()))


def counters(urls: list[str]) -> dict[str, float]:
    """Returns the sums of vLLM's counters."""
    sums: dict[str, float] = {}
    for url in urls:
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        for name in ("prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "generation_tokens"):
            found = re.findall(rf"^vllm:{name}_total{{[^}}]*}} (\S+)$", text, re.M)
            sums[name] = sums.get(name, 0.0) + sum(map(float, found))
    return sums


def agent(arguments: argparse.Namespace) -> list[str]:
    """Returns the options of the agent: conversations of equal length, or those of the terminal agent."""
    if arguments.agent == "terminal":
        answers = ["--agent-kwarg", "max_tokens=40", "--agent-kwarg", "enable_summarize=false"]
        return ["-a", "terminal", "--max-turns", str(arguments.turns), *answers]
    command = f"{sys.executable} {Path(__file__).resolve()} --converse {arguments.turns} --pause {arguments.pause}"
    return ["-a", "command", "--agent-command", command]


def measure(arguments: argparse.Namespace, at_once: str) -> dict[str, float]:
    """Runs a job with this `-n`, after the prefix caches were emptied."""
    for url in arguments.upstream:
        urllib.request.urlopen(urllib.request.Request(f"{url}/reset_prefix_cache", method="POST"), timeout=60).close()
    before, begin = counters(arguments.upstream), time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        tasks = Path(directory) / "tasks"
        for number in range(arguments.tasks):
            task(tasks, number)
        command = [arguments.rolltap, "run", "-p", str(tasks), "-k", str(arguments.trials // arguments.tasks), "-n", at_once]
        command += ["-e", "local", *agent(arguments), "--no-preflight", "--quiet"]
        command += ["--jobs-dir", str(Path(directory) / "jobs"), "--job-name", "it"]
        command += [part for url in arguments.upstream for part in ("--upstream", url)]
        command += ["--tokenizer", arguments.tokenizer] if arguments.tokenizer else []
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"the job with -n {at_once} failed:\n{done.stderr}")
        result = json.loads((Path(directory) / "jobs/it/result.json").read_text())
    completed = result["stats"]["n_completed_trials"]
    wall = time.monotonic() - begin
    after = counters(arguments.upstream)
    used = {name: after[name] - before[name] for name in after}
    return {"wall": wall, "trials": completed, **used}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rolltap")
    parser.add_argument("--upstream", action="append", default=[])
    parser.add_argument("--tokenizer")
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--pause", type=float, default=0.3)
    parser.add_argument("--at-once", default="2,4,8,16,auto")
    parser.add_argument("--agent", choices=("conversation", "terminal"), default="conversation")
    parser.add_argument("--converse", type=int)
    arguments = parser.parse_args()
    if arguments.converse:
        converse(arguments.converse, arguments.pause)
        return
    computed_by, shares = {}, {}
    print(f"{'-n':>8} {'prefix hits':>12} {'computed per trial':>19} {'preempted':>10} {'time':>8}")
    for at_once in arguments.at_once.split(","):
        seen = measure(arguments, at_once)
        queries, hits = seen["prefix_cache_queries"], seen["prefix_cache_hits"]
        share, computed = hits / max(queries, 1), (queries - hits) / seen["trials"]
        computed_by[at_once], shares[at_once] = computed, share
        print(
            f"{at_once:>8} {share:>11.1%} {computed:>19.0f} {seen['num_preemptions']:>10.0f} {seen['wall']:>6.1f} s",
            flush=True,
        )
    if "auto" in computed_by and len(computed_by) > 1:
        worst = max(computed_by, key=computed_by.__getitem__)
        print(f"auto computed {computed_by['auto'] / computed_by[worst]:.2f} of the tokens of -n {worst}")
        print(f"auto had {shares['auto'] / max(shares.values()):.2f} of the largest share of hits")


if __name__ == "__main__":
    main()
