"""Has a job whose groups test every rule about baselines, captured by a proxy of its own, and its exports."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from simulated import captured

from rolltap import Client, Prepare, Proxy, Trial, read_lines

FAILED = None
"""The reward of a trial whose reward does not measure the agent."""


@dataclass(frozen=True)
class Planned:
    """Has the reward of a trial, and whether the trial samples tokens."""

    reward: float | None
    samples: bool = True


def rewards(*values: float | None) -> list[Planned]:
    return [Planned(value) for value in values]


GROUPS = {
    "sound": rewards(1.0, 0.0, 0.0, 0.5),
    "no variance": rewards(1.0, 1.0, 1.0, 1.0),
    "lone survivor": rewards(1.0, FAILED, FAILED, FAILED),
    "half failed": rewards(1.0, 0.0, FAILED, FAILED),
    "wholly failed": rewards(FAILED, FAILED, FAILED, FAILED),
    "judged without tokens": [*rewards(1.0, 1.0, 0.0), Planned(0.0, samples=False)],
    "failed without tokens": [*rewards(1.0, 0.5), Planned(FAILED, samples=False), Planned(FAILED)],
    "two": rewards(1.0, 0.0),
}
"""The trials of each group by its name. A trainer trains those of all groups except the lone survivor and the failed."""

UNTRAINED = {"lone survivor", "wholly failed"}


@dataclass(frozen=True)
class Job:
    """Has the data directory of the job."""

    data: Path
    program: str

    def lines(self, format: str, *arguments: str) -> list[dict]:
        """Exports the job in this format and returns the lines."""
        return list(read_lines(self.export(format, *arguments)))

    def export(self, format: str, *arguments: str) -> Path:
        """Exports the job in this format and returns the path."""
        path = self.data.parent / f"{format}.{uuid.uuid4().hex[:8]}"
        command = [self.program, "export", str(self.data), "--quiet", "--format", format, "-o", str(path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return path


    def trials(self) -> dict[str, list[Trial]]:
        """Returns the trials of each group as a live adapter reads them from the feed."""
        from conftest import limit

        # No call is made, so nothing listens at the upstream.
        with Proxy("http://127.0.0.1:1", data=self.data, program=self.program, timeout=limit(30)) as proxy:
            with proxy.client() as client:
                found = list(client.rollouts(wait=0, closed_groups=True, follow=False, prepare=Prepare()))
        return {group: [trial for trial in found if trial["group_id"] == group] for group in GROUPS}


def clean(group: str) -> list[float]:
    """Returns the rewards of the group's trials that have one: the data of a job in which nothing failed."""
    return [trial.reward for trial in GROUPS[group] if trial.reward is not None]


def trained(group: str) -> list[int]:
    """Returns the samples of the group that a trainer trains."""
    trials = enumerate(GROUPS[group])
    return [] if group in UNTRAINED else [index for index, trial in trials if trial.samples and trial.reward is not None]


def expected(rule) -> dict[tuple[str, int], float]:
    """Returns the advantage of each trained trial, by group and sample. `rule` has those of a list of rewards."""
    made = {}
    for group, trials in GROUPS.items():
        if group not in UNTRAINED:
            advantages = iter(rule(clean(group)))
            of_trials = [None if trial.reward is None else float(next(advantages)) for trial in trials]
            made |= {(group, index): of_trials[index] for index in trained(group)}
    return made


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Runs the job. tests/conftest.py makes this fixture known to all tests."""
    program = os.environ["ROLLTAP_TEST_PROGRAM"]
    data = tmp_path_factory.mktemp("baselines") / "data"
    with captured(program, data) as client:
        for group, trials in GROUPS.items():
            for index, trial in enumerate(trials):
                _run(client, group, len(trials), index, trial)
    yield Job(data, program)


def _run(client: Client, group: str, size: int, index: int, planned: Planned) -> None:
    from conftest import chat

    trial = client.open_trial(f"org/{group}", group_id=group, group_size=size, sample_index=index)
    if planned.samples:
        chat(trial, [{"role": "user", "content": f"What lies in folder {group}?"}])
    client.seal(trial.trial_id)
    if planned.reward is None:
        client.reward(trial.trial_id, {}, valid=False, failure_cause="VerifierTimeoutError")
    else:
        client.reward(trial.trial_id, {"reward": planned.reward})
