"""Has the fixtures of all tests: a group captured from a simulator, and its exports for trainers.

tests/real/trainers.rs starts the proxy and sets two variables: ROLLTAP_TEST_ADMIN is the URL of the admin plane, and
ROLLTAP_TEST_PROGRAM is the path of the program `rolltap`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from conversations import conversations  # noqa: F401 (a fixture)
from job import job  # noqa: F401 (a fixture)
from trainer_code import checkout, find_trainers

from rolltap import AsyncClient, Client, OpenedTrial, Prepare, Row, Trial, read_lines, run_trial

find_trainers()
# These tests need a checkout of the trainer, which scripts/check-trainer names.
collect_ignore_glob = ["checkouts/*"] if checkout() is None else []


def limit(seconds: float) -> float:
    """Returns a timeout in seconds for this machine from that of a quiet machine; see tests/README.md."""
    return seconds * float(os.environ.get("ROLLTAP_TEST_SLOWNESS", "1"))


def chat(trial: OpenedTrial, messages: list[dict[str, str]], **asked: object) -> dict[str, str]:
    """Makes a call as an agent does, and returns the message of the answer."""
    body = {"model": "sim", "messages": messages, "max_tokens": 12, **asked}
    answer = httpx.post(f"{trial.base_urls['openai']}/chat/completions", json=body, timeout=limit(30))
    answer.raise_for_status()
    message = answer.json()["choices"][0]["message"]
    return {"role": "assistant", "content": message["content"]}


def two_turns(trial: OpenedTrial, *lasts: str) -> None:
    """Makes a conversation with each of `lasts` as its second turn. With several, the trial forks."""
    begun = [{"role": "user", "content": "What lies in the folder?"}]
    begun.append(chat(trial, begun))
    for last in lasts:
        chat(trial, [*begun, {"role": "user", "content": last}])


def masked_end(trial: OpenedTrial) -> None:
    """Makes a conversation whose last answer is constrained and so not trained."""
    begun = [{"role": "user", "content": "What lies in the folder?"}]
    begun.append(chat(trial, begun))
    chat(trial, [*begun, {"role": "user", "content": "List it."}], response_format={"type": "json_object"})


def export(program: str, folder: Path, format: str, *arguments: str) -> Path:
    """Exports the folder's rollouts.jsonl with the program itself, and returns the path of the export."""
    path = folder / f"{format}.{uuid.uuid4().hex[:8]}"
    source = folder / "rollouts.jsonl"
    command = [program, "export", str(source), "--format", format, "-o", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


@dataclass(frozen=True)
class Capture:
    """Has a group of three trials: one with one branch, one that forked, and one whose verifier failed."""

    group_id: str
    rows: list[Row]
    folder: Path
    program: str

    def of(self, sample_index: int) -> list[Row]:
        """Returns the branches of the trial with this index."""
        return [row for row in self.rows if row["sample_index"] == sample_index]

    @property
    def trained(self) -> list[Row]:
        """Returns the branches of the two trials with a reward."""
        return [row for row in self.rows if row["reward_valid"]]

    def export(self, format: str, *arguments: str) -> Path:
        """Exports the group in this format with the program itself, and returns the path."""
        return export(self.program, self.folder, format, *arguments)

    def lines(self, format: str, *arguments: str) -> list[dict]:
        """Exports the group in this format and returns the lines."""
        return list(read_lines(self.export(format, *arguments)))


@pytest.fixture(scope="session")
def admin() -> str:
    """Returns the URL of the proxy's admin plane."""
    return os.environ["ROLLTAP_TEST_ADMIN"]


@pytest.fixture(scope="session")
def client(admin: str) -> Iterator[Client]:
    with Client(admin) as client:
        yield client


@pytest.fixture(scope="session")
def capture(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    group_id = f"captured-{uuid.uuid4().hex}"
    client.set_policy(7)
    rows: list[Row] = []
    for index, lasts in enumerate([("Open it.",), ("Open it.", "Leave it closed."), ("Open it.",)]):
        sampling = {"temperature": 1.0}
        trial = client.open_trial(
            "org/folder", group_id=group_id, group_size=3, sample_index=index, sampling=sampling
        )
        two_turns(trial, *lasts)
        client.seal(trial.trial_id)
        if index < 2:
            client.reward(trial.trial_id, {"reward": 1.0 - index, "style": 0.5})
        else:
            client.reward(trial.trial_id, {}, valid=False, failure_cause="VerifierTimeoutError")
        rows += client.rollout(trial.trial_id)
    folder = tmp_path_factory.mktemp("exports")
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "rollouts.jsonl").write_text(text)
    return Capture(group_id, rows, folder, os.environ["ROLLTAP_TEST_PROGRAM"])


@dataclass(frozen=True)
class OneTrial:
    """Has a trial as in the feed, and exports it."""

    trial: Trial
    folder: Path
    program: str
    admin: str

    def prepared(self, prepare: Prepare = Prepare()) -> Trial:
        """Returns the trial with its prepared rows, as an adapter gets it."""
        with Client(self.admin) as client:
            prepared = client.prepared(self.trial["trial_id"], prepare)
        return {**self.trial, "rows": [*prepared["rows"]], "prepared": prepared}

    def line(self, format: str, *arguments: str) -> dict:
        """Exports the trial in this format and returns the only line."""
        (line,) = read_lines(export(self.program, self.folder, format, *arguments))
        return line


@pytest.fixture(scope="session")
def ends_masked(capture: Capture, admin: str, tmp_path_factory: pytest.TempPathFactory) -> OneTrial:
    """Runs a trial whose last answer is not trained."""

    async def agent(trial: OpenedTrial, task: object) -> float:
        await asyncio.to_thread(masked_end, trial)
        return 1.0

    async def run() -> Trial:
        async with AsyncClient(admin) as client:
            return await run_trial(client, agent, {}, task_id="ends-masked", group_id=uuid.uuid4().hex, group_size=1)

    trial = asyncio.run(run())
    folder = tmp_path_factory.mktemp("ends-masked")
    (folder / "rollouts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in trial["rows"]))
    return OneTrial(trial, folder, capture.program, admin)


@pytest.fixture
def unnumbered(client: Client, capture: Capture) -> Iterator[int]:
    """Sets a policy label that is no number, like that of an upstream. Yields the ordinal of the version."""
    client.set_policy("default")
    yield client.policy()["version"]
    client.set_policy(7)


def of_trained(row: Row, values: list) -> list:
    """Returns the values at the tokens that the row trains."""
    return [value for value, trained in zip(values, row["loss_mask"], strict=True) if trained]


def longest(rows: list[Row]) -> Row:
    """Returns the branch with the most trainable tokens, with all of them in its loss mask."""
    row = max(rows, key=lambda row: sum(row["trainable_mask"]))
    return {**row, "loss_mask": row["trainable_mask"]}
