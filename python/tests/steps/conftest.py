"""Has the group of trials that each trainer makes a step with."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from conftest import export
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from rolltap import Row, read_lines
from steps.sampled import Branch, Sampler, rows_of_trial

REWARDS = [1.0, 0.0, 0.25, 0.5]


@dataclass(frozen=True)
class Group:
    """Has a group of four trials with the rewards `REWARDS`. The trial with reward 0 forked."""

    rows: list[Row]
    folder: Path
    program: str
    model_path: str

    def lines(self, format: str, *arguments: str) -> list[dict]:
        """Exports the group in this format with the program itself and returns the lines."""
        return list(read_lines(export(self.program, self.folder, format, *arguments)))


@pytest.fixture(scope="session")
def model_path() -> str:
    """Returns the folder of the model that samples and that each trainer trains."""
    return os.environ["ROLLTAP_TESTBED_MODEL"]


@pytest.fixture(scope="session")
def policy(model_path: str) -> PreTrainedModel:
    """Returns the model as it is before each step."""
    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def group(policy: PreTrainedModel, model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Group:
    """Samples the group, and has `rolltap check` check its rows."""
    sampler = Sampler(policy, AutoTokenizer.from_pretrained(model_path), seed=5)
    forked = sampler.turn(Branch(), "What lies in the folder?")
    branches = [
        [sampler.turn(sampler.turn(Branch(), "What lies in the folder?"), "Open it.")],
        [sampler.turn(forked.copy(), "Open it."), sampler.turn(forked.copy(), "Leave it closed.")],
        [sampler.turn(Branch(), "What lies in the folder?")],
        [sampler.turn(sampler.turn(Branch(), "What lies in the folder?"), "Now list it.")],
    ]
    rows = [
        row
        for index, (made, reward) in enumerate(zip(branches, REWARDS, strict=True))
        for row in rows_of_trial(made, "group-1", len(REWARDS), index, reward)
    ]
    folder = tmp_path_factory.mktemp("sampled")
    path = folder / "rollouts.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    program = os.environ["ROLLTAP_TEST_PROGRAM"]
    checked = subprocess.run([program, "check", str(path)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return Group(rows, folder, program, model_path)
