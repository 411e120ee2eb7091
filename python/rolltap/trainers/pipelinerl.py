"""Training texts for PipelineRL (commit 58d3934), from an export or from agents that run live.

A line of `rolltap export --format pipelinerl` is a `TrainingText`: one call. For live agents, write a module and name
its function in the configuration:

```python
# my_rollout.py: actor.rollout_policy=my_rollout.policy
from rolltap.trainers.pipelinerl import rollout_policy_with

policy = rollout_policy_with(my_agent)
```
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelinerl.rollouts import BaseMetrics, RolloutResult, TrainingText

from rolltap.client import DEFAULT_URL, AsyncClient
from rolltap.prepare import Prepare, earned, prepared_rows
from rolltap.row import PreparedRow, Trial, response, stand_in
from rolltap.sampling import of_a_trial
from rolltap.trainers._runs import Run, call_runs
from rolltap.trial import Agent, run_trial

_NO_LABEL = -100
"""PipelineRL's label of a token that is not trained."""


class NoVerdict(TimeoutError):
    """The trial has no valid reward. PipelineRL repeats a rollout that ends with a `TimeoutError`."""


def training_text(line: Mapping[str, Any]) -> TrainingText:
    """Returns the text of an exported line."""
    return TrainingText.model_validate(dict(line))


def write_stream(lines: Iterable[Mapping[str, Any]], output_dir: str | Path, attempts: int) -> int:
    """Appends the groups of an export to the stream that the preprocessor reads (`streams: files`).

    Returns the number of groups. The preprocessor stops at a group that does not have `attempts` trials. Raises
    ValueError for such a group, and then writes nothing.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault(line["group_id"], []).append(training_text(line).model_dump())
    for name, texts in groups.items():
        trials = {text["metadata"]["rollout_index"] for text in texts}
        if len(trials) != attempts:
            raise ValueError(
                f"group {name} has {len(trials)} trials, and attempts is {attempts}; export whole groups of one "
                "size, or change attempts"
            )
    folder = Path(output_dir) / "streams" / "actor" / "0" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "0.jsonl").open("a") as stream:
        stream.writelines(f"{json.dumps(texts)}\n" for texts in groups.values())
    return len(groups)


def rollout_policy_with(
    agent: Agent, url: str = DEFAULT_URL, *, token: str | None = None, **opening: Any
) -> Callable[[Any, Any, dict[str, Any], Any], Awaitable[RolloutResult]]:
    """Returns a function for `actor.rollout_policy` that runs the agent once per rollout, as a trial.

    The agent gets the problem. `opening` has further fields of `POST /v1/trials`. The function raises `NoVerdict` if
    the reward does not measure the agent or nothing was sampled, and PipelineRL then runs the rollout again.
    """

    async def policy(cfg: Any, llm: Any, problem: dict[str, Any], session: Any) -> RolloutResult:
        started = time.monotonic()
        name = str(problem.get("dataset") or "pipelinerl")
        asked = {"task_id": name, "sampling": of_a_trial(llm.parameters), **opening}
        async with AsyncClient(url, token=token) as client:
            trial = await run_trial(client, agent, problem, prepare=Prepare(), **asked)
        return _result(trial, problem, time.monotonic() - started)

    return policy


def _result(trial: Trial, problem: Mapping[str, Any], seconds: float) -> RolloutResult:
    reward = earned(trial)
    if reward is None:
        cause = trial["failure_cause"] or "nothing sampled"
        raise NoVerdict(f"trial {trial['trial_id']} has no valid reward: {cause}")
    rows = prepared_rows(trial)
    # PipelineRL counts the trials of a group by their texts, so each trial needs one.
    texts = [_text(run, reward) for run in call_runs(rows)] or [_untrained(rows, reward)]
    return RolloutResult(
        training_texts=texts,
        metrics=BaseMetrics(reward=reward, success=reward > 0, no_error=True, no_answer=False),
        latency=seconds,
        dataset_name=problem.get("dataset"),
        domain=problem.get("domain"),
    )


def _text(run: Run, reward: float) -> TrainingText:
    return TrainingText(
        text="",
        n_predicted=0,
        reward=reward,
        logprobs=run.logprobs,
        input_ids=run.prompt_ids + run.ids,
        labels=[_NO_LABEL] * len(run.prompt_ids) + run.ids,
        finished=run.finish_reason != "length",
        prompt_tokens=len(run.prompt_ids),
        output_tokens=len(run.ids),
    )


def _untrained(rows: Sequence[PreparedRow], reward: float) -> TrainingText:
    prompt_ids = (response(rows[0]) if rows else stand_in()).prompt_ids
    labels = [_NO_LABEL] * len(prompt_ids)
    return TrainingText(
        text="",
        n_predicted=0,
        reward=reward,
        input_ids=prompt_ids,
        labels=labels,
        finished=True,
        prompt_tokens=len(prompt_ids),
    )
