"""Compares `rolltap export` with the same conversion in Python.

rollouts.py makes the rollouts once. Each side reads the same Parquet file and writes the same lines in its own process,
and the sides alternate. Prints the medians of seconds and of tokens (including prompts) per second, and the highest
peak of memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
# A child process begins with the memory of its parent, so this process must stay small: it does not import pyarrow.
SIDES = {"jsonl": ["pyarrow"], "tinker": ["pyarrow", "cookbook"]}


def measured(command: list[str]) -> tuple[float, int]:
    """Runs one process. Returns its seconds and its peak of resident memory in MiB."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{' '.join(command)}\n{said.decode()}")
    return seconds, usage.ru_maxrss // 1024


def compare(arguments: argparse.Namespace, source: Path, directory: Path) -> None:
    generation = [sys.executable, HERE / "rollouts.py", source, str(arguments.rollouts), str(arguments.tokens)]
    made = subprocess.run(generation, check=True, stdout=subprocess.PIPE).stdout
    rollouts, tokens = (int(number) for number in made.split())
    print(f"{rollouts} rollouts, {tokens} tokens, {source.stat().st_size / 2**20:.1f} MiB of Parquet")
    print(f"{'format':10} {'side':8} {'seconds':>8} {'tokens/s':>12} {'peak MiB':>9}")
    for name in arguments.format or SIDES:
        target = directory / f"out.{name}"
        sides = {
            "rolltap": [arguments.rolltap, "export", str(source), "--format", name, "-o", str(target), "-q"],
        } | {
            side: [sys.executable, str(HERE / "conversions.py"), name, side, str(source), str(target)]
            for side in SIDES[name]
        }
        results = defaultdict(list)
        for _ in range(arguments.rounds):
            for side, command in sides.items():
                results[side].append(measured(command))
                target.unlink()
        medians = {side: statistics.median(seconds for seconds, _ in runs) for side, runs in results.items()}
        for side, runs in results.items():
            peak = max(memory for _, memory in runs)
            print(f"{name:10} {side:8} {medians[side]:8.2f} {tokens / medians[side]:12.0f} {peak:9}")
            if side != "rolltap":
                print(f"{name:10} rolltap is {medians[side] / medians['rolltap']:.1f} times as fast as {side}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rolltap", required=True, help="the program, built for release")
    parser.add_argument("--rollouts", type=int, default=1000, help="in whole groups")
    parser.add_argument("--tokens", type=int, default=10_000, help="of each rollout, about")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", action="append", choices=SIDES, help="repeat it for more [default: all]")
    arguments = parser.parse_args()
    with TemporaryDirectory() as directory:
        compare(arguments, Path(directory) / "rollouts.parquet", Path(directory))


if __name__ == "__main__":
    main()
