"""An agent's run as a trial: opened, run, sealed, rewarded, and back as rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Union

from rolltap.client import AsyncClient, OpenedTrial
from rolltap.prepare import Prepare
from rolltap.row import Row, Trial

Outcome = Union[float, Mapping[str, float], None]
"""What was earned: a number, several by name of which `reward` is trained on, or None where nothing can be said."""

Agent = Callable[[OpenedTrial, Mapping[str, Any]], Awaitable[Outcome]]
"""Works at a task with the trial's base URLs until it is done, and has the result judged."""


async def run_trial(
    client: AsyncClient,
    agent: Agent,
    task: Mapping[str, Any],
    *,
    task_id: str,
    prepare: Prepare | None = None,
    **opening: Any,
) -> Trial:
    """Opens a trial (`opening` has further fields of `POST /v1/trials`), runs the agent, seals, and gives the reward.

    An agent that fails leaves a trial whose reward is not valid, with the exception's name as its cause: its tokens
    come back all the same, for a trainer that compares groups needs each member. Cancellation seals the trial and
    goes on as cancellation. With `prepare` the proxy applies the rules of an export to the rows.
    """
    opened = await client.open_trial(task_id, **opening)
    try:
        judged: tuple[Outcome, str | None] = (await agent(opened, task), None)
    except Exception as error:  # noqa: BLE001  (whatever the agent does, the trial has to end)
        judged = (None, type(error).__name__)
    except asyncio.CancelledError:
        await asyncio.shield(client.seal(opened.trial_id))
        raise
    await client.seal(opened.trial_id)
    status = await client.reward(opened.trial_id, **_reward(*judged))
    if prepare is None:
        return _trial(status, await client.rollout(opened.trial_id))
    prepared = await client.prepared(opened.trial_id, prepare)
    return {**_trial(status, [*prepared["rows"]]), "prepared": prepared}


async def run_trials(runs: Iterable[Awaitable[Trial]]) -> list[Trial]:
    """Runs of trials side by side, in their order; raises what the first of them raised once all have ended.

    Raised at once, it would close the client under the others, whose trials would stay open.
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
    # The status has the reward also if the trial sampled no token, and so has no row.
    return {
        "trial_id": status["trial_id"],
        "task_id": status["task_id"],
        "group_id": status["group_id"],
        "sample_index": status["sample_index"],
        "reward": status["reward"],
        "rewards": status["rewards"],
        "reward_valid": status["reward_valid"],
        "failure_cause": status["failure_cause"],
        "rows": rows,
    }
