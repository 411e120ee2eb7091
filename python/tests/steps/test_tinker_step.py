"""Tests a step of tinker-cookbook's own loop on the CPU, with a captured group from the feed. See `tinker_step`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from rolltap import Row
from steps.conftest import Proxy, capture_group
from steps.records import Trained, check_advantages, check_captured, check_learned, check_ratios, with_weights
from steps.trainer_process import run

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "examples" / "learn"


@pytest.fixture(scope="module")
def rows(proxy: Proxy) -> list[Row]:
    """Captures a group, and returns its rows."""
    capture_group(proxy)
    return proxy.rows()


@pytest.fixture(scope="module")
def records(rows: list[Row], proxy: Proxy, model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes the step, and returns the folder with the client's records."""
    folder = tmp_path_factory.mktemp("tinker")
    # The example has a module `steps` too, so this folder's package is out of the search path.
    search = os.pathsep.join([str(EXAMPLE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    arguments = [str(HERE / "tinker_step.py"), proxy.admin, model_path, str(folder)]
    run(arguments, folder / "log.txt", PYTHONPATH=search)
    return folder


@pytest.fixture(scope="module")
def sequences(records: Path, rows: list[Row]) -> list[Trained]:
    """Returns the sequences that the loss function got."""
    starts = {tuple(row["token_ids"]): row["prompt_len"] for row in rows}
    return [of_datum(one, starts) for one in torch.load(records / "batch-0.pt")]


def of_datum(one: dict, starts: dict[tuple[int, ...], int]) -> Trained:
    """Returns a sequence. A datum has the inputs and, shifted by one, the targets. Its advantages are its mask."""
    ids = [*one["inputs"], one["target_tokens"][-1]]
    assert one["target_tokens"] == ids[1:]
    response = slice(starts[tuple(ids)] - 1, None)
    advantages = one["advantages"]
    assert not any(advantages[: response.start]), "no token of the prompt has an advantage"
    mask = [int(value != 0) for value in advantages[response]]
    return Trained(ids, mask, one["logprobs"][response], one["now"][response], advantages[response])


def test_the_loss_gets_the_captured_tokens(sequences: list[Trained], rows: list[Row]) -> None:
    check_captured(sequences, rows)


def test_the_ratio_is_that_of_the_captured_logprobs(sequences: list[Trained], policy: PreTrainedModel) -> None:
    check_ratios(sequences, policy)


def test_each_branch_has_the_advantage_of_its_trial(sequences: list[Trained], rows: list[Row]) -> None:
    # The cookbook subtracts the mean, and does not divide by the deviation.
    check_advantages(sequences, rows, is_divided=False)


def test_the_step_makes_rewarded_tokens_likelier(
    sequences: list[Trained], records: Path, policy: PreTrainedModel, model_path: str
) -> None:
    check_learned(sequences, policy, with_weights(model_path, records / "weights-0.pt"))
    assert not (records / "weights-1.pt").exists()
