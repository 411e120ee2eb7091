"""A terminal at a Harbor task as an environment of TRL (package `trl` 1.16.0): `GRPOTrainer(environment_factory=…)`.

TRL owns the loop: the model calls the environment's methods as tools. The server (`rolltap env`) has the containers and
runs the verifiers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rolltap.env.terminal import TerminalGymEnv
from rolltap.env.wire import DEFAULT_SERVER, Action, EnvOptions, Step, checked

if TYPE_CHECKING:
    from typing_extensions import Unpack


class TerminalEnvironment:
    """A terminal that a model types into with tools. TRL makes one per rollout at once, and resets it often.

    A row of the dataset names its task in the column `task_dir`. What `reset` gives, the task and what the terminal
    shows, TRL puts at the end of the row's last message.
    """

    def __init__(self, server: str = DEFAULT_SERVER, **options: Unpack[EnvOptions]) -> None:
        self._server = server
        self._options = options
        self._task_dir: str | None = None
        self._terminal: TerminalGymEnv | None = None
        self._leave: Callable[[], object] = lambda: None
        self._last: Step | None = None

    def reset(self, task_dir: str, **row: Any) -> str:
        """A fresh container of the row's task."""
        if self._terminal is None or task_dir != self._task_dir:
            self._leave()
            self._terminal = TerminalGymEnv(task_dir, server=self._server, **self._options)
            # TRL never closes an environment, and every public method would be a tool.
            self._leave = weakref.finalize(self, self._terminal.close)
            self._task_dir = task_dir
        observation, info = self._terminal.reset()
        self._last = None
        return f"{info['instruction']}\n\n{observation}"

    def type_keys(self, keystrokes: str, duration: float = 1.0) -> str:
        """
        Type into the terminal, and see what it shows then.

        Args:
            keystrokes: What is typed, exactly as it stands: end a line with a newline to run it. The name of a key alone, like C-c or Enter, presses that key.
            duration: Seconds to wait before the terminal is looked at.

        Returns:
            What the terminal printed, or its screen where nothing new came.
        """
        return self._step({"keystrokes": keystrokes, "duration": duration}).observation

    def complete_task(self) -> str:
        """
        Say that the task is complete: the work is judged as it is, and the terminal takes no more keys.

        Returns:
            That it was judged.
        """
        self._finish()
        return "The task is over, and the work was judged."

    def get_reward(self) -> float:
        """The verifier's reward. An episode that is not over is ended first, as when a model runs out of turns.

        Raises UnverifiedError where the verifier failed: TRL would train on any number.
        """
        return checked(self._finish()).reward

    def _step(self, action: Action) -> Step:
        if self._last is not None and self._last.done:
            raise RuntimeError("the task is over: the terminal takes no more keys")
        self._last = self._begun().step(action)
        return self._last

    def _begun(self) -> TerminalGymEnv:
        if self._terminal is None:
            raise RuntimeError("there is no task yet: reset() comes first")
        return self._terminal

    def _finish(self) -> Step:
        if self._last is None or not self._last.done:
            self._last = self._begun().finish()
        return self._last


def environment_factory(
    server: str = DEFAULT_SERVER, **options: Unpack[EnvOptions]
) -> Callable[[], TerminalEnvironment]:
    """For `environment_factory=` of TRL's trainers; it can be pickled, as the asynchronous one wants it."""
    return partial(TerminalEnvironment, server, **options)
