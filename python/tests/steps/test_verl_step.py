"""Tests steps of verl's trainer on the CPU, from verl's own entry point, with agents that run during the step.

`python -m verl.trainer.main_ppo` runs as it does for users, on Ray and with a TransferQueue. Its agent loop is
rolltap's. `verl_cpu` and `verl_plugin` have what the test adds.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from rolltap import Row
from steps.agents import REWARDS
from steps.conftest import Proxy
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
def records(proxy: Proxy, model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes the steps, for which verl runs the agent, and returns the folder with the engine's records."""
    folder = tmp_path_factory.mktemp("verl")
    loop = {"_target_": "rolltap.trainers.verl.AgentLoop", "agent": "steps.agents:agent", "url": proxy.admin}
    with ray_folder() as temporary:
        run(
            ["-m", "verl.trainer.main_ppo", *settings(folder, temporary, model_path, loop, len(REWARDS))],
            folder / "log.txt",
            ROLLTAP_TEST_RECORDS=str(folder),
            VERL_FILE_LOGGER_PATH=str(folder / "metrics.jsonl"),
            **PLATFORM,
        )
    return folder


@pytest.fixture(scope="module")
def rows(records: Path, proxy: Proxy) -> list[Row]:
    """Returns the rows of the trials that verl's agent loop ran."""
    return proxy.rows()


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


def test_the_loss_gets_the_captured_tokens(steps: list[list[Trained]], rows: list[Row]) -> None:
    assert [len(one) for one in steps] == [4, 1]
    check_captured([*steps[0], *steps[1]], rows)


def test_the_ratio_is_that_of_the_captured_logprobs(
    steps: list[list[Trained]], records: Path, policy: PreTrainedModel, model_path: str
) -> None:
    check_ratios(steps[0], policy)
    check_recomputed(steps[1], with_weights(model_path, records / "weights-0.pt"))


def test_each_branch_has_the_advantage_of_its_trial(steps: list[list[Trained]], rows: list[Row]) -> None:
    check_advantages([*steps[0], *steps[1]], rows)


def test_the_steps_make_rewarded_tokens_likelier(
    steps: list[list[Trained]], records: Path, policy: PreTrainedModel, model_path: str
) -> None:
    first, second = (with_weights(model_path, records / f"weights-{step}.pt") for step in range(2))
    check_learned(steps[0], policy, first)
    # The optimizer's momentum of the first step is in the second one too.
    check_learned([*steps[0], *steps[1]], policy, second)
