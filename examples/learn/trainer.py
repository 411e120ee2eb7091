"""Implements the trainer: takes closed groups, makes a step, stores the result, and hands the weights to vLLM."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import corruptions
import model as speech
import retokenised
import state as states
import table
import torch
from processes import Say, Stopped
from rollouts import MAX_STALENESS, Sample, Taken, discounted, earned, export, rows_of
from services import Services
from step import NotFinite, chunks, improve, logprobs
from transformers import AutoModelForCausalLM, AutoTokenizer

TOLERATED = 3
"""Steps in a row with a gradient that is not finite, before the run stops."""


@dataclass(frozen=True)
class Settings:
    """Configures the training."""

    learning_rate: float
    """The learning rate of the first step. It falls linearly to 0. Once nearly all trials of a group succeed, the
    gradient is little more than noise, and Adam would turn this noise into full-length updates."""
    steps: int
    discount: float
    penalty: float
    corruption: str
    seed: int
    program: str


class Trainer:
    """Trains the policy. All persistent data is in `state`."""

    def __init__(self, taught: Path, folder: Path, settings: Settings, say: Say) -> None:
        self.policy_folder = folder / "policy"
        self._folder, self._settings, self._say = folder, settings, say
        self._tokenizer = AutoTokenizer.from_pretrained(taught)
        self._policy = AutoModelForCausalLM.from_pretrained(taught, dtype=torch.float32).eval()
        self._start = copy.deepcopy(self._policy)
        self._older = copy.deepcopy(self._policy)
        self._optimizer = torch.optim.Adam(self._policy.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95))
        found = states.read(folder / "state.pt")
        self.state = found if found is not None else self._begin()
        self._policy.load_state_dict(self.state.model())
        self._optimizer.load_state_dict(self.state.optimizer)
        # vLLM reads this folder. It is derived from the stored state, which is authoritative.
        speech.save(self._policy, self._tokenizer, self.policy_folder)

    @property
    def needs_messages(self) -> bool:
        """Whether the rows of a step must have their messages."""
        return self._settings.corruption == "retokenised"

    def step(self, taken: Taken) -> dict[str, float]:
        """Trains on these groups and stores the result. Nothing is persistent before that."""
        begin = time.monotonic()
        version = self.state.step
        worth = discounted(rows_of(taken.trials), self._settings.discount)
        worth = corruptions.of_rows(self._settings.corruption, worth, self._settings.seed + version)
        weighed = export(self._settings.program, worth, self._folder / "exports", version)
        samples = corruptions.of_samples(self._settings.corruption, [one for one in weighed if any(one.mask)])
        made = retokenised.retokenise(self._tokenizer, samples, worth) if self.needs_messages else []
        if self.needs_messages:
            samples = retokenised.recomputed(made, _without_gradient(self._policy, [one.sample for one in made]))
        row = {"step": float(version), **table.of_trials(taken), **table.of_samples(samples, version)}
        row |= self._train(samples, made)
        self._keep(taken, samples, {**row, "training_s": time.monotonic() - begin})
        if sum(one["not_finite"] for one in self.state.table[-TOLERATED:]) == TOLERATED:
            raise Stopped(f"{TOLERATED} gradients in a row were no numbers; a lower --learning-rate may help")
        return self.state.table[-1]

    def hand_over(self, services: Services) -> None:
        """Hands vLLM the weights of the step that was just stored."""
        begin = time.monotonic()
        speech.save_weights(self._policy.named_parameters(), self.policy_folder)
        services.hand_over(self.state.step)
        self.state.table[-1]["hand_over_s"] = time.monotonic() - begin

    def _train(self, samples: Sequence[Sample], made: Sequence[retokenised.Retokenised]) -> dict[str, float]:
        """Makes the update, and returns its figures. `made` has the samples if they are tokenised again."""
        if not samples:
            self._say("these groups have no trainable token; the weights are unchanged")
            return {**table.of_logprobs([], [], [], []), "not_finite": 0.0}
        start = _without_gradient(self._start, samples)
        # These need the weights that sampled the tokens, and so come before the update.
        older = self._recomputed_by_older(samples)
        settings = self._settings
        for group in self._optimizer.param_groups:
            group["lr"] = settings.learning_rate * max(0.0, 1 - self.state.step / settings.steps)
        try:
            now, not_finite = improve(self._policy, self._optimizer, samples, start, settings.penalty), 0.0
        except NotFinite as error:
            self._say(f"step {self.state.step} does not change the weights: {error}")
            now, not_finite = _without_gradient(self._policy, samples), 1.0
        told = {**table.of_logprobs(samples, older or now, now, start), "not_finite": not_finite}
        return told | (retokenised.figures(made, older or now) if made else {})

    def _recomputed_by_older(self, samples: Sequence[Sample]) -> list[torch.Tensor]:
        """Returns the logprob of each trained token under the weights that sampled it, or an empty list if only the
        current weights did."""
        of_each = [torch.tensor(_trained(one.versions, one.mask)) for one in samples]
        versions = {int(version) for one in of_each for version in one.unique()} - {-1}
        if versions <= {self.state.step}:
            return []
        made = [torch.zeros(len(one)) for one in of_each]
        for version in versions:
            self._older.load_state_dict(self.state.recent[version])
            for into, new, of in zip(made, _without_gradient(self._older, samples), of_each):
                into[of == version] = new[of == version]
        return made

    def _keep(self, taken: Taken, samples: Sequence[Sample], row: dict[str, float]) -> None:
        state = self.state
        sampled = {one.trial_id for one in samples}
        trained = set() if row["not_finite"] else sampled
        for trial in taken.trials:
            name = trial["trial_id"]
            if name in trained:
                state.trained.append(name)
            elif name in sampled:
                state.left_out[name] = "gradient_not_finite"
            elif earned(trial) is None:
                state.left_out[name] = trial["failure_cause"] or "no_reward"
            else:
                state.left_out[name] = "stale_or_masked"
        state.left_out |= dict.fromkeys(taken.late, "late")
        row["left_out"] = float(len(taken.trials) - len(trained) + len(taken.late))
        state.step += 1
        state.cursor = taken.cursor
        state.table.append(row)
        self._remember()
        state.write(self._folder / "state.pt")

    def _begin(self) -> states.State:
        self.state = states.State(0, {})
        self._remember()
        self.state.write(self._folder / "state.pt")
        return self.state

    def _remember(self) -> None:
        state = self.state
        state.optimizer = copy.deepcopy(self._optimizer.state_dict())
        state.recent[state.step] = {name: value.clone() for name, value in self._policy.state_dict().items()}
        for version in [one for one in state.recent if one < state.step - MAX_STALENESS]:
            del state.recent[version]


@torch.no_grad()
def _without_gradient(model: Any, samples: Sequence[Sample]) -> list[torch.Tensor]:
    made: dict[int, torch.Tensor] = {}
    for chunk in chunks(samples):
        made |= {id(one): new for one, new in zip(chunk, logprobs(model, chunk))}
    return [made[id(one)] for one in samples]


def _trained(values: Sequence[int], mask: Sequence[int]) -> list[int]:
    return [value for value, trained in zip(values[1:], mask[1:]) if trained]


def log_line(row: dict[str, float]) -> str:
    """Returns the log line of a step."""
    return (
        f"step {row['step']:.0f}: reward {row['reward']:.2f}, {row['turns']:.1f} turns, "
        f"{row['trained_tokens']:.0f} tokens, logprobs apart {row['logprob_diff_max']:.1e} at most, "
        f"KL {row['kl_start']:.3f}, {row['wall_s']:.0f} s"
    )


def last_reward(rows: Sequence[dict[str, float]], steps: int = 3) -> float:
    """Returns the mean reward of the last steps."""
    return fmean(row["reward"] for row in rows[-steps:])
