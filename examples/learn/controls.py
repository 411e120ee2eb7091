"""Runs several seeds and every control, one after the other: the policy must learn in the sound runs and in no other.

    examples/learn/learn --with controls --out runs/controls -e local

Each run has a folder in OUT and can be interrupted. Finished runs are not repeated. All runs begin with the same taught
model. OUT/controls.md is the table, and OUT/plot.png is the plot.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import report
import state as states
from corruptions import KINDS
from launch import LEARNING_RATE
from trainer import last_reward

HERE = Path(__file__).parent


class Run(NamedTuple):
    """Describes a run of the suite."""

    name: str
    flags: tuple[str, ...]
    says: str


def runs(seeds: int, learning_rate: float) -> list[Run]:
    """Returns all runs of the suite."""
    plain = [Run(f"seed-{seed}", ("--seed", str(seed)), f"seed {seed}") for seed in range(seeds)]
    slow = [
        Run(f"rate-{parts}", ("--learning-rate", str(learning_rate / parts)), f"learning rate / {parts}")
        for parts in (2, 4)
    ]
    damaged = [Run(kind, ("--control", kind), says) for kind, says in KINDS.items() if kind != "none"]
    ahead = [Run("ahead-2", ("--ahead", "2"), "asynchronous, two steps ahead")]
    return [*plain, *slow, *damaged, *ahead]


def main() -> int:
    """Runs the unfinished runs and writes the table."""
    parser = argparse.ArgumentParser(
        prog="examples/learn/learn --with controls",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="All other flags are those of a run, and go to each.",
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--taught", type=Path, help="of all runs; made in the first of them otherwise")
    parser.add_argument("--learning-rate", type=float, default=LEARNING_RATE)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="names of runs")
    flags, rest = parser.parse_known_args()
    taught = flags.taught or flags.out / "taught"
    made = runs(flags.seeds, flags.learning_rate)
    for one in made:
        if flags.only is None or one.name in flags.only:
            given = ("--out", str(flags.out / one.name), "--taught", str(taught), "--learning-rate", str(flags.learning_rate))
            done = subprocess.run([sys.executable, str(HERE), *given, *rest, *one.flags], check=False)
            if done.returncode != 0:
                return done.returncode
    write(flags.out, made)
    return 0


def write(folder: Path, made: Sequence[Run]) -> None:
    """Writes the table and the plot of the runs that have results."""
    lines = [
        "| run | reward, first | last three | turns, first | last three | logprobs apart, mean | largest | trained tokens | trials |",
        "| --- |" + " ---: |" * 8,
    ]
    tables = {}
    for one in made:
        state = states.read(folder / one.name / "state.pt")
        if state is None or not state.table:
            continue
        rows = tables[one.name] = state.table
        tokens = sum(row["trained_tokens"] for row in rows)
        mean = sum(row["logprob_diff_mean"] * row["trained_tokens"] for row in rows) / max(tokens, 1.0)
        lines.append(
            f"| {one.says} | {rows[0]['reward']:.2f} | {last_reward(rows):.2f} | {rows[0]['turns']:.1f} "
            f"| {fmean(row['turns'] for row in rows[-3:]):.1f} | {mean:.1e} "
            f"| {max(row['logprob_diff_max'] for row in rows):.1e} | {tokens:.0f} | {len(state.trained)} |"
        )
    first = [rows[0] for rows in tables.values()]
    if first:
        # All runs begin with the same policy, and the controls damage the data only after it is sampled.
        trials = sum(row["trials"] for row in first)
        reward, turns = (sum(row[name] * row["trials"] for row in first) / trials for name in ("reward", "turns"))
        lines += ["", f"The taught policy, over the first step of all runs ({trials:.0f} trials): reward {reward:.2f}, turns {turns:.1f}."]
    (folder / "controls.md").write_text("\n".join(lines) + "\n")
    report.plot(folder, tables)


if __name__ == "__main__":
    sys.exit(main())
