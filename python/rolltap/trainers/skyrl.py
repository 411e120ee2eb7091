"""Step-wise generator output for SkyRL (package `skyrl` 0.4.0), from an export or from agents that run live.

A line of `rolltap export --format skyrl` is a trajectory, and each of its steps is a branch. Train with
`generator.step_wise_trajectories=true`: SkyRL then takes the advantage of a trajectory's last step for all its steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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

    The agent gets SkyRL's `prompt`, `env_class` and `env_extras`. A trajectory whose reward does not measure the agent is
    left out of its group, and SkyRL compares the others. If fewer than two of several trajectories have a reward, the
    group remains, because SkyRL counts prompts, and trains nothing: SkyRL would train a single one on its raw reward. A
    trajectory that sampled nothing counts in the baseline with its reward. If the proxy refuses a trial, the batch
    fails after all other trials have ended.

    `left_out` and `masked` have the numbers of trajectories that were treated so.
    """

    def __init__(
        self, agent: Agent, url: str = DEFAULT_URL, *, token: str | None = None, **opening: Any
    ) -> None:
        self._agent = agent
        self._url = url
        self._token = token
        self._opening = opening
        self.left_out = 0
        self.masked = 0

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
        return generator_output(self._lines(trials, names))

    def _lines(self, trials: Sequence[Trial], names: Sequence[TrajectoryID]) -> list[dict[str, Any]]:
        rewarded = Counter(
            name.instance_id for trial, name in zip(trials, names, strict=True) if earned(trial) is not None
        )
        asked = Counter(name.instance_id for name in names)
        written: set[str] = set()
        lines = []
        for trial, name in zip(trials, names, strict=True):
            group = name.instance_id
            trains = rewarded[group] >= min(2, asked[group])
            # A group that trains nothing needs one trajectory, so that SkyRL finds the prompt.
            if (earned(trial) is None if trains else group in written):
                self.left_out += 1
                continue
            self.masked += not trains
            written.add(group)
            lines.append(_line(trial, name, trains))
        return lines


def _task(batch: GeneratorInput, place: int) -> dict[str, Any]:
    extras = batch.get("env_extras")
    return {
        "prompt": batch["prompts"][place],
        "env_class": batch["env_classes"][place],
        "env_extras": extras[place] if extras else {},
    }


def _line(trial: Trial, name: TrajectoryID, trains: bool) -> dict[str, Any]:
    reward, rows = earned(trial), prepared_rows(trial)
    # SkyRL requires at least one step per trajectory.
    steps = [response(row) for row in rows] or [stand_in()]
    reasons = [row["stop_reason"] or row["status"] for row in rows] or [trial["failure_cause"] or "nothing_sampled"]
    return {
        "prompt_token_ids": [step.prompt_ids for step in steps],
        "response_ids": [step.ids for step in steps],
        "rewards": [0.0 if reward is None else float(reward)] * len(steps),
        "loss_masks": [step.mask if trains else [0] * len(step.mask) for step in steps],
        "stop_reasons": reasons,
        "rollout_logprobs": [step.logprobs for step in steps],
        "trajectory_ids": [vars(name)] * len(steps),
        "is_last_step": [place == len(steps) - 1 for place in range(len(steps))],
    }
