"""Tests a step of SkyRL's trainer on the CPU with an exported group.

SkyRL's experiment, trainer, FSDP worker, loss and optimizer run as they do for users, on Ray. See `skyrl_step`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import export
from transformers import PreTrainedModel

from steps.conftest import Group
from steps.records import Trained, check_advantages, check_captured, check_learned, check_ratios, with_weights
from steps.trainer_process import ray_folder, run


@pytest.fixture(scope="module")
def records(group: Group, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes the step, and returns the folder with the worker's records."""
    folder = tmp_path_factory.mktemp("skyrl")
    path = export(group.program, group.folder, "skyrl")
    with ray_folder() as temporary:
        arguments = ["-m", "steps.skyrl_step", str(path), str(folder), group.model_path, str(temporary)]
        run(arguments, folder / "log.txt", ROLLTAP_TEST_RECORDS=str(folder))
    return folder


@pytest.fixture(scope="module")
def sequences(records: Path) -> list[Trained]:
    """Returns the sequences that SkyRL's loss function got, in micro-batches."""
    return [one for path in sorted(records.glob("batch-*.pt")) for one in of_batch(torch.load(path))]


def of_batch(batch: dict) -> list[Trained]:
    """Returns the sequences of a micro-batch. SkyRL pads sequences and responses on the left."""
    made = []
    for place, status in enumerate(batch["metrics"]["loss_fn_outputs"]):
        now = status["logprobs"]
        kept = batch["attention_mask"][place].bool()
        mask, captured, advantages = (
            batch[name][place][-len(now) :].tolist() for name in ("loss_mask", "rollout_logprobs", "advantages")
        )
        assert batch["loss_mask"][place].sum() == sum(mask), "the mask has nothing outside of the response"
        ids = batch["sequences"][place][kept].tolist()
        made.append(Trained(ids, [int(one) for one in mask], captured, now, advantages))
    return made


def test_the_loss_gets_the_captured_tokens(sequences: list[Trained], group: Group) -> None:
    check_captured(sequences, group.rows)


def test_the_ratio_is_that_of_the_captured_logprobs(sequences: list[Trained], policy: PreTrainedModel) -> None:
    check_ratios(sequences, policy)


def test_each_branch_has_the_advantage_of_its_trial(sequences: list[Trained], group: Group) -> None:
    # SkyRL's reduction `token_mean` is a division of the advantages by the number of trained tokens.
    check_advantages(sequences, group.rows, 1 / sum(len(one.places) for one in sequences))


def test_the_step_makes_rewarded_tokens_likelier(
    sequences: list[Trained], records: Path, policy: PreTrainedModel, group: Group
) -> None:
    check_learned(sequences, policy, with_weights(group.model_path, records / "weights-0.pt"))
    assert not (records / "weights-1.pt").exists()
