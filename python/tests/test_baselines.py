"""Tests that each trainer's own code gives every trial the advantage that it computes from the sound trials alone."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections import defaultdict
from statistics import fmean
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from job import GROUPS, UNTRAINED, Job, clean, expected, trained
from torch.nn.utils.rnn import pad_sequence

Advantages = dict[tuple[str, int], float]


def of_tokens(values: torch.Tensor, mask: torch.Tensor) -> float | None:
    """Returns the advantage of the tokens in a loss, which all have the same. None if no token is in it."""
    kept = values[mask.bool()]
    assert torch.isfinite(values).all(), "an advantage is no number"
    assert not len(kept) or torch.allclose(kept, kept[0]), kept
    return kept[0].item() if len(kept) else None


def known(pairs) -> Advantages:
    return {key: advantage for key, advantage in pairs if advantage is not None}


def by_verl(trials: list[tuple[str, int, dict]], estimator: str) -> Advantages:
    """Returns the advantages of trials with tensors of verl: `rm_scores` and `response_mask`."""
    from verl import DataProto
    from verl.trainer.ppo.core_algos import AdvantageEstimator
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories as compute

    columns = {
        name: pad_sequence([tensors[theirs] for *_, tensors in trials], batch_first=True)
        for name, theirs in [("token_level_rewards", "rm_scores"), ("response_mask", "response_mask")]
    }
    data = DataProto.from_dict(columns, {"uid": np.array([group for group, *_ in trials], dtype=object)})
    made = compute(data, [f"{group}_{index}_0" for group, index, _ in trials], AdvantageEstimator(estimator)).batch
    values = zip(trials, made["advantages"], made["response_mask"], strict=True)
    return known(((group, index), of_tokens(row, mask)) for (group, index, _), row, mask in values)


def tensors(score: float, mask: list[int]) -> dict[str, torch.Tensor]:
    return {"rm_scores": torch.tensor([0.0] * (len(mask) - 1) + [score]), "response_mask": torch.tensor(mask)}


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "gpg"])
def test_verl(job: Job, estimator: str) -> None:
    from rolltap.trainers.verl import outputs

    lines = job.lines("verl")
    ours = [
        (line["uid"], line["session_id"], output.as_dict()) for line in lines for output in outputs(line)
    ]

    def rule(rewards: list[float]) -> list[float]:
        made = by_verl([("g", at, tensors(reward, [1])) for at, reward in enumerate(rewards)], estimator)
        return [made["g", at] for at in range(len(rewards))]

    made = by_verl(ours, estimator)
    if estimator == "gpg":
        # This estimator multiplies by the share of rewards other than 0 in the batch.
        scores = [tensors["rm_scores"].sum().item() for *_, tensors in ours]
        share = sum(score != 0 for score in scores) / len(scores)
        own = {group: np.count_nonzero(clean(group)) / len(clean(group)) for group in GROUPS if clean(group)}
        made = {key: advantage * share / own[key[0]] for key, advantage in made.items()}
    assert made == pytest.approx(expected(rule), abs=1e-5)


def test_verls_estimator_of_lengths_has_no_group_without_a_length(job: Job) -> None:
    from rolltap.trainers.verl import outputs

    ours = [
        (line["uid"], line["session_id"], output.as_dict())
        for line in job.lines("verl")
        for output in outputs(line)
    ]
    made = by_verl(ours, "opo")
    assert made.keys() == expected(lambda rewards: rewards).keys()
    # A group of masked outputs alone has no mean by length.
    masked = [("failed", index, tensors(0.5, [0])) for index in range(2)]
    with pytest.raises(AssertionError, match="no number"):
        by_verl([*ours, *masked], "opo")


def by_skyrl(made) -> Advantages:
    """Returns the advantages of step-wise generator output, by SkyRL's own trainer without engines and models."""
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.trainer import RayPPOTrainer

    uids = [name.instance_id for name in made["trajectory_ids"]]
    trainer = object.__new__(RayPPOTrainer)
    trainer.cfg = SkyRLTrainConfig()
    trainer.cfg.generator.step_wise_trajectories = True
    trainer.cfg.generator.n_samples_per_prompt = 4
    trainer.cfg.trainer.train_batch_size = trainer.cfg.trainer.policy_mini_batch_size = len(set(uids))
    trainer.cfg.trainer.critic.model.path = None
    trainer.all_metrics = {}
    trainer.tokenizer = SimpleNamespace(pad_token_id=0)
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    batch = trainer.convert_to_training_input(*trainer.postprocess_generator_output(made, uids))
    batch["values"] = None
    batch = trainer.compute_advantages_and_returns(batch)
    rows = zip(made["trajectory_ids"], batch["advantages"], batch["loss_mask"], strict=True)
    return known(((name.instance_id, name.repetition_id), of_tokens(row, mask)) for name, row, mask in rows)


