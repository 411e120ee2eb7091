"""Tests the advantages that the adapters of the feed give the trials.

Every trial has the advantage that the trainer computes from the sound trials of its group alone.
"""

from __future__ import annotations

from statistics import fmean

import own_code.trl
import pytest
from job import Job, expected
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages

from rolltap.trainers.tinker import trajectory_group
from rolltap.trainers.trl import group_samples


def test_trls_worker_on_the_feed(job: Job) -> None:
    made = {}
    for group, trials in job.trials().items():
        indices = sorted(trial["sample_index"] for trial in trials if trial["rows"] and trial["reward_valid"])
        samples = group_samples(sorted(trials, key=lambda trial: trial["sample_index"]), 0)
        made |= {(group, index): one.advantage for index, one in zip(indices, samples, strict=True)}
    assert made == pytest.approx(expected(own_code.trl.advantages) | {("lone survivor", 0): 0.0}, abs=1e-5)


def test_tinkers_cookbook_on_the_feed(job: Job) -> None:
    made = {}
    for group, trials in job.trials().items():
        if group == "wholly failed":
            continue
        trials.sort(key=lambda trial: trial["sample_index"])
        of_group = trajectory_group(trials)
        advantages = compute_advantages([of_group])
        data, _ = assemble_training_data([of_group], advantages)
        sound = [trial for trial in trials if trial["reward_valid"]]
        named = zip(sound, advantages[0].tolist(), strict=True)
        made |= {(group, trial["sample_index"]): advantage for trial, advantage in named if trial["rows"]}
        assert len(data) == sum(bool(trial["rows"]) for trial in sound), "a trial without tokens has no datum"
    right = expected(lambda rewards: [reward - fmean(rewards) for reward in rewards])
    assert made == pytest.approx({("lone survivor", 0): 0.0} | right, abs=1e-5)
