r"""Trains a model at one Harbor task in a terminal, with tinker-cookbook.

With Tinker's service, which needs TINKER_API_KEY:

    python train.py --task-dir ../../../examples/tasks/hello-file --env docker \
        --model-name Qwen/Qwen3-30B-A3B-Instruct-2507 --renderer-name qwen3_instruct --max-tokens 4096 \
        --temperature 0.7 --groups-per-batch 1 --group-size 8 --num-batches 25 --learning-rate 4e-5 --lora-rank 32 \
        --save-every 10 --log-path runs/hello

On this machine's CPU, with any small model of transformers (--imitate teaches an untrained model some answers first):

    python train.py --policy local --model-name PATH --renderer-name qwen3_instruct --task-dir … --imitate answers.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tinker_cookbook import tokenizer_utils
from tinker_cookbook.rl import train as cookbook
from tinker_cookbook.rl.data_processing import (
    assemble_training_data,
    compute_advantages,
    remove_constant_reward_groups,
)
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import RLDataset, TrajectoryGroup

from rolltap.env import EnvOptions, serve
from rolltap.trainers.tinker_terminal import HarborSingleTaskRLDatasetBuilder

if TYPE_CHECKING:
    from local_policy import LocalPolicy


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task-dir", required=True, help="a Harbor task directory")
    parser.add_argument("--env", choices=["docker", "local"], default="docker", help="where terminals are")
    parser.add_argument("--server", help="a running `rolltap env`; one is started if there is none")
    parser.add_argument("--policy", choices=["tinker", "local"], default="tinker", help="whose model it is")
    parser.add_argument("--model-name", required=True)
    parser.add_argument(
        "--renderer-name", help="the one that the cookbook recommends for the model, unless said"
    )
    parser.add_argument("--max-tokens", type=int, default=4096, help="of one answer")
    parser.add_argument("--max-turns", type=int, default=20, help="answers of one episode")
    parser.add_argument(
        "--max-prompt-tokens", type=int, default=28_000, help="a longer chat ends its episode"
    )
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--groups-per-batch", type=int, default=1)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--num-batches", type=int, default=25)
    parser.add_argument("--learning-rate", type=float, default=4e-5)
    parser.add_argument(
        "--lora-rank", type=int, default=32, help="with Tinker; a local policy trains all weights"
    )
    parser.add_argument("--save-every", type=int, default=10, help="batches; 0 for never")
    parser.add_argument("--log-path", type=Path, required=True)
    local = parser.add_argument_group("local policy")
    local.add_argument(
        "--imitate", type=Path, help='lines of {"answer": …} that are learned before anything is sampled'
    )
    local.add_argument("--imitate-steps", type=int, default=100)
    local.add_argument("--imitate-learning-rate", type=float, default=3e-3)
    local.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


@contextlib.contextmanager
def server_of(flags: argparse.Namespace) -> Iterator[str]:
    """Yields the URL of the server in the flags, or of a new server that stops at the end."""
    if flags.server is not None:
        yield flags.server
    else:
        with serve(["-e", flags.env]) as url:
            yield url


def dataset_of(flags: argparse.Namespace, server: str) -> HarborSingleTaskRLDatasetBuilder:
    """Returns the builder of a data set that repeats the task for the batches and groups of the flags."""
    # The long lease outlasts a slow model: each call of the environment renews it.
    options: EnvOptions = {"environment": flags.env, "max_steps": flags.max_turns, "lease_seconds": 3600.0}
    return HarborSingleTaskRLDatasetBuilder(
        task_dir=flags.task_dir,
        model_name=flags.model_name,
        renderer_name=flags.renderer_name,
        groups_per_batch=flags.groups_per_batch,
        group_size=flags.group_size,
        num_batches=flags.num_batches,
        server=server,
        options=options,
        max_prompt_tokens=flags.max_prompt_tokens,
    )


async def with_tinker(flags: argparse.Namespace, dataset: HarborSingleTaskRLDatasetBuilder) -> None:
    """Trains with the cookbook's own loop."""
    config = cookbook.Config(
        learning_rate=flags.learning_rate,
        dataset_builder=dataset,
        model_name=flags.model_name,
        renderer_name=flags.renderer_name,
        recipe_name="rolltap_terminal_rl",
        max_tokens=flags.max_tokens,
        temperature=flags.temperature,
        lora_rank=flags.lora_rank,
        log_path=str(flags.log_path),
        save_every=flags.save_every,
        eval_every=0,
        loss_fn="importance_sampling",
    )
    await cookbook.main(config)


