"""Tests a step of SkyRL's trainer on the CPU with a captured and exported group.

SkyRL's experiment, trainer, FSDP worker, loss and optimizer run as they do for users, on Ray. See `skyrl_step`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from conftest import export
from transformers import PreTrainedModel

from rolltap import Row
from steps.conftest import Proxy, capture_group
from steps.records import Trained, check_advantages, check_captured, check_learned, check_ratios, with_weights
from steps.trainer_process import ray_folder, run


@pytest.fixture(scope="module")
def rows(proxy: Proxy) -> list[Row]:
    """Captures a group, and returns its rows."""
    capture_group(proxy)
    return proxy.rows()


@pytest.fixture(scope="module")
def records(rows: list[Row], proxy: Proxy, model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exports the group, makes the step, and returns the folder with the worker's records."""
    folder = tmp_path_factory.mktemp("skyrl")
    (folder / "rollouts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    path = export(proxy.program, folder, "skyrl")
    with ray_folder() as temporary:
        arguments = ["-m", "steps.skyrl_step", str(path), str(folder), model_path, str(temporary)]
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


def test_the_loss_gets_the_captured_tokens(sequences: list[Trained], rows: list[Row]) -> None:
    check_captured(sequences, rows)


def test_the_ratio_is_that_of_the_captured_logprobs(sequences: list[Trained], policy: PreTrainedModel) -> None:
    check_ratios(sequences, policy)


def test_each_branch_has_the_advantage_of_its_trial(sequences: list[Trained], rows: list[Row]) -> None:
    # SkyRL's reduction `token_mean` is a division of the advantages by the number of trained tokens.
    check_advantages(sequences, rows, scale=1 / sum(len(one.places) for one in sequences))


def test_the_step_makes_rewarded_tokens_likelier(
    sequences: list[Trained], records: Path, policy: PreTrainedModel, model_path: str
) -> None:
    check_learned(sequences, policy, with_weights(model_path, records / "weights-0.pt"))
    assert not (records / "weights-1.pt").exists()
