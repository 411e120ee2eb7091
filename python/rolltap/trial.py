"""Runs an agent as a trial: opens it, runs the agent, seals it, sets the reward, and reads the rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Union

from rolltap.client import AsyncClient, OpenedTrial
from rolltap.prepare import Prepare
from rolltap.row import Row, Trial

Outcome = Union[float, Mapping[str, float], None]
"""The result of an agent: a number, or several by name (`reward` is trained on), or None if there is no verdict."""

Agent = Callable[[OpenedTrial, Mapping[str, Any]], Awaitable[Outcome]]
"""An async function of the opened trial and the task. Uses the trial's base URLs, and returns the outcome."""


async def run_trial(
    client: AsyncClient,
    agent: Agent,
    task: Mapping[str, Any],
    *,
    task_id: str,
    prepare: Prepare | None = None,
    **opening: Any,
) -> Trial:
    """Opens a trial (`opening` has further fields of `POST /v1/trials`), runs the agent, seals, and sets the reward.

    If the agent raises, the trial has no valid reward, and the exception's name is its failure cause. The trial is
    returned all the same, because a trainer that compares groups needs each member. A cancellation seals the trial
    and is raised again. With `prepare`, the proxy applies the rules of an export to the rows.
    """
    opened = await client.open_trial(task_id, **opening)
    try:
        judged: tuple[Outcome, str | None] = (await agent(opened, task), None)
    except Exception as error:  # noqa: BLE001  (the trial must end, whatever the agent raises)
        judged = (None, type(error).__name__)
    except asyncio.CancelledError:
        # Without the shield, a second cancellation could leave the trial open.
        await asyncio.shield(client.seal(opened.trial_id))
        raise
    await client.seal(opened.trial_id)
    status = await client.reward(opened.trial_id, **_reward(*judged))
    if prepare is None:
        return _trial(status, await client.rollout(opened.trial_id))
    prepared = await client.prepared(opened.trial_id, prepare)
    return {**_trial(status, [*prepared["rows"]]), "prepared": prepared}


async def run_trials(runs: Iterable[Awaitable[Trial]]) -> list[Trial]:
    """Awaits runs concurrently and returns their trials in order.

    If runs raise, raises the exception of the first in order, after all have ended. An earlier exception would close
    the client that the other runs use, and their trials would stay open.
    """
    ended = await asyncio.gather(*runs, return_exceptions=True)
    trials: list[Trial] = []
    for one in ended:
        if isinstance(one, BaseException):
            raise one
        trials.append(one)
    return trials


def _reward(outcome: Outcome, failure: str | None) -> dict[str, Any]:
    if outcome is None:
        return {"rewards": {}, "valid": False, "failure_cause": failure or "no_reward"}
    rewards = dict(outcome) if isinstance(outcome, Mapping) else {"reward": float(outcome)}
    return {"rewards": rewards}


def _trial(status: Mapping[str, Any], rows: list[Row]) -> Trial:
    # The reward is from the status, because a trial that sampled no token has no row.
    return {
        "trial_id": status["trial_id"],
        "task_id": status["task_id"],
        "group_id": status["group_id"],
        "sample_index": status["sample_index"],
        "reward": status["reward"],
        "rewards": status["rewards"],
        "reward_valid": status["reward_valid"],
        "failure_cause": status["failure_cause"],
        "suspicious": status.get("suspicious"),
        "rows": rows,
    }
