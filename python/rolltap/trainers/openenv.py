"""A terminal at a Harbor task as an OpenEnv environment (package `openenv-core` 0.3.0).

`app` returns OpenEnv's own server for a task, for OpenEnv's clients and for trainers that support them. Each session is
an environment at `rolltap env`, which has the containers and runs the verifiers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

from rolltap.env.terminal import TerminalGymEnv
from rolltap.env.wire import DEFAULT_SERVER, EnvOptions, Step, Task

if TYPE_CHECKING:
    from fastapi import FastAPI
    from typing_extensions import Unpack


class TerminalAction(Action):
    """A model's unchanged answer in the terminal agent's format: JSON, or XML with `format="xml"`."""

    answer: str


class TerminalObservation(Observation):
    """The text of the terminal. `reward` is None until the episode is over, and if the verifier failed."""

    text: str
    prompt: str
    """The next message for a model. After `reset` it also has the rules for answers and the task."""
    info: dict[str, Any] = Field(default_factory=dict)
    """The members of `rolltap.env.ResetInfo` or `StepInfo`."""


class TerminalEnvironment(Environment[TerminalAction, TerminalObservation, State]):
    """One session, in a thread of OpenEnv."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, task_dir: Task, server: str = DEFAULT_SERVER, **options: Unpack[EnvOptions]) -> None:
        super().__init__()
        self._terminal = TerminalGymEnv(task_dir, server=server, **options)
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> TerminalObservation:
        """Starts a fresh container. Ignores `seed`: a task has no seed."""
        text, info = self._terminal.reset()
        self._state = State(episode_id=episode_id or self._terminal.env_id, step_count=0)
        return TerminalObservation(text=text, prompt=info["prompt"], info=dict(info))

    def step(self, action: TerminalAction, timeout_s: float | None = None, **_: Any) -> TerminalObservation:
        """Passes the answer to the terminal. Ignores `timeout_s`: the task has its own time limits."""
        made = _observed(self._terminal.step(action.answer))
        self._state = State(episode_id=self._state.episode_id, step_count=self._state.step_count + 1)
        return made

    @property
    def state(self) -> State:
        """The id of the episode and the number of its steps."""
        return self._state

    def close(self) -> None:
        """Removes the environment at the server, when the session ends."""
        self._terminal.close()


def _observed(step: Step) -> TerminalObservation:
    known = step.done and step.info.get("reward_valid", True)
    return TerminalObservation(
        text=step.observation,
        prompt=step.observation,
        done=step.done,
        reward=step.reward if known else None,
        info=dict(step.info),
    )


def app(
    task_dir: Task, server: str = DEFAULT_SERVER, *, max_sessions: int = 16, **options: Unpack[EnvOptions]
) -> FastAPI:
    """Returns OpenEnv's web application for this task, for an ASGI server such as uvicorn."""
    return create_fastapi_app(
        lambda: TerminalEnvironment(task_dir, server, **options),
        TerminalAction,
        TerminalObservation,
        max_concurrent_envs=max_sessions,
    )
