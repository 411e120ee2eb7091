"""Tests the trainer without vLLM: what it stores and when it stops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import state as states
import torch
import trainer as module
from model import make_model, make_tokenizer, save
from processes import Stopped
from rollouts import Sample, Taken
from trainer import Settings, Trainer


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: list[Sample]) -> Trainer:
    """Returns a trainer in a run's folder whose export returns these samples."""
    made = _trainer(tmp_path)
    monkeypatch.setattr(module, "export", lambda *_: samples)
    return made


def _trainer(folder: Path, said: Sequence[str] = ()) -> Trainer:
    taught = folder / "taught"
    if not taught.exists():
        tokenizer = make_tokenizer(["some words", "and some more"])
        save(make_model(tokenizer, seed=3), tokenizer, taught)
    return Trainer(taught, folder, Settings(1e-3, 4, 0.9, 0.05, "none", 0, "rolltap"), list(said).append)


def taken(cursor: str, samples: Sequence[Sample]) -> Taken:
    facts: dict[str, Any] = {"reward": 1.0, "reward_valid": True, "failure_cause": None, "group_id": "g", "rows": []}
    trials: list[Any] = [{"trial_id": one.trial_id, **facts} for one in samples]
    return Taken(cursor, trials, ["straggler"])


def test_a_trainer_that_is_killed_before_it_kept_a_step_makes_it_again(
    trainer: Trainer, samples: list[Sample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer.step(taken("5", samples))
    kept = torch.cat([value.flatten() for value in trainer.state.model().values()])

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as moment:
        moment.setattr(states.State, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            trainer.step(taken("9", samples))
    again = _trainer(tmp_path)
    assert again.state.step == 1 and again.state.cursor == "5"
    assert again.state.trained == [one.trial_id for one in samples]
    assert again.state.left_out == {"straggler": "late"}
    assert torch.equal(kept, torch.cat([value.flatten() for value in again.state.model().values()]))


def test_the_same_step_from_the_same_state_gives_the_same_weights(
    trainer: Trainer, samples: list[Sample], tmp_path: Path
) -> None:
    trainer.step(taken("5", samples))
    again = _trainer(tmp_path)
    for one in (trainer, again):
        one.step(taken("9", samples))
    for name, value in trainer.state.model().items():
        assert torch.equal(value, again.state.model()[name])


def test_weights_that_are_no_numbers_train_nothing_and_stop_the_run(trainer: Trainer, samples: list[Sample]) -> None:
    with torch.no_grad():
        next(trainer._policy.parameters()).fill_(float("nan"))
    for cursor in ("1", "2"):
        assert trainer.step(taken(cursor, samples))["not_finite"] == 1.0
    with pytest.raises(Stopped, match="learning-rate"):
        trainer.step(taken("3", samples))
    assert trainer.state.trained == []
    assert trainer.state.left_out["trial-0"] == "gradient_not_finite" and trainer.state.cursor == "3"


def test_stale_tokens_are_recomputed_by_the_weights_of_their_version(
    trainer: Trainer, samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = [Sample(one.trial_id, one.ids, one.mask, one.logprobs, [0] * len(one.ids), one.advantage) for one in samples]
    monkeypatch.setattr(module, "export", lambda *_: fresh)
    assert trainer.step(taken("5", fresh))["logprob_diff_max"] < 1e-4
    # One step later the weights differ. The same tokens must be recomputed with the weights of version 0.
    row = trainer.step(taken("9", fresh))
    assert row["staleness_max"] == 1.0 and row["logprob_diff_max"] < 1e-4 and row["kl_start"] > 0.0
