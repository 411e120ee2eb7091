"""Tests exported and live samples with TRL's own queue data set, packing and collator."""

from __future__ import annotations

import asyncio
import queue
import time
import uuid
from collections import defaultdict

import numpy as np
import pytest
from conftest import Capture, OneTrial, limit, of_trained, two_turns

from rolltap import AsyncClient, Client, Prepare, run_trial

from accelerate import PartialState
from trl.experimental.async_grpo.async_grpo_trainer import (
    DataCollatorForRollout,
    FixedCountBatcher,
    RolloutQueueDataset,
    RolloutWorkerProtocol,
)

from rolltap.trainers.trl import RolloutWorker, group_samples, normalised, passed_on, rollout_func, sample


# TRL's own logging needs a PartialState.
PartialState(cpu=True)


def equals(row, made) -> None:
    assert made.input_ids.tolist() == row["token_ids"]
    assert made.completion_mask.tolist() == row["loss_mask"]
    assert made.old_log_probs.tobytes() == np.asarray(row["logprobs"], np.float32).tobytes()


def test_a_line_is_a_sample(capture: Capture) -> None:
    samples = [sample(line) for line in capture.lines("trl")]
    assert len(samples) == len(capture.trained) == 3
    for row, made in zip(capture.trained, samples):
        equals(row, made)
        assert (made.model_version, made.group_id, made.metrics["reward"]) == (7, 0, row["reward"])
    # The failed trial is left out of the comparison. Both branches of the second trial have its advantage.
    # TRL divides by the population standard deviation, which is 0.5.
    one = 0.5 / (0.5 + 1e-8)
    assert [made.advantage for made in samples] == pytest.approx([one, -one, -one])


def batch(samples, staleness: int = 4) -> dict:
    """Makes one micro-batch of the samples, as the trainer does from its queue."""
    waiting: queue.Queue = queue.Queue()
    for made in samples:
        waiting.put(made)
    metrics: dict = defaultdict(list)
    source = RolloutQueueDataset(waiting, lambda: 7 + staleness, lambda _: None, 60.0, metrics)
    rows = next(iter(FixedCountBatcher(source, num_processes=1, microbatch_size=len(samples))))
    collator = DataCollatorForRollout(pad_token_id=0, num_processes=1, metrics=metrics, groups_trained=set())
    return {**collator.torch_call([rows]), "rows": rows, "metrics": metrics}


def test_the_trainers_batch_trains_what_we_say_once(capture: Capture) -> None:
    samples = [sample(line) for line in capture.lines("trl")]
    made = batch(samples, staleness=0)
    trained = sum(sum(row["loss_mask"]) for row in capture.trained)
    assert made["global_n_tokens"].tolist() == [trained]
    (row,) = made["rows"]
    raw = sum(len(one.input_ids) for one in samples)
    assert made["global_n_forward_tokens"].item() == len(row.tokens) < raw, "the prefix of a fork is forwarded once"
    logprobs = [value for one in capture.trained for value in of_trained(one, one["logprobs"])]
    captured = np.sort(np.asarray(logprobs, np.float32))
    assert np.array_equal(np.sort(made["old_log_probs"].flatten().numpy()), captured)


def test_the_trainer_drops_what_is_too_old(capture: Capture) -> None:
    waiting: queue.Queue = queue.Queue()
    old, new = (sample(line) for line in capture.lines("trl")[:2])
    old.model_version, new.model_version = 1, 7
    waiting.put(old)
    waiting.put(new)
    metrics: dict = defaultdict(list)
    source = RolloutQueueDataset(waiting, lambda: 7, lambda _: None, 60.0, metrics)
    assert next(iter(source))["input_ids"] is new.input_ids
    assert metrics["sample/dropped_stale_total"] == [1.0]


def test_the_worker_hands_over_closed_groups(capture: Capture, client: Client, admin: str) -> None:
    worker = RolloutWorker(admin)
    protocol: RolloutWorkerProtocol = worker
    protocol.start()
    try:
        assert client.policy()["label"] == "0"
        name = f"live-{uuid.uuid4().hex}"
        for index, reward in enumerate([1.0, 0.0]):
            trial = client.open_trial("live", group_id=name, group_size=2, sample_index=index)
            two_turns(trial, "Open it.")
            client.seal(trial.trial_id)
            client.reward(trial.trial_id, {"reward": reward, "live": 1.0})
        live = []
        while len(live) < 2:
            made = worker.rollout_buffer.get(timeout=limit(30))
            if "rewards/live" in made.metrics:
                live.append(made)
        assert [made.advantage for made in live] == pytest.approx([1.0, -1.0])
        assert len({made.group_id for made in live}) == 1
        protocol.check_health(30)
        protocol.update_model_version(8)
        assert client.policy()["label"] == "8"
    finally:
        worker.stop()
        client.set_policy(7)


