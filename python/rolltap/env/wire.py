"""Requests and answers of the environment server, for both clients (docs/reference/env-server-api.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict, Union
from urllib.parse import quote

import httpx

from rolltap.errors import RolltapError, raise_for

DEFAULT_SERVER = "http://127.0.0.1:7080"
"""The default address of `rolltap env`."""


class GitTask(TypedDict, total=False):
    """A task of a git repository. The server fetches each task once."""

    git_url: str
    git_commit_id: str
    path: str
    """The task's directory inside the repository."""


Task = Union[str, "os.PathLike[str]", GitTask]
"""A task directory on the server's machine, or a task of a git repository."""


class EnvOptions(TypedDict, total=False):
    """The options of an environment. The server has a default for each."""

    environment: Literal["docker", "local"]
    """`docker`: a container. `local`: a temporary directory on the server's machine, which is no sandbox."""
    terminal: Literal["screen", "tmux"]
    """`screen`: the server's screen emulator, which needs nothing in the image. `tmux`: a session that a person can
    watch.
    """
    width: int
    height: int
    lease_seconds: float
    """The server removes the environment after this time without a call."""
    max_steps: int
    """The number of steps after which the episode is truncated. No limit by default."""
    format: Literal["json", "xml"]
    """The format of a model's answers."""
    confirm_completion: bool
    """Whether the episode ends only after two consecutive `task_complete`, as with the terminal agent."""


class Command(TypedDict, total=False):
    """Keys to type."""

    keystrokes: str
    """Typed literally, unless the string is the name of one key (`C-c`, `Enter`), which presses that key."""
    duration: float
    """The wait after typing, in seconds: 1 by default, limited to 0 to 60."""


class Commands(TypedDict, total=False):
    """Several commands, typed in order, and whether the task is complete."""

    commands: Sequence[Command]
    task_complete: bool


Action = Union[str, Command, Commands]
"""A model's unchanged answer, which the server reads as the terminal agent does, or keys."""

FINISH: Commands = {"commands": [], "task_complete": True}
"""The action that completes the task: the verifier judges the work in its present state."""


class ResetInfo(TypedDict, total=False):
    """The info of a reset."""

    instruction: str
    """The task's instruction."""
    task_id: str
    step: int
    prompt: str
    """The terminal agent's first message to its model: the rules for answers, the task, and the terminal."""


class StepInfo(TypedDict, total=False):
    """The info of a step."""

    step: int
    warnings: list[str]
    """Warnings about the action, as in the message to the model."""
    parse_error: str
    """Why a model's answer could not be read. Such an answer types nothing."""
    terminated: bool
    truncated: bool
    rewards: dict[str, float]
    """All numbers of the verifier, once the episode is over."""
    reward_valid: bool
    """False if the reward does not measure the work, because the verifier failed."""
    failure_cause: str
    """The name of the verifier's failure."""
    failure: str
    """The description of that failure."""
    terminal_closed: bool
    """The shell has ended, which ends the episode."""


class Step(NamedTuple):
    """The result of an action."""

    observation: str
    """The terminal agent's message to its model: warnings about the answer, then new output or the screen."""
    reward: float
    """0.0 until the episode is over, then the verifier's reward. 0.0 also if the verifier failed."""
    done: bool
    info: StepInfo


class UnverifiedError(Exception):
    """An episode ended without a valid reward. The text is the server's cause."""


def checked(step: Step) -> Step:
    """Returns the step unchanged, for a trainer that trains on any number.

    Raises UnverifiedError if the verifier failed, because the reward 0.0 then does not measure the work.
    """
    if step.done and not step.info.get("reward_valid", True):
        cause, text = (
            step.info.get("failure_cause", "no reward"),
            step.info.get("failure", "the verifier gave none"),
        )
        raise UnverifiedError(f"{cause}: {text}")
    return step


def creation(task: Task, options: EnvOptions) -> dict[str, Any]:
    """Returns the body of `POST /v1/envs`.

    Makes a path absolute, because the server may run in another directory. Raises TypeError for an unknown option.
    """
    if unknown := sorted(set(options) - set(EnvOptions.__annotations__)):
        raise TypeError(f"no such option of an environment: {', '.join(unknown)}")
    named = dict(task) if isinstance(task, Mapping) else os.path.abspath(os.fspath(task))
    return {"task": named, **options}


def place(env_id: str, what: str = "") -> str:
    """Returns the path of an environment, or of a part of the environment."""
    return f"/v1/envs/{quote(env_id, safe='')}{what}"


def answer(response: httpx.Response) -> dict[str, Any]:
    """Returns the JSON object of an answer. Raises RolltapError for an error, or if the answer is no JSON object."""
    raise_for(response, response.content)
    made = json.loads(response.content) if response.content else {}
    if not isinstance(made, dict):
        raise RolltapError(
            response.status_code, "the answer is no JSON object: is this an environment server?"
        )
    return made


def step_of(said: Mapping[str, Any]) -> Step:
    """Returns the step of the answer to `step`."""
    return Step(said["observation"], float(said["reward"]), bool(said["done"]), said["info"])


def is_gone(error: RolltapError) -> bool:
    """Returns whether the environment no longer exists: closed, expired, or unknown to a restarted server."""
    return error.code in ("closed", "expired", "unknown_env")


def pause(error: RolltapError, left: float) -> float | None:
    """Returns the seconds until the next attempt, at most `left`, if all places of the server are taken.

    Returns None for any other error, or if no time is left.
    """
    if error.code != "too_many" or left <= 0:
        return None
    return min(left, error.retry_after or 1.0)


def unreachable(server: str) -> ConnectionError:
    """Returns the error for an address without a server."""
    return ConnectionError(
        f"no environment server at {server}: start one with `rolltap env`, or with rolltap.env.serve()"
    )


def headers(token: str | None) -> dict[str, str]:
    """Returns the headers with `token`, else the token of the variable ROLLTAP_ENV_TOKEN, else none."""
    shown = token or os.environ.get("ROLLTAP_ENV_TOKEN")
    return {"authorization": f"Bearer {shown}"} if shown else {}


def httpx_timeout(seconds: float | None) -> httpx.Timeout:
    """Returns the timeouts of a request. The server is silent while it builds an image or runs a verifier."""
    return httpx.Timeout(seconds, connect=10.0)


def begun(said: Mapping[str, Any]) -> tuple[str, ResetInfo]:
    """Returns the observation and the info of the answer to `reset`."""
    return said["observation"], said["info"]


def reset_first(env_id: str | None) -> str:
    """Returns `env_id`. Raises RuntimeError if there is no environment at the server."""
    if env_id is None:
        raise RuntimeError("there is no episode yet, or the environment was closed: call reset() first")
    return env_id
