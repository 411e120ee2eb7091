"""What an export takes: `rolltap export` beside the same conversion in Python with pyarrow.

Rollouts are made once: groups of eight trials of one branch, calls that each add as many tokens of observation as they
sample. Each side reads the same Parquet file and writes the same lines, in a process of its own; sides take turns.
Printed are the medians of seconds and of tokens (prompts included) a second, and the greatest peak of memory.

`pyarrow` is the least that Python can do: the lists of a row are JSON as they are, put in place by hand. `cookbook` is
what a user of Tinker has: the calls with their whole prompts, merged and made into data by tinker-cookbook. Neither
checks rows or syncs its output, and they have no failed, stale or forked trials to decide about.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

# A process begins with the memory of the one that starts it, so that one must be small: whoever needs pyarrow imports it.
if len(sys.argv) > 1 and sys.argv[1] in ("--generate", "--convert"):
    import pyarrow as pa
    import pyarrow.parquet as pq

GROUP = 8
VOCABULARY = 151_936
SAMPLED_PER_CALL = 250
EPSILON = 1e-6


def fields() -> pa.Schema:
    call = pa.struct([
        pa.field("call_id", pa.string(), False),
        pa.field("choice_index", pa.int32(), False),
        pa.field("parent_call_id", pa.string()),
        pa.field("role", pa.string(), False),
        pa.field("model", pa.string()),
        pa.field("prompt_len", pa.int32(), False),
        pa.field("start", pa.int32(), False),
        pa.field("end", pa.int32(), False),
        pa.field("finish_reason", pa.string()),
        pa.field("version", pa.int32(), False),
        pa.field("sampled_at", pa.timestamp("ns", tz="UTC"), False),
        pa.field("temperature", pa.float64()),
        pa.field("top_p", pa.float64()),
        pa.field("top_k", pa.int64()),
        pa.field("constrained", pa.bool_(), False),
        pa.field("sampling", pa.string(), False),
        pa.field("messages", pa.string()),
    ])

    def tokens(value: pa.DataType) -> pa.DataType:
        return pa.list_(pa.field("element", value, False))

    return pa.schema([
        pa.field("schema_version", pa.string(), False),
        pa.field("trial_id", pa.string(), False),
        pa.field("group_id", pa.string()),
        pa.field("group_size", pa.int32()),
        pa.field("sample_index", pa.int32(), False),
        pa.field("attempt", pa.int32(), False),
        pa.field("superseded", pa.bool_(), False),
        pa.field("task_id", pa.string(), False),
        pa.field("branch_index", pa.int32(), False),
        pa.field("num_branches", pa.int32(), False),
        pa.field("is_last_branch", pa.bool_(), False),
        pa.field("branch_cause", pa.string(), False),
        pa.field("token_ids", tokens(pa.int32()), False),
        pa.field("sampled_mask", tokens(pa.uint8()), False),
        pa.field("trainable_mask", tokens(pa.uint8()), False),
        pa.field("loss_mask", tokens(pa.uint8()), False),
        pa.field("logprobs", tokens(pa.float32()), False),
        pa.field("token_version", tokens(pa.int32()), False),
        pa.field("version_labels", pa.map_(pa.string(), pa.string()), False),
        pa.field("prompt_len", pa.int32(), False),
        pa.field("reward", pa.float64()),
        pa.field("rewards", pa.map_(pa.string(), pa.float64()), False),
        pa.field("reward_valid", pa.bool_(), False),
        pa.field("failure_cause", pa.string()),
        pa.field("is_truncated", pa.bool_(), False),
        pa.field("stop_reason", pa.string()),
        pa.field("status", pa.string(), False),
        pa.field("model", pa.string(), False),
        pa.field("vocab_size", pa.int32()),
        pa.field("logprobs_mode", pa.string(), False),
        pa.field("has_media", pa.bool_(), False),
        pa.field("calls", pa.list_(pa.field("element", call, False)), False),
    ])


class Noise:
    """Numbers that look random and are the same in every run."""

    def __init__(self) -> None:
        self.state = 1

    def below(self, bound: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound


def rollout(number: int, length: int, noise: Noise) -> dict:
    """One trial. A sequence begins with observation, and its last call ends it."""
    turn = 2 * SAMPLED_PER_CALL
    mask = [int(at % turn >= SAMPLED_PER_CALL) for at in range(length)]
    if not any(mask):
        mask[-1] = 1
    starts = [at for at in range(length) if mask[at] and not (at and mask[at - 1])]
    ends = [at + 1 for at in range(length) if mask[at] and (at + 1 == length or not mask[at + 1])]
    calls = [
        {
            "call_id": f"call-{number}-{index}",
            "choice_index": 0,
            "parent_call_id": f"call-{number}-{index - 1}" if index else None,
            "role": "main",
            "model": "policy",
            "prompt_len": start,
            "start": start,
            "end": end,
            "finish_reason": "stop",
            "version": 3,
            "sampled_at": 1_700_000_000_000_000_000 + index,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "constrained": False,
            "sampling": '{"temperature":1.0}',
            "messages": None,
        }
        for index, (start, end) in enumerate(zip(starts, ends))
    ]
    if ends[-1] != length:
        del mask[ends[-1] :]
    length = len(mask)
    return {
        "schema_version": "rollout/1",
        "trial_id": f"trial-{number}",
        "group_id": f"group-{number // GROUP}",
        "group_size": GROUP,
        "sample_index": number % GROUP,
        "attempt": 0,
        "superseded": False,
        "task_id": f"org/task-{number // GROUP}",
        "branch_index": 0,
        "num_branches": 1,
        "is_last_branch": True,
        "branch_cause": "first_call",
        "token_ids": [noise.below(VOCABULARY) for _ in mask],
        "sampled_mask": mask,
        "trainable_mask": mask,
        "loss_mask": mask,
        "logprobs": [-noise.below(1 << 24) / (1 << 22) if sampled else 0.0 for sampled in mask],
        "token_version": [3 if sampled else -1 for sampled in mask],
        "version_labels": [("3", "step-3")],
        "prompt_len": starts[0],
        "reward": float(noise.below(2)),
        "rewards": [("reward", 1.0)],
        "reward_valid": True,
        "failure_cause": None,
        "is_truncated": False,
        "stop_reason": "stop",
        "status": "completed",
        "model": "policy",
        "vocab_size": VOCABULARY,
        "logprobs_mode": "processed_logprobs",
        "has_media": False,
        "calls": calls,
    }


def generate(path: Path, rollouts: int, tokens: int) -> None:
    """Says how many tokens there are."""
    noise = Noise()
    total = 0
    schema = fields()
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as file:
        for first in range(0, rollouts, GROUP):
            rows = [rollout(number, tokens, noise) for number in range(first, first + GROUP)]
            total += sum(len(row["token_ids"]) for row in rows)
            file.write_table(pa.Table.from_pylist(rows, schema=schema))
    print(total)


def rows_of(path: Path):
    for batch in pq.ParquetFile(path).iter_batches(batch_size=GROUP):
        yield from batch.to_pylist()


def to_jsonl(source: Path, target: Path) -> None:
    """Every column of every row."""
    with target.open("w") as out:
        for row in rows_of(source):
            for name in ("version_labels", "rewards"):
                row[name] = dict(row[name])
            for call in row["calls"]:
                call["sampled_at"] = call["sampled_at"].isoformat()
            out.write(json.dumps(row))
            out.write("\n")


def advantages(source: Path) -> dict[str, float]:
    table = pq.read_table(source, columns=["trial_id", "group_id", "reward"]).to_pylist()
    groups = defaultdict(list)
    for row in table:
        groups[row["group_id"]].append(row)
    weighed = {}
    for members in groups.values():
        rewards = [row["reward"] for row in members]
        mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
        for row in members:
            weighed[row["trial_id"]] = (row["reward"] - mean) / (deviation + EPSILON)
    return weighed


def to_tinker(source: Path, target: Path) -> None:
    """A datum a row: everything shifted by one, and 0 where nothing is trained."""
    weighed = advantages(source)
    columns = ["trial_id", "token_ids", "loss_mask", "logprobs"]
    with target.open("w") as out:
        for batch in pq.ParquetFile(source).iter_batches(batch_size=GROUP, columns=columns):
            for row in batch.to_pylist():
                ids, mask = row["token_ids"], row["loss_mask"][1:]
                advantage = weighed[row["trial_id"]]
                inputs = {
                    "target_tokens": ids[1:],
                    "logprobs": [value if trained else 0.0 for value, trained in zip(row["logprobs"][1:], mask)],
                    "advantages": [advantage if trained else 0.0 for trained in mask],
                }
                out.write(json.dumps({"model_input": ids[:-1], "loss_fn_inputs": inputs}))
                out.write("\n")


def to_tinker_by_cookbook(source: Path, target: Path) -> None:
    """The same by the trainer's own code: each call's whole prompt and its answer, which tinker-cookbook merges."""
    import tinker
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.data_processing import trajectory_to_data
    from tinker_cookbook.rl.types import Trajectory, Transition

    weighed = advantages(source)
    columns = ["trial_id", "token_ids", "logprobs", "calls.list.element.start", "calls.list.element.end"]
    with target.open("w") as out:
        for batch in pq.ParquetFile(source).iter_batches(batch_size=GROUP, columns=columns):
            for row in batch.to_pylist():
                ids, logprobs = row["token_ids"], row["logprobs"]
                transitions = [
                    Transition(
                        ob=tinker.ModelInput.from_ints(ids[: call["start"]]),
                        ac=TokensWithLogprobs(
                            tokens=ids[call["start"] : call["end"]],
                            maybe_logprobs=logprobs[call["start"] : call["end"]],
                        ),
                        reward=0.0,
                        episode_done=call is row["calls"][-1],
                    )
                    for call in row["calls"]
                ]
                trajectory = Trajectory(transitions=transitions, final_ob=tinker.ModelInput.empty())
                for datum in trajectory_to_data(trajectory, weighed[row["trial_id"]], include_provenance=False):
                    inputs = {
                        name: {"data": tensor.tolist(), "dtype": tensor.dtype, "shape": tensor.shape}
                        for name, tensor in datum.loss_fn_inputs.items()
                        if name != "mask"  # the cookbook takes it out as well, before it sends
                    }
                    out.write(json.dumps({"model_input": datum.model_input.model_dump(), "loss_fn_inputs": inputs}))
                    out.write("\n")


CONVERSIONS = {
    "jsonl": {"pyarrow": to_jsonl},
    "tinker": {"pyarrow": to_tinker, "cookbook": to_tinker_by_cookbook},
}


def measured(command: list[str]) -> tuple[float, int]:
    """Seconds, and the peak of resident memory in MiB, of one process."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{' '.join(command)}\n{said.decode()}")
    return seconds, usage.ru_maxrss // 1024