def trajectories(rewards: list[float]) -> dict:
    from skyrl.train.generators.base import TrajectoryID

    count = len(rewards)
    return {
        "prompt_token_ids": [[1]] * count,
        "response_ids": [[2, 3]] * count,
        "rewards": list(rewards),
        "loss_masks": [[1, 1]] * count,
        "stop_reasons": ["stop"] * count,
        "rollout_logprobs": [[-1.0, -1.0]] * count,
        "trajectory_ids": [TrajectoryID("g", at) for at in range(count)],
        "is_last_step": [True] * count,
        "rollout_metrics": None,
    }


def test_skyrl(job: Job) -> None:
    from skyrl.train.utils.trainer_utils import validate_generator_output

    from rolltap.trainers.skyrl import generator_output

    made = generator_output(job.lines("skyrl"))
    validate_generator_output(len(made["rewards"]), made, step_wise=True)

    def rule(rewards: list[float]) -> list[float]:
        advantages = by_skyrl(trajectories(rewards))
        return [advantages["g", at] for at in range(len(rewards))]

    assert by_skyrl(made) == pytest.approx(expected(rule), abs=1e-5)


def by_trl(rewards: list[float]) -> list[float]:
    """Returns the advantages that TRL's own asynchronous worker gives these rewards."""
    from accelerate import PartialState
    from trl.experimental.async_grpo.async_rollout_worker import _AsyncRolloutLoop

    count = len(rewards)
    sequence = SimpleNamespace(input_ids=[1], completion_mask=[1], old_log_probs=[0.0])
    group = SimpleNamespace(
        completions=[[]] * count,
        prompts=[[]] * count,
        completions_ids=[[1]] * count,
        completions_sequences=[[sequence]] * count,
        reward_kwargs={},
        env_rewards=[],
        rollout_rewards=[],
        tool_call_counts=[0] * count,
        tool_failure_counts=[0] * count,
        model_version=0,
        group_id=0,
    )
    worker = SimpleNamespace(
        reward_funcs=[lambda **_: rewards],
        reward_func_names=["reward"],
        _env_reward_types=[],
        _provides_rollout_reward=False,
    )
    PartialState(cpu=True)  # TRL's logger requires it.
    samples = asyncio.run(_AsyncRolloutLoop._score_group(worker, group))
    return [sample.advantage for sample in samples]


def test_trl(job: Job) -> None:
    names = {name: name for name in GROUPS}
    lines = job.lines("trl")
    made = {(names[line["task_id"].removeprefix("org/")], line["sample_index"]): line["advantage"] for line in lines}
    # A lone survivor has the advantage 0, which is TRL's own for one reward.
    lone = {("lone survivor", 0): by_trl([1.0])[0]}
    assert made == pytest.approx(expected(by_trl) | lone, abs=1e-5)