async def with_local_policy(flags: argparse.Namespace, dataset: HarborSingleTaskRLDatasetBuilder) -> None:
    """Makes the same steps with a model in this process."""
    # Imported here because it needs torch and transformers, which training with Tinker's service does not.
    from local_policy import LocalPolicy

    policy = LocalPolicy(
        flags.model_name,
        max_tokens=flags.max_tokens,
        temperature=flags.temperature,
        learning_rate=flags.learning_rate,
        seed=flags.seed,
    )
    batches, _ = await dataset()
    flags.log_path.mkdir(parents=True, exist_ok=True)
    if flags.imitate is not None:
        await imitate(policy, flags, batches)
    with (flags.log_path / "metrics.jsonl").open("w") as log:
        for index in range(len(batches)):
            start = time.monotonic()
            rollouts = (do_group_rollout(group, policy) for group in batches.get_batch(index))
            groups = list(await asyncio.gather(*rollouts))
            # A group with equal rewards has no advantage to train.
            compared = remove_constant_reward_groups(groups)
            data, _ = assemble_training_data(compared, compute_advantages(compared))
            metrics = {
                "batch": index,
                **told(groups),
                **policy.update(data),
                "seconds": time.monotonic() - start,
            }
            print(json.dumps(metrics), file=log, flush=True)
            print(json.dumps(metrics), flush=True)
            if flags.save_every and (index + 1) % flags.save_every == 0:
                policy.save(flags.log_path / f"batch_{index + 1}")


def told(groups: list[TrajectoryGroup]) -> dict[str, float]:
    """Returns the mean reward, the mean number of turns and the number of the episodes."""
    rewards = [reward for group in groups for reward in group.get_total_rewards()]
    turns = [len(trajectory.transitions) for group in groups for trajectory in group.trajectories_G]
    return {
        "reward": sum(rewards) / len(rewards),
        "turns_per_episode": sum(turns) / len(turns),
        "episodes": float(len(rewards)),
    }


async def imitate(policy: LocalPolicy, flags: argparse.Namespace, batches: RLDataset) -> None:
    """Teaches the policy the answers of the file, for the first prompts of the task."""
    tokenizer = tokenizer_utils.get_tokenizer(flags.model_name)
    answers = [json.loads(line)["answer"] for line in flags.imitate.read_text().splitlines()]
    group = batches.get_batch(0)[0]
    pairs = []
    try:
        for env in list(await group.make_envs())[:2]:
            prompt, stop = await env.initial_observation()
            encoded = [tokenizer.encode(answer, add_special_tokens=False) for answer in answers]
            pairs += [(prompt.to_ints(), [*answer, stop[0]]) for answer in encoded]
    finally:
        await group.cleanup()
    loss = policy.imitate(pairs, steps=flags.imitate_steps, learning_rate=flags.imitate_learning_rate)
    print(f"imitated {len(answers)} answers: {loss:.4f} nats per token", flush=True)


def main() -> None:
    """Trains with the policy that the flags choose."""
    flags = arguments()
    with server_of(flags) as server:
        train = with_tinker if flags.policy == "tinker" else with_local_policy
        asyncio.run(train(flags, dataset_of(flags, server)))


if __name__ == "__main__":
    main()