def compare(arguments: argparse.Namespace, source: Path, directory: Path) -> None:
    generation = [sys.executable, __file__, "--generate", source, str(arguments.rollouts), str(arguments.tokens)]
    tokens = int(subprocess.run(generation, check=True, stdout=subprocess.PIPE).stdout)
    print(f"{arguments.rollouts} rollouts, {tokens} tokens, {source.stat().st_size / 2**20:.1f} MiB of Parquet")
    print(f"{'format':10} {'side':8} {'seconds':>8} {'tokens/s':>12} {'peak MiB':>9}")
    for name in arguments.format or CONVERSIONS:
        target = directory / f"out.{name}"
        sides = {
            "rolltap": [arguments.rolltap, "export", str(source), "--format", name, "-o", str(target), "-q"],
        } | {
            side: [sys.executable, __file__, "--convert", name, side, str(source), str(target)]
            for side in CONVERSIONS[name]
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
    if sys.argv[1:2] == ["--generate"]:
        _, _, path, rollouts, tokens = sys.argv
        generate(Path(path), int(rollouts), int(tokens))
        return
    if sys.argv[1:2] == ["--convert"]:
        _, _, name, side, source, target = sys.argv
        CONVERSIONS[name][side](Path(source), Path(target))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rolltap", required=True, help="the program, built for release")
    parser.add_argument("--rollouts", type=int, default=1000, help="in whole groups")
    parser.add_argument("--tokens", type=int, default=10_000, help="of each rollout, about")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", action="append", choices=CONVERSIONS, help="repeat it for more [default: all]")
    arguments = parser.parse_args()
    arguments.rollouts -= arguments.rollouts % GROUP
    with TemporaryDirectory() as directory:
        compare(arguments, Path(directory) / "rollouts.parquet", Path(directory))


if __name__ == "__main__":
    main()
