"""Measures what a submitted trial costs beside one of `rolltap run`: processor time and time per trivial trial.

`just bench service` alternates both sides on the same task: `rolltap run` of all samples, and a running `rolltap serve`
that gets the same samples in groups of eight. The agent does nothing, and the environment is a local directory, so what
remains is the orchestrator, the proxy and the queue. The processor time includes that of the tests' processes.
"""

import argparse
import json
import resource
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

GROUP = 8


def task(directory: Path) -> Path:
    """Makes a task whose tests pass at once."""
    files = {
        "instruction.md": "Do nothing.",
        "task.toml": "",
        "environment/Dockerfile": "FROM x\nWORKDIR /app\n",
        "tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
    }
    for name, text in files.items():
        path = directory / "trivial" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory / "trivial"


def children() -> float:
    """Returns the processor time of ended children and their descendants in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(program: str, work: list[str], directory: Path, trials: int) -> tuple[float, float]:
    """Returns the time and the processor time of a job of these trials."""
    before, begin = children(), time.monotonic()
    command = [program, "run", *work, "-k", str(trials), "--jobs-dir", str(directory), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin, children() - before


def ask(url: str, path: str, body: dict | None = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def serve(program: str, work: list[str], directory: Path, trials: int) -> tuple[float, float]:
    """Returns the time and the processor time of a service that samples these trials, from its start to its end."""
    before, begin = children(), time.monotonic()
    command = [program, "serve", *work, "--jobs-dir", str(directory), "--admin", "127.0.0.1:0"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = service.stdout.readline().split()[-1]
        for _ in range(trials // GROUP):
            ask(url, "/v1/submissions", {"task": "trivial", "samples": GROUP})
        while ask(url, "/v1/submissions?active=true&limit=1"):
            time.sleep(0.02)
    finally:
        service.terminate()
        service.wait()
    return time.monotonic() - begin, children() - before


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rolltap", required=True)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    figures: dict[str, list[tuple[float, float]]] = {"run": [], "serve": []}
    for _ in range(arguments.rounds):
        for name, measure in (("run", run), ("serve", serve)):
            with tempfile.TemporaryDirectory() as directory:
                place = Path(directory)
                work = ["-p", str(task(place)), "-a", "nop", "-e", "local", "-n", str(arguments.at_once)]
                figures[name].append(measure(arguments.rolltap, work, place / "jobs", arguments.trials))
    for name, rounds in figures.items():
        wall, processor = (statistics.median(values) * 1000 / arguments.trials for values in zip(*rounds))
        print(f"{name:>5}: {wall:6.2f} ms and {processor:6.2f} ms of processor time per trial")
    ratios = [
        statistics.median(ours[index] / theirs[index] for ours, theirs in zip(figures["serve"], figures["run"]))
        for index in (0, 1)
    ]
    print(f"ratio: {ratios[0]:.2f} of the time, {ratios[1]:.2f} of the processor time")


if __name__ == "__main__":
    main()
