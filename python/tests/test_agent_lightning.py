"""Tests with Agent Lightning's own adapter to verl, its rule of advantages, and its server of events."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import uvicorn
from agentlightning.schemas import RolloutState
from agentlightning.server.app import create_app
from agentlightning.verl.agl_rollout_manager import AglRolloutManager
from conftest import Capture, limit, of_trained, two_turns
from own_code.agent_lightning import adapter, with_advantages

from rolltap.trainers.agent_lightning import Runner, completed_rollout


@pytest.mark.parametrize("level", ["transition", "trajectory"])
def test_the_adapter_trains_what_was_captured(capture: Capture, level: str) -> None:
    lines = capture.lines("agent-lightning")
    # The failed trial is left out of its group.
    assert [line["final_reward"] for line in lines] == [1.0, 0.0]
    batch, metrics = adapter(level).get_train_data_batch([completed_rollout(line) for line in lines])
    assert metrics["training/n_rollouts_w_trace"] == 2
    assert set(batch.non_tensor_batch["data_id_list"]) == {capture.group_id}
    made = batch.batch
    responses, logprobs = made["responses"], made["rollout_log_probs"]
    # The level `transition` leaves the mask to the trainer, which trains every token of the responses.
    attended = made["attention_mask"][:, -responses.shape[1] :]
    mask = made["response_mask"] if level == "trajectory" else attended
    trained = [
        (ids, logprob)
        for row in range(len(responses))
        for ids, logprob in zip(responses[row][mask[row] == 1].tolist(), logprobs[row][mask[row] == 1].tolist())
    ]
    ids = [token for row in capture.trained for token in of_trained(row, row["token_ids"])]
    captured = [logprob for row in capture.trained for logprob in of_trained(row, row["logprobs"])]
    assert [token for token, _ in trained] == ids
    assert np.array_equal(np.float32([logprob for _, logprob in trained]), np.float32(captured))
    # A branch is a row of the level `trajectory`, and a call a row of the other.
    assert len(responses) == (3 if level == "trajectory" else 5)


def test_a_trial_counts_once_in_advantages_per_rollout(capture: Capture) -> None:
    lines = capture.lines("agent-lightning")
    made = with_advantages(lines, group_size=3).batch
    one = 0.5 / (0.5**0.5 + 1e-6)
    given = [made["advantages"][row][made["response_mask"][row] == 1] for row in range(3)]
    for advantages, expected in zip(given, [one, -one, -one]):
        assert advantages.tolist() == pytest.approx([expected] * len(advantages), abs=1e-6)


def test_the_adapter_does_not_change_the_lines(capture: Capture) -> None:
    lines = capture.lines("agent-lightning")
    before = json.dumps(lines)
    adapter("trajectory").get_train_data_batch([completed_rollout(line) for line in lines])
    assert json.dumps(lines) == before


@pytest.fixture
def manager() -> Iterator[AglRolloutManager]:
    """Runs Agent Lightning's server, and returns a manager that uses it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    sampling = {"temperature": 1.0}
    proxy = {"model_name": "sim", "include_log_probs": True, "include_routed_experts": False}
    config = {"key": "secret", "default_proxy": {**proxy, "train": sampling, "val": sampling}}
    server = uvicorn.Server(uvicorn.Config(create_app(config), host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + limit(30)
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.05)
    yield AglRolloutManager(agl_base_url=f"http://127.0.0.1:{port}", agl_key="secret", model="sim", step=0)
    server.should_exit = True
    thread.join(limit(30))


def run(manager: AglRolloutManager, admin: str, outcome: object, monkeypatch: pytest.MonkeyPatch) -> object:
    """Runs one rollout as Agent Lightning's local controller does, and returns the manager's result."""

    class Forks(Runner):
        url = admin

        async def agent(self, trial, task):
            await asyncio.to_thread(two_turns, trial, task["question"], "Leave it.")
            return outcome

    (enqueued,) = manager._create_rollouts({"question": ["Open it."]}, is_train=True)
    address = f"/api/rollouts/{enqueued.rollout_id}"
    running = {"status": {"state": "running", "last_attempt_id": "0"}}
    manager.client.patch(address, json=running).raise_for_status()
    monkeypatch.setenv("AGL_EVENT_URL", str(manager.client.base_url.join(f"{address}/attempt/0/events")))
    monkeypatch.setenv("AGL_KEY", "secret")
    monkeypatch.setenv("ROLLTAP_TASK", json.dumps(enqueued.input))
    state = RolloutState.SUCCEEDED
    try:
        asyncio.run(Forks().run())
    except RuntimeError:
        state = RolloutState.FAILED
    manager.client.patch(address, json={"status": {"state": state}}).raise_for_status()
    return manager._build_completed_rollout(enqueued, manager._get_rollout(enqueued.rollout_id))


def test_the_runner_reports_to_the_server(manager, admin: str, capture: Capture, monkeypatch) -> None:
    rollout = run(manager, admin, 0.5, monkeypatch)
    assert rollout.final_reward == 0.5 and rollout.rollout_state is RolloutState.SUCCEEDED
    first, second, fork = rollout.triplets
    begun = first.prompt["token_ids"] + first.response["token_ids"]
    for triplet in (second, fork):
        assert triplet.prompt["token_ids"][: len(begun)] == begun
        assert len(triplet.response["token_ids"]) == len(triplet.response["log_probs"]) > 0
    assert first.metadata["server"] == {"model": "sim", "version": 7}
    batch, _ = adapter("trajectory").get_train_data_batch([rollout])
    assert len(batch) == 2 and "rollout_log_probs" in batch.batch


def test_a_rollout_without_a_reward_fails_and_has_no_triplets(manager, admin: str, monkeypatch) -> None:
    rollout = run(manager, admin, None, monkeypatch)
    assert (rollout.rollout_state, rollout.triplets, rollout.final_reward) == (RolloutState.FAILED, [], None)
