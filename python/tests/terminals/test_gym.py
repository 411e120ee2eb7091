"""Tests episodes in Docker containers: the clients, Gymnasium's own checks, and failures."""

from __future__ import annotations

import asyncio
import subprocess

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from rolltap import RolltapError
from rolltap.env import AsyncTerminalGymEnv, TerminalGymEnv, gymnasium_env

from .conftest import TASK, answer

NAME = f"{gymnasium_env.__name__}:{gymnasium_env.ID}"


def test_a_task_is_solved_with_keys(server: str) -> None:
    with TerminalGymEnv(TASK, server=server, environment="docker") as env:
        observation, info = env.reset()
        assert "Hello, world!" in info["instruction"] and info["instruction"] in info["prompt"]
        assert info["step"] == 0 and observation
        shown, reward, done, _ = env.step({"keystrokes": "echo $((6 * 7))\n", "duration": 0.5})
        assert "42" in shown and (reward, done) == (0.0, False)
        env.step(
            {"commands": [{"keystrokes": "echo 'Hello, world!' > /app/hello.txt"}, {"keystrokes": "Enter"}]}
        )
        over = env.finish()
        assert (over.reward, over.done, over.info["terminated"], over.info["rewards"]) == (
            1.0,
            True,
            True,
            {"reward": 1.0},
        )
        with pytest.raises(RolltapError) as again:
            env.step("{}")
        assert again.value.code == "done"
        env.reset()
        assert env.finish().reward == 0.0, "the container is a fresh one"


def test_answers_of_models_are_read_as_the_terminal_agent_reads_them(server: str) -> None:
    async def episode(word: str) -> float:
        async with AsyncTerminalGymEnv(TASK, server=server, confirm_completion=True) as env:
            await env.reset()
            unread = await env.step("I think that I am done.")
            assert unread.info["parse_error"] and not unread.done
            asked = await env.step(f"Sure:\n{answer(word)}")
            assert asked.info["warnings"] and not asked.done, "completion is to be confirmed"
            return (await env.step(answer(word))).reward

    async def both() -> list[float]:
        return await asyncio.gather(episode("world"), episode("moon"))

    assert asyncio.run(both()) == [1.0, 0.0]


def test_an_episode_is_truncated(server: str) -> None:
    env = gymnasium.make(NAME, task_dir=TASK, server=server, max_steps=2, render_mode="ansi")
    env.reset()
    quiet = env.action_space.sample()
    assert env.step(quiet)[1:4] == (0.0, False, False)
    shown, reward, terminated, truncated, info = env.step(quiet)
    assert (reward, terminated, truncated) == (0.0, False, True) and info["reward_valid"]
    assert env.render() == shown
    env.close()


def test_gymnasium_finds_nothing_wrong(server: str) -> None:
    env = gymnasium.make(NAME, task_dir=TASK, server=server)
    check_env(env.unwrapped, skip_render_check=True, skip_close_check=True)
    env.close()


def test_a_container_that_vanished_is_told_of(server: str) -> None:
    with TerminalGymEnv(TASK, server=server, environment="docker") as env:
        env.reset()
        listed = ["docker", "ps", "-q", "--no-trunc"]
        hostname = env.step({"keystrokes": "cat /proc/sys/kernel/hostname\n", "duration": 0.5}).observation
        mine = [name for name in subprocess.check_output(listed, text=True).split() if name[:12] in hostname]
        assert len(mine) == 1
        subprocess.run(["docker", "rm", "-f", *mine], check=True, capture_output=True)
        with pytest.raises(RolltapError) as gone:
            env.step({"keystrokes": "ls\n"})
        assert gone.value.code == "vanished"
        env.reset()
        assert env.finish().info["reward_valid"]
