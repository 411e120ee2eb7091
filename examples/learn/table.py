"""Computes the figures of a step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import httpx
import torch
from job import elapsed, results, seconds
from rollouts import Sample, Taken, earned, rows_of
from step import captured


def of_trials(taken: Taken) -> dict[str, float]:
    """Returns the figures of the agents' trials."""
    rewards = [reward for trial in taken.trials if (reward := earned(trial)) is not None]
    rows = rows_of(taken.trials)
    calls = {call["call_id"]: call for row in rows for call in row["calls"]}
    starts = {trial["rows"][0]["calls"][0]["call_id"] for trial in taken.trials if trial["rows"] and trial["rows"][0]["calls"]}
    later = [call for name, call in calls.items() if name not in starts]
    exact = sum(call["end"] - call["start"] for call in later if call["parent_call_id"] is not None)
    trials = max(len(taken.trials), 1)
    return {
        "trials": float(len(taken.trials)),
        "reward": fmean(rewards) if rewards else float("nan"),
        "turns": len(calls) / trials,
        "sampled_tokens": float(sum(sum(row["sampled_mask"]) for row in rows)),
        "tokens": float(sum(len(row["token_ids"]) for row in rows)),
        "branches": len(rows) / trials,
        "exact_prefix": exact / max(sum(call["end"] - call["start"] for call in later), 1),
    }


def of_samples(samples: Sequence[Sample], version: int) -> dict[str, float]:
    """Returns the number of trained tokens and their age in versions."""
    ages = [version - one for sample in samples for one, trained in zip(sample.versions, sample.mask) if trained]
    return {
        "trained_tokens": float(len(ages)),
        "staleness_mean": fmean(ages) if ages else 0.0,
        "staleness_max": float(max(ages, default=0)),
    }


def of_logprobs(
    samples: Sequence[Sample],
    recomputed: Sequence[torch.Tensor],
    now: Sequence[torch.Tensor],
    start: Sequence[torch.Tensor],
) -> dict[str, float]:
    """Returns the distance of captured from recomputed logprobs, and the divergence from the policy at the start.

    The logprobs are recomputed with the weights that sampled the tokens. The divergence is Schulman's estimator `exp(d)
    - 1 - d` over the sampled tokens, where d is the logprob at the start less the current one.
    """
    if not samples:
        return {"logprob_diff_mean": 0.0, "logprob_diff_max": 0.0, "kl_start": 0.0, "entropy": 0.0}
    known = torch.cat([captured(one) for one in samples])
    apart = (torch.cat(list(recomputed)) - known).abs()
    present = torch.cat(list(now))
    distance = torch.cat(list(start)) - present
    return {
        "logprob_diff_mean": float(apart.mean()),
        "logprob_diff_max": float(apart.max()),
        "kl_start": float((distance.exp() - 1 - distance).mean()),
        "entropy": float(-present.mean()),
    }


def of_time(admin: str, folder: Path, taken: Taken) -> dict[str, float]:
    """Returns the summed seconds of all trials of a step, which run concurrently."""
    ended = results(folder, taken.trials)
    calls = sum(_calling(admin, trial["trial_id"]) for trial in taken.trials)
    return {
        "vllm_s": calls,
        "agent_s": sum(seconds(one, "agent_execution") for one in ended) - calls,
        "verifier_s": sum(seconds(one, "verifier") for one in ended),
        "environment_s": sum(seconds(one, "environment_setup") for one in ended),
    }


def _calling(admin: str, trial: str) -> float:
    try:
        answer = httpx.get(f"{admin}/v1/trials/{trial}/calls", timeout=60.0, trust_env=False).raise_for_status()
    except httpx.HTTPError:
        # The figures of time are not essential, so the run continues without them.
        return 0.0
    calls = [line for line in map(json.loads, answer.text.splitlines()) if line.get("ended_at")]
    return sum(elapsed(call["started_at"], call["ended_at"]) for call in calls)