def openrlhf(monkeypatch: pytest.MonkeyPatch, estimator: str, size: int):
    """Returns OpenRLHF's own computation for groups of this size, as a function of experiences."""
    # The module imports an engine, CUDA kernels and workers for what no test calls.
    unused = {
        "vllm": ["SamplingParams"],
        "vllm.inputs": ["TokensPrompt"],
        "vllm.utils": ["random_uuid"],
        "deepspeed": [],
        "flash_attn": [],
        "flash_attn.bert_padding": ["index_first_axis", "pad_input", "rearrange", "unpad_input"],
        "flash_attn.utils": [],
        "flash_attn.utils.distributed": ["all_gather"],
        "openrlhf.models.actor": ["Actor"],
        "openrlhf.trainer.ray": [],
        "openrlhf.trainer.ray.launcher": ["RayActorGroup"],
    }
    for name, members in unused.items():
        module = ModuleType(name)
        for member in members:
            setattr(module, member, object)
        monkeypatch.setitem(sys.modules, name, module)
    maker = importlib.import_module("openrlhf.trainer.ppo_utils.experience_maker").RemoteExperienceMaker
    args = SimpleNamespace(
        algo=SimpleNamespace(advantage=SimpleNamespace(estimator=estimator, gamma=1.0, lambd=1.0, no_std_norm=True)),
        rollout=SimpleNamespace(n_samples_per_prompt=size),
        reward=SimpleNamespace(clip_range=(-10, 10), overlong_buffer_len=None, stop_properly_penalty_coef=None),
    )
    made = object.__new__(maker)
    made.strategy = SimpleNamespace(args=args)
    made.args, made.advantage_estimator, made.kl_ctl = args, estimator, SimpleNamespace(value=0.0)
    return made.compute_advantages_and_returns


def experience(index: int, reward: float, mask: list[int]):
    from openrlhf.trainer.ppo_utils.experience import Experience

    actions = torch.tensor([mask])
    return Experience(
        index=[index],
        rewards=torch.tensor([reward]),
        action_mask=actions,
        kl=torch.zeros(actions.shape),
        response_length=actions.sum(-1),
        truncated=torch.tensor([False]),
        info={},
    )


@pytest.mark.parametrize(
    ("estimator", "arguments"), [("group_norm", []), ("dr_grpo", []), ("dr_grpo", ["--advantage", "grpo"])]
)
def test_openrlhf(job: Job, monkeypatch: pytest.MonkeyPatch, estimator: str, arguments: list[str]) -> None:
    lines = job.lines("openrlhf", *arguments)
    masks = [[int(any(at in range(*span) for span in line["action_ranges"])) for at in range(1, len(line["observation_tokens"]))] for line in lines]
    made = openrlhf(monkeypatch, estimator, 4)(
        [experience(at, line["reward"], mask) for at, (line, mask) in enumerate(zip(lines, masks))]
    )
    advantages = known(
        ((line["group_id"], line["sample_index"]), of_tokens(one.advantages[0], torch.tensor(mask)))
        for line, one, mask in zip(lines, made, masks, strict=True)
    )

    def rule(rewards: list[float]) -> list[float]:
        name = "group_norm" if arguments else estimator
        experiences = [experience(at, reward, [1]) for at, reward in enumerate(rewards)]
        ours = openrlhf(monkeypatch, name, len(rewards))(experiences)
        return [one.advantages.item() for one in ours]

    assert advantages == pytest.approx(expected(rule), abs=1e-5)


def test_tinker(job: Job) -> None:
    import tinker
    from tinker_cookbook.rl.data_processing import compute_advantages
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup

    def rule(rewards: list[float]) -> list[float]:
        nothing = Trajectory(transitions=[], final_ob=tinker.ModelInput.empty())
        group = TrajectoryGroup([nothing] * len(rewards), rewards, [{}] * len(rewards))
        return compute_advantages([group])[0].tolist()

    made = sorted(max(line["loss_fn_inputs"]["advantages"]["data"], key=abs) for line in job.lines("tinker"))
    # A datum has no name of its group. The lone survivor has the advantage 0.
    assert made == pytest.approx(sorted([*expected(rule).values(), 0.0]), abs=1e-5)


