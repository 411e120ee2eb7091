"""Tests groups of episodes in the cookbook's own rollout loop, and the training script with a local policy."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import tinker
from tinker_cookbook import tokenizer_utils
from tinker_cookbook.completers import StopCondition, TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl import train as cookbook
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.rollouts import do_group_rollout

from rolltap.trainers.tinker_terminal import HarborSingleTaskRLDatasetBuilder

from conftest import limit

from .conftest import ROOT, TASK, answer

MODEL = os.environ.get("ROLLTAP_TESTBED_MODEL", "")
RENDERER = "qwen3_instruct"
SCRIPT = ROOT / "python/examples/terminal_rl/train.py"


class Scripted(TokenCompleter):
    """Samples the tokens of given answers. Each new episode takes the next script."""

    def __init__(self, *scripts: list[str]) -> None:
        self.tokenizer = tokenizer_utils.get_tokenizer(MODEL)
        self.scripts = list(scripts)
        self.begun: dict[tuple[int, ...], list[str]] = {}
        self.prompts: list[list[int]] = []

    async def __call__(
        self, model_input: tinker.ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        ids = model_input.to_ints()
        self.prompts.append(ids)
        # A prompt that begins with an earlier prompt and its answer continues that episode.
        known = next((start for start in self.begun if tuple(ids[: len(start)]) == start), None)
        script = self.scripts.pop(0) if known is None else self.begun.pop(known)
        tokens = [*self.tokenizer.encode(script.pop(0), add_special_tokens=False), stop[0]]
        self.begun[tuple(ids + tokens)] = script
        return TokensWithLogprobs(tokens, [-0.5] * len(tokens))


def dataset(server: str, **fields: object) -> HarborSingleTaskRLDatasetBuilder:
    return HarborSingleTaskRLDatasetBuilder(
        task_dir=str(TASK), model_name=MODEL, renderer_name=RENDERER, server=server, num_batches=2, **fields
    )


def test_a_group_is_rolled_out_and_made_data(server: str) -> None:
    policy = Scripted(["What?", answer("world", complete=False), answer("world")], [answer("moon")])

    async def run() -> tuple:
        batches, _ = await dataset(server, group_size=2)()
        assert len(batches) == 2
        (group,) = pickle.loads(pickle.dumps(batches.get_batch(0)))
        return group.logging_tags(), await do_group_rollout(group, policy)

    tags, made = asyncio.run(run())
    assert tags == ["terminal", "hello-prebuilt"]
    assert sorted(made.get_total_rewards()) == [0.0, 1.0]
    solved, failed = sorted(made.trajectories_G, key=lambda one: -len(one.transitions))
    assert (len(solved.transitions), len(failed.transitions)) == (3, 1)
    assert solved.stop_reason == failed.stop_reason == "completed"
    first, second, last = solved.transitions
    assert first.metrics["unreadable_answer"] == 1.0 and second.metrics["unreadable_answer"] == 0.0
    assert last.reward == 1.0 and last.metrics["rewards/reward"] == 1.0
    shown = policy.tokenizer.decode(second.ob.to_ints())
    assert "Hello, world!" in shown and "could not be read" in shown
    # Each prompt begins with all earlier tokens, so the cookbook makes one datum per episode.
    data, _ = assemble_training_data([made], compute_advantages([made]))
    assert len(data) == 2


def test_a_chat_that_is_too_long_ends_its_episode_and_is_judged(server: str) -> None:
    policy = Scripted([answer("world", complete=False)])

    async def run() -> tuple:
        lengths, _ = await dataset(server, group_size=1)()
        (env,) = await (group := lengths.get_batch(0)[0]).make_envs()
        prompt, _ = await env.initial_observation()
        await group.cleanup()
        tight, _ = await dataset(server, group_size=1, max_prompt_tokens=prompt.length + 20)()
        judged = await do_group_rollout(tight.get_batch(0)[0], policy)
        tighter, _ = await dataset(server, group_size=1, max_prompt_tokens=20)()
        return judged, await do_group_rollout(tighter.get_batch(0)[0], policy)

    judged, never = asyncio.run(run())
    assert judged.get_total_rewards() == [1.0] and judged.trajectories_G[0].stop_reason == "context_overflow"
    assert never.get_total_rewards() == [0.0] and never.trajectories_G[0].stop_reason == "max_tokens"


def test_the_training_script_hands_the_task_to_the_cookbooks_own_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[cookbook.Config] = []

    async def main(config: cookbook.Config) -> None:
        begun.append(config)
        batches, _ = await config.dataset_builder()
        assert len(batches) == 25 and len(batches.get_batch(3)) == 1

    monkeypatch.setattr(cookbook, "main", main)
    flags = [
        "--task-dir",
        str(TASK),
        "--model-name",
        MODEL,
        "--renderer-name",
        RENDERER,
        "--log-path",
        str(tmp_path),
    ]
    flags += [
        "--server",
        "http://127.0.0.1:7080",
        "--learning-rate",
        "4e-5",
        "--lora-rank",
        "32",
        "--save-every",
        "10",
    ]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *flags])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    (config,) = begun
    assert config.training_loss_fn() == "importance_sampling"
    assert (config.learning_rate, config.lora_rank, config.save_every) == (4e-5, 32, 10)


def test_the_training_script_trains_a_policy_of_this_machine(server: str, tmp_path: Path) -> None:
    flags = {
        "--task-dir": TASK,
        "--env": "docker",
        "--server": server,
        "--policy": "local",
        "--model-name": MODEL,
        "--renderer-name": RENDERER,
        "--max-tokens": 128,
        "--max-turns": 2,
        "--temperature": 1.0,
        "--groups-per-batch": 1,
        "--group-size": 4,
        "--num-batches": 2,
        "--learning-rate": 1e-4,
        "--lora-rank": 32,
        "--save-every": 2,
        "--log-path": tmp_path / "log",
        "--imitate": SCRIPT.parent / "answers.jsonl",
        "--imitate-steps": 60,
    }
    command = [sys.executable, str(SCRIPT), *(str(word) for flag in flags.items() for word in flag)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit(600))
    assert done.returncode == 0, done.stdout + done.stderr
    batches = [json.loads(line) for line in (tmp_path / "log/metrics.jsonl").read_text().splitlines()]
    assert [batch["episodes"] for batch in batches] == [4.0, 4.0]
    for batch in batches:
        assert 0.0 <= batch["reward"] <= 1.0 and batch["tokens"] > 0
        # The weights that sampled are the trained weights, so their logprobs differ only by rounding.
        assert batch["largest_ratio_error"] < 1e-3
    assert (tmp_path / "log/batch_2/model.safetensors").is_file()
