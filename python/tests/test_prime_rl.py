"""Tests prime-rl's micro-batches and configuration by their schemas, since prime-rl is in no package index."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from conftest import Capture
from prime_rl.configs.rl import RLConfig
from prime_rl.transports.rollouts.types import MicroBatch
from pydantic import ValidationError

from rolltap.trainers.prime_rl import micro_batches, place
from rolltap.trainers.verifiers_run import RunMode
from rolltap.trainers.verifiers_terminal import HarborTasksetConfig


def test_a_file_holds_packed_branches(capture: Capture) -> None:
    (made,) = micro_batches(capture.export("prime-rl"))
    rows = capture.trained
    lengths = [len(row["token_ids"]) for row in rows]
    assert made.seq_lens == made.sequence_lengths == lengths
    columns = (made.input_ids, made.loss_mask, made.advantages, made.inference_logprobs, made.position_ids)
    assert {len(column) for column in (*columns, made.temperatures, made.env_names)} == {sum(lengths)}
    start = 0
    for row, length, advantage in zip(rows, lengths, [0.5, -0.5, -0.5], strict=True):
        ids, mask, advantages, logprobs, positions = (column[start : start + length] for column in columns)
        start += length
        assert ids == row["token_ids"] and positions == list(range(length))
        assert [int(trained) for trained in mask] == row["loss_mask"]
        weights = np.asarray(row["loss_mask"], np.float32)
        assert advantages == pytest.approx((weights * advantage).tolist())
        captured = np.asarray(row["logprobs"], np.float32) * weights
        assert np.array_equal(np.asarray(logprobs, np.float32), captured)


def test_the_file_goes_where_the_trainer_looks(capture: Capture, tmp_path) -> None:
    exported = capture.export("prime-rl")
    whole = exported.read_bytes()
    placed = place(exported, tmp_path, step=3)
    assert placed == tmp_path / "rollouts" / "step_3" / "rank_0.bin"
    assert placed.read_bytes() == whole and not exported.exists()
    # The trainer's decoder accepts a list of positional micro-batches, and nothing after the list.
    assert len(msgspec.msgpack.Decoder(list[MicroBatch]).decode(whole)) == 1


def test_the_configuration_names_our_tasks_and_harness() -> None:
    text = (Path(__file__).parents[2] / "configs/prime-rl.toml").read_text()
    config = RLConfig.model_validate(tomllib.loads(text))
    (source,) = config.orchestrator.train.source
    assert isinstance(source.env.taskset, HarborTasksetConfig)
    mode = source.env.agent.harness.mode
    assert isinstance(mode, RunMode)
    assert (mode.agent, mode.environment, mode.max_turns) == ("terminal", "docker", 20)
    assert source.env.agent.runtime.type == "subprocess"
    with pytest.raises(ValidationError, match="max_turn"):
        RLConfig.model_validate(tomllib.loads(text.replace("max_turns", "max_turn")))