def test_atropos_batches_every_group(job: Job) -> None:
    from atroposlib.api.server import app
    from fastapi.testclient import TestClient

    from rolltap.trainers.atropos import post

    lines = job.lines("atropos")
    groups = len(GROUPS) - len(UNTRAINED)
    trainer = {
        "wandb_group": "g",
        "wandb_project": "p",
        "batch_size": 4 * groups,
        "max_token_len": 4096,
        "checkpoint_dir": "",
        "save_checkpoint_interval": 1,
        "starting_step": 0,
        "num_steps": 1,
    }
    with TestClient(app) as server:
        server.get("/reset_data")
        server.post("/register", json=trainer).raise_for_status()
        server.get("/batch")
        assert post(lines, server) == groups
        batch = server.get("/batch").json()["batch"]
        server.get("/reset_data")
    assert batch is not None and [len(group["tokens"]) for group in batch] == [4] * groups
    # The statistics of the scores are those of the sound trials.
    statistics = sorted((fmean(group["scores"]), float(np.std(group["scores"], ddof=1))) for group in batch)
    sound = [clean(group) for group in GROUPS if group not in UNTRAINED]
    assert np.allclose(statistics, sorted((fmean(rewards), float(np.std(rewards, ddof=1))) for rewards in sound))
    for group in batch:
        untrained = [all(token == -100 for token in mask) for mask in group["masks"]]
        assert [(one or {}).get("set_advantage_to_zero", False) for one in group["overrides"]] == untrained


def test_each_group_is_what_its_name_says(job: Job) -> None:
    rows = job.lines("jsonl", "--untrained-groups")
    sampled = defaultdict(set)
    for row in rows:
        sampled[row["group_id"]].add(row["sample_index"])
    for group, trials in GROUPS.items():
        assert sampled[group] == {at for at, trial in enumerate(trials) if trial.samples}
    assert trained("judged without tokens") == [0, 1, 2] and trained("failed without tokens") == [0, 1]


def test_areal(job: Job) -> None:
    from test_areal_rules import advantages, normalization

    from rolltap.trainers.areal import tensors

    def by_areal(line: dict) -> float | None:
        # A file is trained without `reward_norm`, and here without a reference model.
        values = advantages(tensors(line), kl_ctl=0.0)
        # AReaL shifts the mask to the position that predicts the token.
        mask = torch.roll(torch.tensor(line["loss_mask"]), -1, dims=1)
        return of_tokens(values[0], mask[0])

    def rule(rewards: list[float]) -> list[float]:
        return normalization(len(rewards))(torch.tensor(rewards)).tolist()

    made = known(((line["group_id"], line["sample_index"]), by_areal(line)) for line in job.lines("areal"))
    # AReaL's constant beside the deviation is 1e-5, and that of the export 1e-6. A lone survivor has the advantage 0.
    assert made == pytest.approx(expected(rule) | {("lone survivor", 0): 0.0}, abs=1e-4)


def test_agent_lightning(job: Job) -> None:
    from agentlightning.verl.rollout_level_advantage import compute_rollout_level_advantage
    from test_agent_lightning import adapter
    from verl.trainer.ppo.core_algos import AdvantageEstimator

    from rolltap.trainers.agent_lightning import completed_rollout

    lines = job.lines("agent-lightning")
    rollouts = [completed_rollout(line) for line in lines]
    batch, _ = adapter("trajectory").get_train_data_batch(rollouts)
    batch.batch["token_level_rewards"] = batch.batch["token_level_scores"].float()
    options = {"adv_estimator": AdvantageEstimator.GRPO, "gamma": 1.0, "lam": 1.0, "num_repeat": 4}
    made, _ = compute_rollout_level_advantage(batch, **options)
    # A rollout without a triplet has no row.
    rows = zip([line for line in lines if line["triplets"]], made.batch["advantages"], made.batch["response_mask"], strict=True)
    advantages = known(
        ((line["data_id"], line["metadata"]["sample_index"]), of_tokens(row, mask)) for line, row, mask in rows
    )

    def rule(rewards: list[float]) -> list[float]:
        found = by_verl([("g", at, tensors(reward, [1])) for at, reward in enumerate(rewards)], "grpo")
        return [found["g", at] for at in range(len(rewards))]

    right = expected(rule)
    # Agent Lightning has no place for a reward without a triplet, so this group lacks one reward in its baseline.
    silent = "judged without tokens"
    right |= {(silent, at): advantage for at, advantage in enumerate(rule([1.0, 1.0, 0.0]))}
    assert advantages == pytest.approx(right, abs=1e-2), "Agent Lightning stores rewards as bfloat16"


