"""Tests how prime-rl itself compares rewards, reads our traces and files, and packs its samples.

The traces need the verifiers that this prime-rl works with, which scripts/check-trainer installs.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import verifiers.v1 as vf
from job import GROUPS, UNTRAINED, Job, expected
from groups import MEAN, cases
from conftest import Capture, of_trained
from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm
from prime_rl.orchestrator.trajectories import trace_to_samples
from prime_rl.trainer.batch import build_bin_cost, prepare_batch
from prime_rl.transports.rollouts import TrainingSample
from prime_rl.transports.rollouts.filesystem import FileSystemMicroBatchReceiver

from rolltap.trainers.prime_rl import micro_batches, place
from rolltap.trainers.verifiers import trace


def scored(traces: list) -> list[float]:
    """Compares the traces as one group, and returns the advantage of each one's first trained token."""
    algorithm = GRPOAlgorithm(SimpleNamespace(length_penalty=None), None)
    asyncio.run(algorithm.score_group([SimpleNamespace(traces=[one]) for one in traces]))
    return [next(node.advantages[0] for node in one.nodes if node.advantages) for one in traces]


def rewarded(reward: float) -> SimpleNamespace:
    node = SimpleNamespace(mask=[True], token_ids=[1], advantages=None)
    return SimpleNamespace(reward=reward, has_error=False, agent=SimpleNamespace(trainable=True), nodes=[node], id="")


@cases(MEAN)
def test_the_advantages_of_a_group(rewards: list[float], right: list[float]) -> None:
    assert scored([rewarded(reward) for reward in rewards]) == pytest.approx(right, abs=1e-3)


def samples_of(traces: list[vf.Trace]) -> list[TrainingSample]:
    return [one for made in traces for one in trace_to_samples(made, env_name="rolltap")]


def test_traces_are_its_samples(capture: Capture) -> None:
    made = samples_of([trace(line) for line in capture.lines("verifiers", "--failed", "mask", "--advantage", "mean")])
    # The failed trial has no sample.
    for row, sample, advantage in zip(capture.trained, made, [0.5, -0.5, -0.5], strict=True):
        assert sample.token_ids == row["token_ids"] and [int(on) for on in sample.mask] == row["loss_mask"]
        captured = np.asarray(of_trained(row, row["logprobs"]), np.float32)
        assert np.array_equal(np.asarray(of_trained(row, sample.logprobs), np.float32), captured)
        assert set(of_trained(row, sample.advantages)) == {advantage}


def test_it_compares_traces_as_the_export_does(capture: Capture) -> None:
    traces = [trace(line) for line in capture.lines("verifiers", "--failed", "mask")]
    # GRPOAlgorithm leaves the failed trace out by itself.
    assert traces[2].has_error
    assert scored(traces[:2]) == [0.5, -0.5]


def test_its_receiver_reads_the_file(capture: Capture, tmp_path) -> None:
    exported = capture.export("prime-rl")
    whole = micro_batches(exported)
    place(exported, tmp_path, step=4)
    receiver = FileSystemMicroBatchReceiver(tmp_path, data_rank=0, current_step=4)
    assert receiver.can_receive() and receiver.receive() == whole


def test_the_file_is_what_it_packs_itself(capture: Capture) -> None:
    made = samples_of([trace(line) for line in capture.lines("verifiers", "--failed", "mask", "--advantage", "mean")])
    for sample in made:
        sample.temperatures = [1.0] * len(sample.token_ids)
    ((packed,),) = prepare_batch(made, seq_len=16384, num_train_workers=1, bin_cost=build_bin_cost(None))
    (ours,) = micro_batches(capture.export("prime-rl"))
    trained = {name: sorted(zip(one.input_ids, one.loss_mask)) for name, one in (("ours", ours), ("theirs", packed))}
    assert trained["ours"] == trained["theirs"] and sorted(ours.seq_lens) == sorted(packed.seq_lens)
    assert sum(packed.loss_mask) == sum(sum(row["loss_mask"]) for row in capture.trained)


def test_the_advantages_of_a_job_are_those_of_its_sound_trials(job: Job) -> None:
    made = {}
    lines = job.lines("verifiers")
    for group in GROUPS.keys() - UNTRAINED:
        of_group = [line for line in lines if line["info"]["rolltap"]["group_id"] == group]
        traces = [(line, trace(line)) for line in of_group]
        # prime-rl leaves failed traces out.
        sound = [(line["info"]["rolltap"]["sample_index"], one) for line, one in traces if not one.has_error]
        advantages = scored([one for _, one in sound])
        made |= {(group, index): advantage for (index, _), advantage in zip(sound, advantages, strict=True)}
    rule = lambda rewards: scored([rewarded(reward) for reward in rewards])
    right = expected(rule)
    # A trace without a sampled node is none, so this group lacks one reward in its baseline. A file of samples has it.
    right |= {("judged without tokens", at): advantage for at, advantage in enumerate(rule([1.0, 1.0, 0.0]))}
    assert made == pytest.approx(right, abs=1e-5)
    exported = [batch for batch in micro_batches(job.export("prime-rl", "--assumed-temperature", "1"))]
    found = sorted({round(advantage, 5) for batch in exported for advantage, on in zip(batch.advantages, batch.loss_mask) if on})
    assert found == sorted({round(advantage, 5) for advantage in [*expected(rule).values(), 0.0]})
