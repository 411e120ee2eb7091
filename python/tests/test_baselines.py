"""Tests the advantages that each trainer's own code gives the trials of an export.

Every trial has the advantage that the same code computes from the sound trials of its group alone.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from statistics import fmean
from types import SimpleNamespace

import numpy as np
import own_code.agent_lightning
import own_code.areal
import own_code.art
import own_code.atropos
import own_code.openrlhf
import own_code.skyrl
import own_code.tinker
import own_code.trl
import own_code.verl
import pytest
import torch
from job import GROUPS, UNTRAINED, Job, clean, expected, trained
from own_code.advantages import known, of_tokens
from skyrl.train.utils.trainer_utils import validate_generator_output

from rolltap.trainers.areal import tensors
from rolltap.trainers.atropos import post
from rolltap.trainers.skyrl import generator_output


def test_each_group_is_what_its_name_says(job: Job) -> None:
    rows = job.lines("jsonl", "--untrained-groups")
    sampled = defaultdict(set)
    for row in rows:
        sampled[row["group_id"]].add(row["sample_index"])
    for group, trials in GROUPS.items():
        assert sampled[group] == {at for at, trial in enumerate(trials) if trial.samples}
    assert trained("judged without tokens") == [0, 1, 2] and trained("failed without tokens") == [0, 1]


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "gpg"])
def test_verl(job: Job, estimator: str) -> None:
    ours = own_code.verl.exported(job.lines("verl"))
    made = own_code.verl.of_trials(ours, estimator)
    if estimator == "gpg":
        # This estimator multiplies by the share of rewards other than 0 in the batch.
        scores = [output.tensors["rm_scores"].sum().item() for output in ours]
        share = sum(score != 0 for score in scores) / len(scores)
        own = {group: np.count_nonzero(clean(group)) / len(clean(group)) for group in GROUPS if clean(group)}
        made = {trial: advantage * share / own[trial[0]] for trial, advantage in made.items()}
    right = expected(lambda rewards: own_code.verl.advantages(rewards, estimator))
    assert made == pytest.approx(right, abs=1e-5)


def test_verls_estimator_of_lengths_has_no_group_without_a_length(job: Job) -> None:
    ours = own_code.verl.exported(job.lines("verl"))
    made = own_code.verl.of_trials(ours, "opo")
    assert made.keys() == expected(lambda rewards: rewards).keys()
    # A group of masked outputs alone has no mean by length.
    masked = [own_code.verl.output("failed", index, 0.5, [0]) for index in range(2)]
    with pytest.raises(AssertionError, match="no number"):
        own_code.verl.of_trials([*ours, *masked], "opo")


def test_skyrl(job: Job) -> None:
    made = generator_output(job.lines("skyrl"))
    validate_generator_output(len(made["rewards"]), made, step_wise=True)
    right = expected(own_code.skyrl.advantages)
    assert own_code.skyrl.of_trials(made) == pytest.approx(right, abs=1e-5)


def test_trl(job: Job) -> None:
    names = {name: name for name in GROUPS}
    made = {
        (names[line["task_id"].removeprefix("org/")], line["sample_index"]): line["advantage"]
        for line in job.lines("trl")
    }
    # A lone survivor has the advantage 0, which is TRL's own for one reward.
    lone = {("lone survivor", 0): own_code.trl.advantages([1.0])[0]}
    assert made == pytest.approx(expected(own_code.trl.advantages) | lone, abs=1e-5)


@pytest.mark.parametrize(
    ("estimator", "arguments"), [("group_norm", []), ("dr_grpo", []), ("dr_grpo", ["--advantage", "grpo"])]
)
def test_openrlhf(job: Job, estimator: str, arguments: list[str]) -> None:
    lines = job.lines("openrlhf", *arguments)

    def loss_mask(line: dict) -> list[int]:
        """Returns the mask of the tokens after the first."""
        places = range(1, len(line["observation_tokens"]))
        return [int(any(at in range(*span) for span in line["action_ranges"])) for at in places]

    masks = [loss_mask(line) for line in lines]
    experiences = [
        own_code.openrlhf.experience(at, line["reward"], mask)
        for at, (line, mask) in enumerate(zip(lines, masks, strict=True))
    ]
    made = own_code.openrlhf.with_advantages(experiences, estimator, group_size=4)
    advantages = known(
        ((line["group_id"], line["sample_index"]), of_tokens(one.advantages[0], torch.tensor(mask)))
        for line, one, mask in zip(lines, made, masks, strict=True)
    )
    # This argument exports the advantages of `group_norm`. Their mean, which `dr_grpo` subtracts, is 0.
    compared_by = "group_norm" if arguments else estimator
    right = expected(lambda rewards: own_code.openrlhf.advantages(rewards, compared_by))
    assert advantages == pytest.approx(right, abs=1e-5)


def test_tinker(job: Job) -> None:
    made = sorted(max(line["loss_fn_inputs"]["advantages"]["data"], key=abs) for line in job.lines("tinker"))
    # A datum has no name of its group. The lone survivor has the advantage 0.
    assert made == pytest.approx(sorted([*expected(own_code.tinker.advantages).values(), 0.0]), abs=1e-5)


def test_atropos_batches_every_group(job: Job) -> None:
    lines = job.lines("atropos")
    groups = len(GROUPS) - len(UNTRAINED)
    with own_code.atropos.with_trainer(batch_size=4 * groups) as server:
        assert post(lines, server) == groups
        batch = server.get("/batch").json()["batch"]
    assert batch is not None and [len(group["tokens"]) for group in batch] == [4] * groups
    # The statistics of the scores are those of the sound trials.
    statistics = sorted((fmean(group["scores"]), float(np.std(group["scores"], ddof=1))) for group in batch)
    sound = [clean(group) for group in GROUPS if group not in UNTRAINED]
    right = sorted((fmean(rewards), float(np.std(rewards, ddof=1))) for rewards in sound)
    assert np.allclose(statistics, right)
    for group in batch:
        untrained = [all(token == -100 for token in mask) for mask in group["masks"]]
        assert [(one or {}).get("set_advantage_to_zero", False) for one in group["overrides"]] == untrained


def test_areal(job: Job) -> None:
    def by_areal(line: dict) -> float | None:
        # A file is trained without `reward_norm`, and here without a reference model.
        values = own_code.areal.advantages(tensors(line), kl_ctl=0.0)
        # AReaL shifts the mask to the position that predicts the token.
        mask = torch.roll(torch.tensor(line["loss_mask"]), -1, dims=1)
        return of_tokens(values[0], mask[0])

    def rule(rewards: list[float]) -> list[float]:
        return own_code.areal.normalization(len(rewards))(torch.tensor(rewards)).tolist()

    made = known(((line["group_id"], line["sample_index"]), by_areal(line)) for line in job.lines("areal"))
    # AReaL's constant beside the deviation is 1e-5, and that of the export 1e-6.
    # A lone survivor has the advantage 0.
    assert made == pytest.approx(expected(rule) | {("lone survivor", 0): 0.0}, abs=1e-4)


def test_agent_lightning(job: Job) -> None:
    lines = job.lines("agent-lightning")
    made = own_code.agent_lightning.with_advantages(lines, group_size=4).batch
    # A rollout without a triplet has no row.
    with_row = [line for line in lines if line["triplets"]]
    advantages = known(
        ((line["data_id"], line["metadata"]["sample_index"]), of_tokens(row, mask))
        for line, row, mask in zip(with_row, made["advantages"], made["response_mask"], strict=True)
    )

    def rule(rewards: list[float]) -> list[float]:
        return own_code.verl.advantages(rewards, "grpo")

    right = expected(rule)
    # Agent Lightning has no place for a reward without a triplet, so the baseline of this group lacks one.
    silent = "judged without tokens"
    right |= {(silent, at): advantage for at, advantage in enumerate(rule([1.0, 1.0, 0.0]))}
    assert advantages == pytest.approx(right, abs=1e-2), "Agent Lightning stores rewards as bfloat16"


def test_art(job: Job) -> None:
    adapter = own_code.art.imported_adapter()

    def by_art(lines: list[dict]) -> dict[tuple[str, int], float]:
        results = own_code.art.tokenized(adapter.trajectory_groups(lines))
        named = [(result.trajectory.metadata, result.advantage) for result in results]
        return {(name["group_id"], name["sample_index"]): advantage for name, advantage in named}

    lines = job.lines("art")

    def rule(rewards: list[float]) -> list[float]:
        sampled = next(line for line in lines if line["choices"])
        names = [{"group_id": "g", "sample_index": at} for at in range(len(rewards))]
        copies = [
            {**sampled, "reward": reward, "metadata": {**sampled["metadata"], **name}}
            for name, reward in zip(names, rewards, strict=True)
        ]
        found = by_art(copies)
        # ART drops the trajectories of a group without variance.
        return [found.get(("g", at), 0.0) for at in range(len(rewards))]

    right = {trial: advantage for trial, advantage in expected(rule).items() if trial[0] != "no variance"}
    assert by_art(lines) == pytest.approx(right, abs=1e-5)


def by_sample_deviation(rewards: list[float]) -> list[float]:
    """Returns the advantages by the rule of slime and miles."""
    return [(reward - fmean(rewards)) / (np.std(rewards, ddof=1) + 1e-6) for reward in rewards]


@pytest.mark.parametrize("family", ["slime", "miles"])
def test_the_reward_function_of_slime_and_miles(job: Job, family: str) -> None:
    trainer = importlib.import_module(f"rolltap.trainers.{family}")
    samples = [trainer.sample(line) for line in job.lines(family)]
    args = SimpleNamespace(
        advantage_estimator="grpo", rewards_normalization=True, grpo_std_normalization=True, reward_key=None
    )
    _, compared = trainer.post_process_rewards(args, samples)
    made = known(
        ((one.metadata["group_id"], one.metadata["sample_index"]), advantage if any(one.loss_mask) else None)
        for one, advantage in zip(samples, compared, strict=True)
    )
    assert made == pytest.approx(expected(by_sample_deviation), abs=1e-5)


def test_slimes_own_rule(job: Job) -> None:
    lines = job.lines("slime")
    rewards = np.array([line["reward"] for line in lines]).reshape(-1, 4)
    # slime compares `n_samples_per_prompt` consecutive samples. checkouts/test_slime_rules.py runs its own code.
    compared = (rewards - rewards.mean(1, keepdims=True)) / (rewards.std(1, ddof=1, keepdims=True) + 1e-6)
    made = {
        (line["metadata"]["group_id"], line["metadata"]["sample_index"]): float(advantage)
        for line, advantage in zip(lines, compared.flatten(), strict=True)
        if any(line["loss_mask"])
    }
    assert made == pytest.approx(expected(by_sample_deviation), abs=1e-5)
