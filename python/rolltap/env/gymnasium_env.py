"""The terminal as an environment of Gymnasium (package `gymnasium` 1.4.0): `RolltapTerminal-v0`.

Importing this module registers the environment, and so does
`gymnasium.make("rolltap.env.gymnasium_env:RolltapTerminal-v0", …)`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium import spaces

from rolltap.env.terminal import TerminalGymEnv
from rolltap.env.wire import DEFAULT_SERVER, Action, EnvOptions, Task

if TYPE_CHECKING:
    from typing_extensions import Unpack

ID = "RolltapTerminal-v0"


class _Observations(spaces.Text):
    """Text of any characters. `spaces.Text` lists its allowed characters, and a terminal shows all of Unicode."""

    def __init__(self) -> None:
        super().__init__(max_length=2**31 - 1, min_length=0)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)


class _Actions(_Observations):
    """Answers of models, and keys. A sample is a valid answer that types nothing."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, (str, dict))

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return json.dumps({"analysis": "", "plan": "", "commands": []})


class RolltapTerminal(gymnasium.Env[str, Action]):
    """A terminal at a task, for `gymnasium.make("RolltapTerminal-v0", task_dir=…, server=…)`.

    An observation is the text of the terminal, and an action is a model's answer or keys (`rolltap.env.Action`). `info`
    has the members of `rolltap.env.ResetInfo` or `StepInfo`. At the end it has all rewards.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        task_dir: Task,
        *,
        server: str = DEFAULT_SERVER,
        render_mode: str | None = None,
        **options: Unpack[EnvOptions],
    ) -> None:
        self.observation_space = _Observations()
        self.action_space = _Actions()
        self.render_mode = render_mode
        self._terminal = TerminalGymEnv(task_dir, server=server, **options)
        self._shown = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts a fresh container. The seed is for Gymnasium's random generator only: a task has no seed."""
        super().reset(seed=seed)
        self._shown, info = self._terminal.reset()
        return self._shown, dict(info)

    def step(self, action: Action) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Performs the action and returns `(observation, reward, terminated, truncated, info)`."""
        self._shown, reward, done, info = self._terminal.step(action)
        truncated = done and info.get("truncated", False)
        return self._shown, reward, done and not truncated, truncated, dict(info)

    def render(self) -> str | None:
        """Returns the last observation with `render_mode="ansi"`, else None."""
        return self._shown if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Removes the environment at the server."""
        self._terminal.close()


if ID not in gymnasium.registry:
    # Nondeterministic: a terminal shows its container's name and the duration of commands.
    gymnasium.register(ID, entry_point=RolltapTerminal, nondeterministic=True)
