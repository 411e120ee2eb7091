"""Tests torchforge's episodes by their schema and its batching, since its package is empty."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Capture, of_trained
from forge.grpo_app import Episode, collate

from rolltap.trainers.torchforge import episode

# The simulator samples no token with this id.
PAD = 2**31 - 1
LENGTHS = {"pad_id": PAD, "request_len": 256, "response_len": 32}


def test_the_episodes_train_what_was_captured(capture: Capture) -> None:
    lines = capture.lines("torchforge")
    episodes = [episode(line, Episode, **LENGTHS) for line in lines]
    batch = collate(episodes)
    assert batch["tokens"].shape == (5, 288)
    mask = batch["padding_mask"]
    ids = [token for row in capture.trained for token in of_trained(row, row["token_ids"])]
    assert batch["response"][mask].tolist() == ids
    captured = [logprob for row in capture.trained for logprob in of_trained(row, row["logprobs"])]
    logprobs = [logprob for one in episodes for logprob in one.completion.logprobs.tolist()]
    assert np.array_equal(np.float32(logprobs), np.float32(captured))
    for line, row in zip(lines, batch["tokens"]):
        assert row[256 - len(line["prompt_ids"]) : 256].tolist() == line["prompt_ids"]


def test_every_call_has_the_advantage_and_the_version_of_its_trial(capture: Capture) -> None:
    episodes = [episode(line, Episode, **LENGTHS) for line in capture.lines("torchforge")]
    one = 0.5 / (0.5**0.5 + 1e-6)
    assert [made.advantage for made in episodes] == pytest.approx([one, one, -one, -one, -one])
    assert [made.reward for made in episodes] == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert {made.policy_version for made in episodes} == {7}
    assert len({made.episode_id for made in episodes}) == 5


@pytest.mark.parametrize(("name", "limit"), [("request_len", 4), ("response_len", 2)])
def test_an_episode_that_does_not_fit_is_refused(capture: Capture, name: str, limit: int) -> None:
    line = capture.lines("torchforge")[0]
    with pytest.raises(ValueError, match=f"the limit is {limit}; raise max_req_tokens"):
        episode(line, Episode, **{**LENGTHS, name: limit})
