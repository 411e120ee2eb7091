"""Tests that each check of a step fails for a step that trains something else than the captured rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from rolltap import Row
from steps.conftest import Proxy, capture_group
from steps.records import Trained, check_advantages, check_captured, check_learned, check_ratios, logprobs


@pytest.fixture(scope="module")
def rows(proxy: Proxy) -> list[Row]:
    """Captures a group, and returns its rows."""
    capture_group(proxy)
    return proxy.rows()


@pytest.fixture(scope="module")
def sound(rows: list[Row], policy: PreTrainedModel) -> list[Trained]:
    """Returns the sequences of a sound step. Their advantages are the rewards less their mean."""
    made = []
    for row in rows:
        start = row["prompt_len"]
        ids, mask = row["token_ids"], row["loss_mask"][start:]
        now = logprobs(policy, ids)[start - 1 :]
        made.append(Trained(ids, mask, row["logprobs"][start:], now, [(row["reward"] - 0.5) * one for one in mask]))
    return made


def rolled(values: list) -> list:
    return [*values[-1:], *values[:-1]]


def next_float(values: list[float]) -> list[float]:
    return [float(np.nextafter(np.float32(value), np.float32(-99))) for value in values]


def test_a_sound_step_passes(sound: list[Trained], rows: list[Row], policy: PreTrainedModel) -> None:
    check_captured(sound, rows)
    check_ratios(sound, policy)
    check_advantages(sound, rows, is_divided=False)


@pytest.mark.parametrize(
    ("name", "damage"), [("ids", rolled), ("mask", rolled), ("captured", rolled), ("captured", next_float)]
)
def test_other_tokens_masks_or_logprobs_are_found(
    sound: list[Trained], rows: list[Row], name: str, damage: Callable[[list], Any]
) -> None:
    damaged = [replace(one, **{name: damage(getattr(one, name))}) for one in sound]
    with pytest.raises(AssertionError):
        check_captured(damaged, rows)


def test_a_missing_row_is_found(sound: list[Trained], rows: list[Row]) -> None:
    with pytest.raises(AssertionError, match="1 rows are not trained"):
        check_captured(sound[1:], rows)


@pytest.mark.parametrize("name", ["captured", "now"])
def test_a_ratio_of_other_tokens_is_found(sound: list[Trained], policy: PreTrainedModel, name: str) -> None:
    with pytest.raises(AssertionError):
        check_ratios([replace(one, **{name: rolled(getattr(one, name))}) for one in sound], policy)


def test_the_advantage_of_another_trial_is_found(sound: list[Trained], rows: list[Row]) -> None:
    with pytest.raises(AssertionError):
        check_advantages([replace(sound[0], advantages=sound[-1].advantages), *sound[1:]], rows, is_divided=False)


def test_a_step_against_the_gradient_is_found(sound: list[Trained], policy: PreTrainedModel) -> None:
    after = {sign: copy.deepcopy(policy) for sign in (-1, 1)}
    for sign, model in after.items():
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for one in sound:
            logits = model(input_ids=torch.tensor([one.ids])).logits[0, -len(one.mask) - 1 : -1]
            chosen = torch.log_softmax(logits, dim=-1).gather(-1, torch.tensor(one.ids[-len(one.mask) :])[:, None])[:, 0]
            (-sign * chosen * torch.tensor(one.advantages)).sum().backward()
        optimizer.step()
    check_learned(sound, policy, after[1])
    for unlearned in (after[-1], policy):
        with pytest.raises(AssertionError):
            check_learned(sound, policy, unlearned)
