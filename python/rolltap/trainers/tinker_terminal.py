"""Terminals at Harbor tasks for the loop of `tinker-cookbook` (0.6.1): environments, their groups, a dataset.

The server (`rolltap env`) has the containers, reads the answers and runs the verifiers. This module has only the
renderer and the chat. `python/examples/terminal_rl/train.py` trains with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import chz
import tinker
from tinker_cookbook import model_info, tokenizer_utils
from tinker_cookbook.completers import StopCondition
from tinker_cookbook.renderers import Message, Renderer, get_renderer
from tinker_cookbook.renderers.base import get_text_content
from tinker_cookbook.rl.types import (
    STOP_METRIC_PREFIX,
    Action,
    ActionExtra,
    Env,
    EnvGroupBuilder,
    InitialObservationOverflow,
    Metrics,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
    StopReason,
)

from rolltap.env.terminal import AsyncTerminalGymEnv
from rolltap.env.wire import DEFAULT_SERVER, EnvOptions, Step, checked

logger = logging.getLogger(__name__)


class HarborTerminalTinkerEnv(Env):
    """One episode: renders the chat for the model, decodes the model's tokens, and passes the text to the terminal.

    The model answers in the terminal agent's format (JSON, or XML with `format="xml"`), which the first message
    explains. An unreadable answer types nothing, and the next message has the reason. The reward is the verifier's,
    at the end. If the verifier fails, the step raises UnverifiedError, because 0.0 would be a false reward.
    """

    def __init__(
        self, terminal: AsyncTerminalGymEnv, renderer: Renderer, *, max_prompt_tokens: int | None = None
    ) -> None:
        """Limits a prompt to `max_prompt_tokens`. A longer chat ends the episode, and the verifier judges the work."""
        self._terminal = terminal
        self._renderer = renderer
        self._max_prompt_tokens = max_prompt_tokens
        self._messages: list[Message] = []

    async def initial_observation(
        self,
    ) -> tuple[tinker.ModelInput, StopCondition] | InitialObservationOverflow:
        """Starts a fresh container and renders the first message: the rules, the task and the terminal.

        Returns InitialObservationOverflow if this message is too long already.
        """
        _, info = await self._terminal.reset()
        self._messages = [_from_user(info["prompt"])]
        prompt = await self._prompt()
        if self._is_too_long(prompt):
            tokens = f"{prompt.length} tokens, of {self._max_prompt_tokens} allowed"
            return InitialObservationOverflow(0.0, _stopped(StopReason.MAX_TOKENS), {"prompt": tokens})
        return prompt, self._renderer.get_stop_sequences()

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        """Passes the model's answer to the terminal and renders the next message.

        Raises UnverifiedError if the episode is over and the verifier failed.
        """
        answer, _ = self._renderer.parse_response(action)
        text = get_text_content(answer)
        step = checked(await self._terminal.step(text))
        if step.done:
            return self._over(
                step, StopReason.MAX_TURNS if step.info.get("truncated") else StopReason.COMPLETED
            )
        self._messages += [answer, _from_user(step.observation)]
        prompt = await self._prompt()
        if self._is_too_long(prompt):
            return self._over(checked(await self._terminal.finish()), StopReason.CONTEXT_OVERFLOW)
        return StepResult(
            reward=step.reward,
            episode_done=False,
            next_observation=prompt,
            next_stop_condition=self._renderer.get_stop_sequences(),
            metrics=_of_answer(step, extra),
            logs={"answer": text, "observation": step.observation},
        )

    def _over(self, step: Step, reason: StopReason) -> StepResult:
        rewards: Metrics = {f"rewards/{name}": value for name, value in step.info.get("rewards", {}).items()}
        return StepResult(
            reward=step.reward,
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=self._renderer.get_stop_sequences(),
            metrics={**_of_answer(step, None), **rewards, **_stopped(reason)},
            logs={"observation": step.observation},
        )

    async def _prompt(self) -> tinker.ModelInput:
        # Rendering a long chat is slow, and in this thread would block the other episodes.
        return await asyncio.to_thread(self._renderer.build_generation_prompt, self._messages)

    def _is_too_long(self, prompt: tinker.ModelInput) -> bool:
        return self._max_prompt_tokens is not None and prompt.length > self._max_prompt_tokens


def _from_user(text: str) -> Message:
    return {"role": "user", "content": text}


def _stopped(reason: StopReason) -> Metrics:
    return {f"{STOP_METRIC_PREFIX}{reason}": 1.0}


def _of_answer(step: Step, extra: ActionExtra | None) -> Metrics:
    return {
        "unreadable_answer": float("parse_error" in step.info),
        "answer_warnings": float(len(step.info.get("warnings", []))),
        "answer_cut_off": float((extra or {}).get("stop_reason") == "length"),
    }


@dataclass
class HarborTerminalEnvGroupBuilder(EnvGroupBuilder):
    """A group of episodes at one task, which GRPO compares."""

    task_dir: str
    group_size: int
    model_name: str
    """The model whose tokenizer the renderer uses."""
    renderer_name: str | None = None
    """The renderer. If None, the renderer that the cookbook recommends for the model."""
    server: str = DEFAULT_SERVER
    options: EnvOptions = field(default_factory=EnvOptions)
    max_prompt_tokens: int | None = None
    _terminals: list[AsyncTerminalGymEnv] = field(default_factory=list, init=False, repr=False)

    async def make_envs(self) -> Sequence[Env]:
        """Returns the episodes. Their containers start with their first observations."""
        renderer = get_renderer(
            self.renderer_name or model_info.get_recommended_renderer_name(self.model_name),
            tokenizer_utils.get_tokenizer(self.model_name),
        )
        made = [
            AsyncTerminalGymEnv(self.task_dir, server=self.server, **self.options)
            for _ in range(self.group_size)
        ]
        self._terminals += made
        return [
            HarborTerminalTinkerEnv(terminal, renderer, max_prompt_tokens=self.max_prompt_tokens)
            for terminal in made
        ]

    async def cleanup(self) -> None:
        """Removes the containers. If this fails, logs a warning: the server removes them when their leases end."""
        terminals, self._terminals = self._terminals, []
        closed = await asyncio.gather(*(terminal.close() for terminal in terminals), return_exceptions=True)
        for error in closed:
            if error is not None:
                logger.warning("an environment was not closed: %s", error)

    def logging_tags(self) -> list[str]:
        """Returns `terminal` and the task's name."""
        return ["terminal", Path(self.task_dir).name]


