"""Tests steps of verl's trainer on the CPU with an exported group, from verl's own entry point.

`python -m verl.trainer.main_ppo` runs as it does for users, on Ray and with a TransferQueue. `verl_cpu` and
`verl_plugin` have what the test adds.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import export
from transformers import PreTrainedModel

from steps.conftest import REWARDS, Group
from steps.records import (
    Trained,
    check_advantages,
    check_captured,
    check_learned,
    check_ratios,
    check_recomputed,
    with_weights,
)
from steps.trainer_process import ray_folder, run
from steps.verl_settings import settings

PLATFORM = {"VERL_USE_EXTERNAL_MODULES": "steps.verl_cpu", "VERL_PLATFORM": "cpu"}


@pytest.fixture(scope="module")
def records(group: Group, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes the steps, and returns the folder with the engine's records."""
    folder = tmp_path_factory.mktemp("verl")
    loop = {"_target_": "steps.verl_plugin.Replay", "path": str(export(group.program, group.folder, "verl"))}
    with ray_folder() as temporary:
        run(
            ["-m", "verl.trainer.main_ppo", *settings(folder, temporary, group.model_path, loop, len(REWARDS))],
            folder / "log.txt",
            ROLLTAP_TEST_RECORDS=str(folder),
            VERL_FILE_LOGGER_PATH=str(folder / "metrics.jsonl"),
            **PLATFORM,
        )
    return folder


@pytest.fixture(scope="module")
def steps(records: Path) -> list[list[Trained]]:
    """Returns the sequences that verl's loss function got, by step of the optimizer.

    verl splits a batch by rows, four for each step. The group has five, so verl adds three of its own to the second
    step. They train nothing, and are left out here.
    """
    made = []
    for path in sorted(records.glob("batch-*.pt")):
        batch = torch.load(path)
        made.append([one for one in map(of_row, *(batch[name] for name in COLUMNS)) if one.places])
    return made


COLUMNS = ["prompts", "responses", "input_ids", "response_mask", "rollout_log_probs", "old_log_probs", "advantages", "log_probs"]


def of_row(
    prompt: list[int],
    response: list[int],
    ids: list[int],
    mask: list[int],
    rollout: list[float],
    old: list[float],
    advantages: list[float],
    now: list[float],
) -> Trained:
    """Returns a sequence. `now` has the logprob of the next token at each token of prompt and response."""
    assert ids == prompt + response and rollout == old
    return Trained(ids, mask, old, now[len(prompt) - 1 : -1], advantages)


def test_the_loss_gets_the_captured_tokens(steps: list[list[Trained]], group: Group) -> None:
    assert [len(one) for one in steps] == [4, 1]
    check_captured([*steps[0], *steps[1]], group.rows)


def test_the_ratio_is_that_of_the_captured_logprobs(
    steps: list[list[Trained]], records: Path, policy: PreTrainedModel, group: Group
) -> None:
    check_ratios(steps[0], policy)
    check_recomputed(steps[1], with_weights(group.model_path, records / "weights-0.pt"))


def test_each_branch_has_the_advantage_of_its_trial(steps: list[list[Trained]], group: Group) -> None:
    check_advantages([*steps[0], *steps[1]], group.rows)


def test_each_step_makes_rewarded_tokens_likelier(
    steps: list[list[Trained]], records: Path, policy: PreTrainedModel, group: Group
) -> None:
    first, second = (with_weights(group.model_path, records / f"weights-{step}.pt") for step in range(2))
    check_learned(steps[0], policy, first)
    check_learned(steps[1], first, second)
