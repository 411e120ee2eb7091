"""Implements the Python conversions of the export benchmark: `conversions.py FORMAT SIDE SOURCE TARGET`.

`pyarrow` is the minimum that Python can do: it turns the lists of a row into JSON unchanged. `cookbook` is the code
that a user of Tinker has: tinker-cookbook merges and converts the calls with their whole prompts. Neither side checks
rows, syncs its output, or handles failed, stale or forked trials.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq

from rollouts import GROUP

EPSILON = 1e-6


def rows_of(path: Path):
    for batch in pq.ParquetFile(path).iter_batches(batch_size=GROUP):
        yield from batch.to_pylist()


def to_jsonl(source: Path, target: Path) -> None:
    """Writes every column of every row."""
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
    """Writes one datum per row. All lists are shifted by one token, with 0 at tokens that are not trained."""
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
    """Writes the same data with the trainer's own code: tinker-cookbook merges the whole prompt and answer of each
    call."""
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
                        if name != "mask"  # the cookbook also removes the mask before it sends a datum
                    }
                    out.write(json.dumps({"model_input": datum.model_input.model_dump(), "loss_fn_inputs": inputs}))
                    out.write("\n")


CONVERSIONS = {
    "jsonl": {"pyarrow": to_jsonl},
    "tinker": {"pyarrow": to_tinker, "cookbook": to_tinker_by_cookbook},
}


if __name__ == "__main__":
    _, name, side, source, target = sys.argv
    CONVERSIONS[name][side](Path(source), Path(target))
