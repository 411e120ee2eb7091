"""verifiers' own Trace: its graph walked into branches, and the exact floats of its wire."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Capture

from verifiers.v1.trace import WireTrace

from rolltap.trainers.verifiers import trace


def test_a_line_is_a_trace_whose_branches_are_ours(capture: Capture) -> None:
    for index, line in enumerate(capture.lines("verifiers")):
        made = trace(line)
        rows = capture.of(index)
        assert made.ok is rows[0]["reward_valid"]
        assert len(made.branches) == len(rows)
        for branch, row in zip(made.branches, rows):
            assert branch.token_ids == row["token_ids"]
            # A shared answer is one node; a trainer trains it in the first branch that has it.
            mask = row["trainable_mask"] if row["reward_valid"] else [0] * len(row["token_ids"])
            assert [int(trained) for trained in branch.sampled_mask] == mask
            captured = np.asarray(row["logprobs"], np.float32) * np.asarray(mask, np.float32)
            assert np.array_equal(np.asarray(branch.logprobs, np.float32), captured)
        if made.ok:
            assert made.reward == rows[0]["reward"]


def test_the_wire_and_an_exact_record_bring_back_the_same(capture: Capture) -> None:
    for line in capture.lines("verifiers"):
        made = trace(line)
        again = WireTrace.model_validate(made.to_record(float_decimals=None))
        assert [node.logprobs for node in again.nodes] == [node.logprobs for node in made.nodes]
        assert [node.token_ids for node in again.nodes] == [node.token_ids for node in made.nodes]
