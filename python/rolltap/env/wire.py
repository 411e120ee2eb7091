"""What is said to an environment server and what it answers: the same for a program that waits and for asyncio."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict, Union
from urllib.parse import quote

import httpx

from rolltap.errors import RolltapError, raise_for

DEFAULT_SERVER = "http://127.0.0.1:7080"
"""Where `rolltap env` listens unless it was told otherwise."""


class GitTask(TypedDict, total=False):
    """A task of a repository; the server fetches it once."""

    git_url: str
    git_commit_id: str
    path: str
    """Of the task's directory, inside the repository."""


Task = Union[str, "os.PathLike[str]", GitTask]
"""A task directory on the server's machine, or a task of a repository."""


class EnvOptions(TypedDict, total=False):
    """How an environment is made. What is left out is the server's default."""

    environment: Literal["docker", "local"]
    """A container each, or a temporary directory on the server's machine, which is no sandbox."""
    terminal: Literal["screen", "tmux"]
    """The server's own screen, which needs nothing in the image, or tmux, which a human can look into."""
    width: int
    height: int
    lease_seconds: float
    """The server removes an environment that nobody has called for so long."""
    max_steps: int
    """The episode is truncated after these."""
    format: Literal["json", "xml"]
    """Of models' answers."""
    confirm_completion: bool
    """A model has to say twice that the task is complete, as the terminal agent lets it."""


class Command(TypedDict, total=False):
    """Keys that are typed."""

    keystrokes: str
    """Typed as they stand; a string that is the name of a key (`C-c`, `Enter`) presses that key."""
    duration: float
    """Seconds until the next keys, or until the terminal is looked at."""


class Commands(TypedDict, total=False):
    """Several of these, one after the other."""

    commands: Sequence[Command]
    task_complete: bool


Action = Union[str, Command, Commands]
"""A model's answer as it came, which the server reads as the terminal agent does, or keys."""

FINISH: Commands = {"commands": [], "task_complete": True}
"""The work is to be judged as it is."""


class ResetInfo(TypedDict, total=False):
    """What comes with the first observation."""

    instruction: str
    """The task's own words."""
    task_id: str
    step: int
    prompt: str
    """The terminal agent's first message to a model: the rules of its answers, the task, and the terminal."""


class StepInfo(TypedDict, total=False):
    """What comes with each further observation."""

    step: int
    warnings: list[str]
    """What was odd about the action, in the words that a model is told."""
    parse_error: str
    """Why a model's answer could not be read; nothing was typed."""
    terminated: bool
    truncated: bool
    rewards: dict[str, float]
    """All that the verifier gave, once the episode is over."""
    reward_valid: bool
    """False where the reward does not measure what was done: the verifier failed."""
    failure_cause: str
    """The name of what went wrong with the verifier."""
    failure: str
    terminal_closed: bool
    """The shell ended, and with it the episode."""


class Step(NamedTuple):
    """What came of an action."""

    observation: str
    """What the terminal shows, in the words of the terminal agent to a model: with what was odd about the answer."""
    reward: float
    """0.0 until the episode is over, then the verifier's."""
    done: bool
    info: StepInfo


class UnverifiedError(Exception):
    """An episode ended without a reward that measures it; the text is the server's cause."""


def checked(step: Step) -> Step:
    """The step, for a trainer that would train on whatever number it is given.

    Raises UnverifiedError where the verifier failed: the 0.0 in its place says nothing about what was done.
    """
    if step.done and not step.info.get("reward_valid", True):
        cause, text = (
            step.info.get("failure_cause", "no reward"),
            step.info.get("failure", "the verifier gave none"),
        )
        raise UnverifiedError(f"{cause}: {text}")
    return step


def creation(task: Task, options: EnvOptions) -> dict[str, Any]:
    """The body of `POST /v1/envs`.

    A path is made absolute: the server need not run in this program's directory. Raises TypeError for an option that
    there is not.
    """
    if unknown := sorted(set(options) - set(EnvOptions.__annotations__)):
        raise TypeError(f"no such option of an environment: {', '.join(unknown)}")
    named = dict(task) if isinstance(task, Mapping) else os.path.abspath(os.fspath(task))
    return {"task": named, **options}


def place(env_id: str, what: str = "") -> str:
    """The path of one environment."""
    return f"/v1/envs/{quote(env_id, safe='')}{what}"


def answer(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of an answer; raises what the server said, where it refused."""
    raise_for(response, response.content)
    made = json.loads(response.content) if response.content else {}
    if not isinstance(made, dict):
        raise RolltapError(
            response.status_code, "the answer is no JSON object: is this an environment server?"
        )
    return made


def step_of(said: Mapping[str, Any]) -> Step:
    """A step's answer."""
    return Step(said["observation"], float(said["reward"]), bool(said["done"]), said["info"])


def is_gone(error: RolltapError) -> bool:
    """The server knows the environment no more: its lease ran out, or the server is another one by now."""
    return error.code in ("closed", "expired", "unknown_env")


def pause(error: RolltapError, left: float) -> float | None:
    """Seconds until a server whose places are all taken is asked again; None where that is of no use."""
    if error.code != "too_many" or left <= 0:
        return None
    return min(left, error.retry_after or 1.0)


def unreachable(server: str) -> ConnectionError:
    """Nobody listens there."""
    return ConnectionError(
        f"no environment server at {server}: start one with `rolltap env`, or with rolltap.env.serve()"
    )


def headers(token: str | None) -> dict[str, str]:
    """What a server that wants a token is shown: this one, else that of the variable ROLLTAP_ENV_TOKEN."""
    shown = token or os.environ.get("ROLLTAP_ENV_TOKEN")
    return {"authorization": f"Bearer {shown}"} if shown else {}


def httpx_timeout(seconds: float | None) -> httpx.Timeout:
    """How long the server may be silent: while it builds an image, waits for a command, runs a verifier."""
    return httpx.Timeout(seconds, connect=10.0)


def begun(said: Mapping[str, Any]) -> tuple[str, ResetInfo]:
    """A reset's answer."""
    return said["observation"], said["info"]


def reset_first(env_id: str | None) -> str:
    """The environment's name at the server; raises where there is none yet."""
    if env_id is None:
        raise RuntimeError("there is no episode yet, or the environment was closed: call reset() first")
    return env_id
