"""A terminal at a Harbor task as an environment of TRL (package `trl` 1.16.0): `GRPOTrainer(environment_factory=…)`.

TRL runs the loop, in which the model calls the environment's methods as tools. The server (`rolltap env`) has the
containers and runs the verifiers.
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
    """A terminal into which a model types with tools. TRL creates one per concurrent rollout, and resets it often.

    A row of the dataset names its task in the column `task_dir`. `reset` returns the task and the terminal's text,
    which TRL appends to the row's last message.
    """

    def __init__(self, server: str = DEFAULT_SERVER, **options: Unpack[EnvOptions]) -> None:
        self._server = server
        self._options = options
        self._task_dir: str | None = None
        self._terminal: TerminalGymEnv | None = None
        self._leave: Callable[[], object] = lambda: None
        self._last: Step | None = None

    def reset(self, task_dir: str, **row: Any) -> str:
        """Starts a fresh container of the row's task and returns the instruction and the terminal's text."""
        if self._terminal is None or task_dir != self._task_dir:
            self._leave()
            self._terminal = TerminalGymEnv(task_dir, server=self._server, **self._options)
            # TRL never closes an environment, and a public `close` would be a tool of the model.
            self._leave = weakref.finalize(self, self._terminal.close)
            self._task_dir = task_dir
        observation, info = self._terminal.reset()
        self._last = None
        return f"{info['instruction']}\n\n{observation}"

    def type_keys(self, keystrokes: str, duration: float = 1.0) -> str:
        """
        Type into the terminal, and read its output.

        Args:
            keystrokes: Typed literally; a newline runs the line. The name of one key, like C-c or Enter, presses it.
            duration: Seconds to wait after typing, before the terminal is read.

        Returns:
            The new output of the terminal, or its screen if there is no new output.
        """
        return self._step({"keystrokes": keystrokes, "duration": duration}).observation

    def complete_task(self) -> str:
        """
        Declare the task complete. The work is judged in its present state, and the terminal accepts no more keys.

        Returns:
            A confirmation that the work was judged.
        """
        self._finish()
        return "The task is over, and the work was judged."

    def get_reward(self) -> float:
        """Returns the verifier's reward. Ends an unfinished episode first, as for a model that ran out of turns.

        Raises UnverifiedError if the verifier failed, because TRL trains on any number.
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
    """Returns a factory for `environment_factory=` of TRL's trainers. The asynchronous trainer pickles it."""
    return partial(TerminalEnvironment, server, **options)
