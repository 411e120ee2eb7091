"""Has a proxy in front of a real model. A model of this size samples and trains on a CPU."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from conftest import two_turns
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from rolltap import Client, Row
from steps.agents import LASTS, REWARDS
from steps.policy_server import Policy, served

LISTENS = re.compile(r"^admin plane listens on (\S+)$")


@dataclass(frozen=True)
class Proxy:
    """Has the program and the admin plane of a running proxy."""

    program: str
    admin: str

    def rows(self) -> list[Row]:
        """Returns the rows of all complete trials, as they were captured."""
        with Client(self.admin) as client:
            return [row for trial in client.rollouts(wait=0, follow=False) for row in trial["rows"]]


def capture_group(proxy: Proxy) -> None:
    """Runs the trials of the tests' agent as one group."""
    with Client(proxy.admin) as client:
        for index, (reward, lasts) in enumerate(zip(REWARDS, LASTS, strict=True)):
            trial = client.open_trial("org/folder", group_id="group", group_size=len(REWARDS), sample_index=index)
            two_turns(trial, *lasts)
            client.seal(trial.trial_id)
            client.reward(trial.trial_id, {"reward": reward})


@pytest.fixture(scope="session")
def model_path() -> str:
    """Returns the folder of the model that samples and that each trainer trains."""
    return os.environ["ROLLTAP_TESTBED_MODEL"]


@pytest.fixture(scope="session")
def policy(model_path: str) -> PreTrainedModel:
    """Returns the model as it samples."""
    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def proxy(policy: PreTrainedModel, model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Starts a proxy for the trials of one module, in front of a server of the model."""
    program, data = os.environ["ROLLTAP_TEST_PROGRAM"], tmp_path_factory.mktemp("proxy")
    ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    with served(Policy(policy, AutoTokenizer.from_pretrained(model_path), seed=5)) as upstream:
        command = [program, "proxy", "--upstream", upstream, "--data", str(data), *ports]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            admin = next(found[1] for line in process.stdout if (found := LISTENS.match(line.strip())))
            with Client(admin) as client:
                # verl counts the weights before any step as 0.
                client.set_policy(0)
            yield Proxy(program, admin)
        finally:
            process.terminate()
            process.wait()
