"""Step-wise generator output for SkyRL (package `skyrl` 0.4.0), from an export or from agents that run live.

A line of `rolltap export --format skyrl` is a trajectory, and each of its steps is a branch. Train with
`generator.step_wise_trajectories=true`: SkyRL then takes the advantage of a trajectory's last step for all its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from skyrl.train.generators.base import GeneratorInput, GeneratorInterface, GeneratorOutput, TrajectoryID
from skyrl.train.generators.utils import concatenate_generator_outputs

from rolltap.client import DEFAULT_URL, AsyncClient
from rolltap.prepare import Prepare, earned, prepared_rows
from rolltap.row import Trial, response, stand_in
from rolltap.sampling import of_a_trial
from rolltap.trial import Agent, run_trial, run_trials


def generator_output(lines: Iterable[Mapping[str, Any]]) -> GeneratorOutput:
    """Returns the generator output of exported lines, checked by SkyRL."""
    return concatenate_generator_outputs([_typed(line) for line in lines], step_wise=True)


def _typed(line: Mapping[str, Any]) -> GeneratorOutput:
    steps = {key: value for key, value in line.items() if isinstance(value, list)}
    return {**steps, "trajectory_ids": [TrajectoryID(**name) for name in line["trajectory_ids"]]}


class Generator(GeneratorInterface):
    """Runs the agent once per trajectory that SkyRL requests, as a trial.

    The trials have no group at the proxy, because SkyRL itself compares trajectories, by prompt.

    The agent gets SkyRL's `prompt`, `env_class` and `env_extras`. If a reward does not measure the agent, or a trial
    sampled nothing, the trajectory stays in its group. It is masked and gets the mean reward of the others, so that
    the baseline does not change. If the proxy refuses a trial, the batch fails after all other trials have ended.
    """

    def __init__(
        self, agent: Agent, url: str = DEFAULT_URL, *, token: str | None = None, **opening: Any
    ) -> None:
        self._agent = agent
        self._url = url
        self._token = token
        self._opening = opening

    async def generate(self, input_batch: GeneratorInput) -> GeneratorOutput:
        """Runs all trajectories of the batch at once. The proxy and vLLM limit the calls in flight.

        Raises ValueError if the batch has no `trajectory_ids`.
        """
        names = input_batch["trajectory_ids"]
        if names is None:
            raise ValueError("a batch without trajectory_ids: groups could not be told apart")
        opening = {"sampling": of_a_trial(input_batch.get("sampling_params")), **self._opening}
        metadata = input_batch.get("batch_metadata")
        step = "" if metadata is None else f"{metadata.training_phase}-{metadata.global_step}-"
        async with AsyncClient(self._url, token=self._token) as client:
            runs = [
                run_trial(
                    client,
                    self._agent,
                    _task(input_batch, place),
                    task_id=name.instance_id,
                    metadata={"skyrl": f"{step}{name.to_string()}"},
                    prepare=Prepare(),
                    **opening,
                )
                for place, name in enumerate(names)
            ]
            trials = await run_trials(runs)
        return generator_output(map(_line, trials, names, _rewards(trials, names)))


def _task(batch: GeneratorInput, place: int) -> dict[str, Any]:
    extras = batch.get("env_extras")
    return {
        "prompt": batch["prompts"][place],
        "env_class": batch["env_classes"][place],
        "env_extras": extras[place] if extras else {},
    }


def _rewards(trials: Sequence[Trial], names: Sequence[TrajectoryID]) -> list[float]:
    known: dict[str, list[float]] = {}
    for trial, name in zip(trials, names):
        if (reward := earned(trial)) is not None:
            known.setdefault(name.instance_id, []).append(reward)
    means = {instance: fmean(rewards) for instance, rewards in known.items()}
    rewards = [earned(trial) for trial in trials]
    return [
        means.get(name.instance_id, 0.0) if reward is None else reward
        for reward, name in zip(rewards, names)
    ]


def _line(trial: Trial, name: TrajectoryID, reward: float) -> dict[str, Any]:
    rows = prepared_rows(trial)
    # SkyRL requires at least one step per trajectory.
    steps = [response(row) for row in rows] or [stand_in()]
    reasons = [row["stop_reason"] or row["status"] for row in rows] or [trial["failure_cause"] or "nothing_sampled"]
    return {
        "prompt_token_ids": [step.prompt_ids for step in steps],
        "response_ids": [step.ids for step in steps],
        "rewards": [float(reward)] * len(steps),
        "loss_masks": [step.mask for step in steps],
        "stop_reasons": reasons,
        "rollout_logprobs": [step.logprobs for step in steps],
        "trajectory_ids": [vars(name)] * len(steps),
        "is_last_step": [place == len(steps) - 1 for place in range(len(steps))],
    }