class HarborSingleTaskRLDataset(RLDataset):
    """The same task in every group of every batch."""

    def __init__(self, group: HarborTerminalEnvGroupBuilder, groups_per_batch: int, num_batches: int) -> None:
        self._group = group
        self._groups_per_batch = groups_per_batch
        self._num_batches = num_batches

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """Returns `groups_per_batch` groups, each with its own containers."""
        return [replace(self._group) for _ in range(self._groups_per_batch)]

    def __len__(self) -> int:
        return self._num_batches


@chz.chz
class HarborSingleTaskRLDatasetBuilder(RLDatasetBuilder):
    """Builds the dataset, without a test set."""

    task_dir: str
    model_name: str
    renderer_name: str | None = None
    groups_per_batch: int = 1
    group_size: int = 8
    num_batches: int = 25
    server: str = DEFAULT_SERVER
    options: EnvOptions = chz.field(default_factory=EnvOptions)
    max_prompt_tokens: int | None = None

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        """Returns the dataset, and None for the test set."""
        group = HarborTerminalEnvGroupBuilder(
            task_dir=self.task_dir,
            group_size=self.group_size,
            model_name=self.model_name,
            renderer_name=self.renderer_name,
            server=self.server,
            options=self.options,
            max_prompt_tokens=self.max_prompt_tokens,
        )
        return HarborSingleTaskRLDataset(group, self.groups_per_batch, self.num_batches), None