def test_the_worker_gives_what_the_export_gives(capture: Capture, client: Client) -> None:
    trials = [
        trial
        for trial in client.rollouts(wait=0, closed_groups=True, follow=False, prepare=Prepare())
        if trial["group_id"] == capture.group_id
    ]
    live = group_samples(trials, 0)
    exported = [sample(line) for line in capture.lines("trl")]
    assert len(live) == len(exported)
    for one, other in zip(live, exported):
        for name in ("input_ids", "completion_mask", "old_log_probs"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
        assert (one.advantage, one.model_version) == (pytest.approx(other.advantage, 1e-9), other.model_version)


def test_a_sample_ends_with_what_is_trained_as_the_export_does(ends_masked: OneTrial) -> None:
    (live,) = group_samples([ends_masked.prepared()], 0)
    exported = sample(ends_masked.line("trl"))
    assert live.completion_mask[-1] == 1
    for name in ("input_ids", "completion_mask", "old_log_probs"):
        assert getattr(live, name).tobytes() == getattr(exported, name).tobytes()
    assert live.model_version == exported.model_version


def test_weights_whose_name_is_no_number_are_counted(admin: str, unnumbered: int) -> None:
    async def run():
        async with AsyncClient(admin) as client:
            return await run_trial(client, agent, {}, task_id="unnumbered", prepare=Prepare())

    async def agent(trial, task):
        await asyncio.to_thread(two_turns, trial, "Open it.")
        return 1.0

    assert [made.model_version for made in group_samples([asyncio.run(run())], 0)] == [unnumbered]


def test_a_worker_without_a_proxy_says_so() -> None:
    worker = RolloutWorker("http://127.0.0.1:9", after="x")
    worker._alive_at = time.time() - 100
    with pytest.raises(RuntimeError, match="answered nothing for 1"):
        worker.check_health(60)
    worker.stop()


def test_trials_of_no_group_are_counted_and_left_out(admin: str, client: Client) -> None:
    trials = client.rollouts(wait=0, closed_groups=True, follow=False)
    before = [trial["cursor"] for trial in trials][-1]
    trial = client.open_trial("ungrouped")
    two_turns(trial, "Open it.")
    client.seal(trial.trial_id)
    client.reward(trial.trial_id, {"reward": 1.0})
    worker = RolloutWorker(admin, after=before)
    worker.start()
    try:
        assert worker.metrics_queue.get(timeout=limit(30)) == {"rolltap/ungrouped_trials": 1.0}
    finally:
        worker.stop()
        client.set_policy(7)
    assert worker.rollout_buffer.empty()


def test_the_cursor_of_a_stopped_worker_is_before_what_is_not_queued(admin: str, client: Client) -> None:
    trials = client.rollouts(wait=0, closed_groups=True, follow=False)
    before = [trial["cursor"] for trial in trials][-1]
    name = f"full-{uuid.uuid4().hex}"
    for index in range(2):
        trial = client.open_trial("full", group_id=name, group_size=2, sample_index=index)
        two_turns(trial, "Open it.")
        client.seal(trial.trial_id)
        client.reward(trial.trial_id, {"reward": float(index)})
    worker = RolloutWorker(admin, after=before, max_queued=1)
    worker.start()
    while not worker.rollout_buffer.full():
        worker.check_health(30)
        time.sleep(0.01)
    worker.stop()
    first = worker.rollout_buffer.get()
    assert worker.cursor == before
    again = RolloutWorker(admin, after=worker.cursor)
    again.start()
    try:
        made = [again.rollout_buffer.get(timeout=limit(30)) for _ in range(2)]
    finally:
        again.stop()
        client.set_policy(7)
    assert made[0].input_ids.tolist() == first.input_ids.tolist()
    assert [one.advantage for one in made] == pytest.approx([-1.0, 1.0])


def test_a_failed_worker_raises_its_failure(admin: str) -> None:
    worker = RolloutWorker(admin, after="no cursor at all")
    worker.start()
    worker._thread.join(30)
    with pytest.raises(RuntimeError, match="reading rollouts failed: 400"):
        worker.check_health(60)
    worker.stop()


def test_advantages_are_those_of_trl() -> None:
    rewards = np.array([0.3, 1.0, 0.0, 0.7])
    expected = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
    assert normalised(rewards.tolist()) == pytest.approx(expected.tolist())
    assert normalised([0.5]) == [0.0]


def test_the_rollout_function_of_the_synchronous_trainer(admin: str) -> None:
    async def agent(trial, task):
        await asyncio.to_thread(two_turns, trial, task["prompt"], "Leave it.")
        return 0.5

    made = rollout_func(agent, admin)(["Open it.", "Read it."], None)
    assert set(made) == {"prompt_ids", "completion_ids", "logprobs", "env_mask", "reward"}
    for ids, logprobs, mask in zip(made["completion_ids"], made["logprobs"], made["env_mask"], strict=True):
        assert len(ids) == len(logprobs) == len(mask)
        # Both turns train, although the first turn is shared with the branch that is left out.
        assert mask[0] == mask[-1] == 1 and 0 in mask
        assert all((value < 0) == (trained == 1) for value, trained in zip(logprobs, mask))
    assert passed_on(reward=made["reward"], prompts=None) == [0.5, 0.5]


def test_a_prompt_whose_trial_sampled_nothing_trains_nothing(admin: str) -> None:
    async def agent(trial, task):
        raise ConnectionError

    made = rollout_func(agent, admin)(["Open it."], None)
    (completion,), (mask,) = made["completion_ids"], made["env_mask"]
    assert len(completion) == len(mask) > 0 and not any(mask) and len(made["prompt_ids"][0]) > 0
    assert made["reward"] == [None]