def test_art(job: Job) -> None:
    sys.modules.setdefault("polars", ModuleType("polars"))
    from test_art import tokenized

    adapter = importlib.import_module("rolltap.trainers.art")
    lines = job.lines("art")

    def rule(rewards: list[float]) -> list[float]:
        sampled = next(line for line in lines if line["choices"])
        metadata = [{**sampled["metadata"], "group_id": "g", "sample_index": at} for at in range(len(rewards))]
        copies = [{**sampled, "reward": reward, "metadata": one} for reward, one in zip(rewards, metadata)]
        found = {one.trajectory.metadata["sample_index"]: one.advantage for one in tokenized(adapter.trajectory_groups(copies))}
        # ART drops the trajectories of a group without variance.
        return [found.get(at, 0.0) for at in range(len(rewards))]

    made = {
        (one.trajectory.metadata["group_id"], one.trajectory.metadata["sample_index"]): one.advantage
        for one in tokenized(adapter.trajectory_groups(lines))
    }
    right = {key: advantage for key, advantage in expected(rule).items() if key[0] != "no variance"}
    assert made == pytest.approx(right, abs=1e-5)


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

    def rule(rewards: list[float]) -> list[float]:
        deviation = np.std(rewards, ddof=1)
        return [(reward - fmean(rewards)) / (deviation + 1e-6) for reward in rewards]

    assert made == pytest.approx(expected(rule), abs=1e-5)


def test_slimes_own_rule(job: Job) -> None:
    lines = job.lines("slime")
    rewards = np.array([line["reward"] for line in lines]).reshape(-1, 4)
    # slime compares each `n_samples_per_prompt` consecutive samples; checkouts/test_slime_rules.py runs its own code.
    compared = (rewards - rewards.mean(1, keepdims=True)) / (rewards.std(1, ddof=1, keepdims=True) + 1e-6)
    made = known(
        ((line["metadata"]["group_id"], line["metadata"]["sample_index"]), float(advantage) if any(line["loss_mask"]) else None)
        for line, advantage in zip(lines, compared.flatten(), strict=True)
    )

    def rule(rewards: list[float]) -> list[float]:
        return [(reward - fmean(rewards)) / (np.std(rewards, ddof=1) + 1e-6) for reward in rewards]

    assert made == pytest.approx(expected(rule), abs=1e-5)


def test_trls_worker_on_the_feed(job: Job) -> None:
    from rolltap.trainers.trl import group_samples

    made = {}
    for group, trials in job.trials().items():
        indices = sorted(trial["sample_index"] for trial in trials if trial["rows"] and trial["reward_valid"])
        samples = group_samples(sorted(trials, key=lambda trial: trial["sample_index"]), 0)
        made |= {(group, index): one.advantage for index, one in zip(indices, samples, strict=True)}
    assert made == pytest.approx(expected(by_trl) | {("lone survivor", 0): 0.0}, abs=1e-5)


def test_tinkers_cookbook_on_the_feed(job: Job) -> None:
    from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages

    from rolltap.trainers.tinker import trajectory_group

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
    rule = {("lone survivor", 0): 0.0} | expected(lambda rewards: [reward - fmean(rewards) for reward in rewards])
    assert made == pytest.approx(rule, abs=1e-5)
