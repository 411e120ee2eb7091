"""An agent server for NeMo Gym (package `nemo-gym` 0.7.0), and through it for NeMo-RL. It runs agents behind the proxy.

Gym starts each server from its own folder, with an `app.py` (docs/how-to/trainers/nemo-gym.md has the other files):

```python
from rolltap.trainers.nemo_gym import RolltapAgent

if __name__ == "__main__":
    RolltapAgent.run_webserver()
```
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from fastapi import HTTPException, Request
from nemo_gym.base_resources_server import AggregateMetrics, AggregateMetricsRequest, BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.config_types import ResourcesServerRef
from nemo_gym.failure_kinds import AGENT_RUN_ERROR, AGENT_TIMEOUT, VERIFIER_ERROR
from nemo_gym.global_config import get_first_server_config_dict
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from nemo_gym.server_utils import get_response_json, raise_for_status
from pydantic import ConfigDict, Field, PrivateAttr

from rolltap.client import DEFAULT_URL, AsyncClient, OpenedTrial
from rolltap.prepare import Prepare, earned, prepared_rows
from rolltap.row import Trial, stand_in
from rolltap.sampling import of_a_trial
from rolltap.trial import Outcome, run_trial


class RolltapAgentConfig(BaseResponsesAPIAgentConfig):
    """The address of the proxy, the agent to run, and the server that judges."""

    agent: str
    """`module:function` of an agent."""
    url: str = DEFAULT_URL
    """The proxy's admin plane."""
    token: str | None = None
    opening: dict[str, Any] = Field(default_factory=dict)
    """Further fields of `POST /v1/trials`."""
    resources_server: ResourcesServerRef | None = None
    """The server whose `/verify` gives the reward. If None, the agent returns the reward."""


class RolltapRunRequest(BaseRunRequest):
    """A line of the data set, with any fields."""

    model_config = ConfigDict(extra="allow")


class RolltapVerifyResponse(BaseVerifyResponse):
    """The line of the data set, and the result of its sample."""

    model_config = ConfigDict(extra="allow")


class RolltapAgent(SimpleResponsesAPIAgent):
    """Runs the agent once per `/run`, as a trial.

    The agent gets the line of the data set. With a resources server it also gets `resources`: the server's `url`, the
    session's `cookies`, and the answer of `/seed_session` as `seeded`. It then returns the answer for `/verify`, as
    text or as output items of the Responses API. Without a resources server it returns the reward.

    Gym and NeMo-RL compare samples themselves, so the trials have no group at the proxy. NeMo-RL accepts one sequence
    per sample, so a forked trial gives the branch with the most trainable tokens. If the reward does not measure the
    agent, the sample is masked: for Gym by `mask_sample`, and for NeMo-RL by the same member of `instance_config`.
    """

    config: RolltapAgentConfig
    ray_enabled = False
    _work: Any = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Imports the agent at start-up, so that a wrong name ends the server instead of failing each sample."""
        super().model_post_init(context)
        module, _, name = self.config.agent.partition(":")
        self._work = getattr(importlib.import_module(module), name)

    async def responses(self) -> NeMoGymResponse:
        """Answers 501: a single call has no task and no reward."""
        raise HTTPException(501, "this agent runs whole trials: POST /run")

    async def run(self, request: Request, body: RolltapRunRequest) -> RolltapVerifyResponse:
        """Runs one sample of one line.

        An error of the proxy or of the resources server, and a trial that contained images, fail the request. If all
        samples were masked instead, a wrong configuration would remain hidden.
        """
        task = body.model_dump(mode="json", exclude_unset=True)
        server = self.config.resources_server
        resources = None if server is None else await self._seeded(server.name, task, request.cookies)
        verified: dict[str, Any] = {}
        refused: list[Exception] = []

        async def agent(opened: OpenedTrial, given: Mapping[str, Any]) -> Outcome:
            if server is None or resources is None:
                return await self._work(opened, given)
            answer = _words(await self._work(opened, {**given, "resources": resources}))
            try:
                verified.update(await self._verified(server.name, opened, given, answer, resources["cookies"]))
            except Exception as error:
                # `run_trial` turns exceptions of the agent into a failed trial, so `run` raises this one later.
                refused.append(error)
                raise
            return None if verified.get("mask_sample") else float(verified["reward"])

        params = body.responses_create_params
        sampling = of_a_trial({"temperature": params.temperature, "top_p": params.top_p})
        name = maybe_rollout_id_from_run_body(body)
        metadata = {} if name is None else {"nemo_gym": name}
        opening = {"sampling": sampling, "metadata": metadata, **self.config.opening}
        async with AsyncClient(self.config.url, token=self.config.token) as client:
            longest = Prepare(on_fork="longest")
            trial = await run_trial(client, agent, task, task_id=_task_id(task), prepare=longest, **opening)
        if refused:
            raise refused[0]
        return RolltapVerifyResponse.model_validate(_result(trial, task, verified))

    async def _seeded(self, server: str, task: Mapping[str, Any], cookies: Mapping[str, str]) -> dict[str, Any]:
        """Begins a session at the resources server and returns its `url`, `cookies` and `seeded` for the agent."""
        answer = await self._post(server, "/seed_session", task, cookies)
        address = get_first_server_config_dict(self.server_client.global_config_dict, server)
        return {
            "url": f"http://{address.host}:{address.port}",
            "cookies": {**cookies, **{name: morsel.value for name, morsel in answer.cookies.items()}},
            "seeded": await get_response_json(answer),
        }

    async def _verified(
        self, server: str, opened: OpenedTrial, task: Mapping[str, Any], answer: list[Any], cookies: Mapping[str, str]
    ) -> dict[str, Any]:
        """Returns the answer of `/verify` to the agent's answer, or the configured reward without verification."""
        if self.config.skip_verification:
            return {"reward": self.config.skip_verification_reward, "verification_skipped": True}
        body = {**task, "response": _response(opened.trial_id, "", answer)}
        return await get_response_json(await self._post(server, "/verify", body, cookies))

    async def _post(self, server: str, path: str, body: Mapping[str, Any], cookies: Mapping[str, str]) -> Any:
        answer = await self.server_client.post(server, path, json=body, cookies=cookies)
        await raise_for_status(answer)
        return answer

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Returns the metrics of the resources server, if it judges, else those of Gym's base class."""
        if self.config.resources_server is None or self.config.skip_verification:
            return await super().aggregate_metrics(body)
        answer = await self._post(self.config.resources_server.name, "/aggregate_metrics", body.model_dump(), {})
        return AggregateMetrics.model_validate(await get_response_json(answer))


_CAUSES = {"TimeoutError": AGENT_TIMEOUT, "no_reward": VERIFIER_ERROR}
"""Gym's names of failures, by failure cause of the trial. Any other cause is `AGENT_RUN_ERROR`."""


def _task_id(task: Mapping[str, Any]) -> str:
    names = (task.get(key) for key in ("task_id", "problem_id", "instance_id", "_ng_task_index"))
    return next((str(name) for name in names if name is not None), "nemo-gym")


def _result(trial: Trial, task: Mapping[str, Any], verified: Mapping[str, Any]) -> dict[str, Any]:
    reward = earned(trial)
    tokens, trains = _tokens(trial)
    words = verified.get("response", {}).get("output", [])
    model = trial["rows"][0]["model"] if trial["rows"] else ""
    result = {
        **task,
        **verified,
        "response": {**verified.get("response", {}), **_response(trial["trial_id"], model, [*tokens, *words])},
        "reward": 0.0 if reward is None else reward,
        "mask_sample": reward is None,
        "instance_config": {**(task.get("instance_config") or {}), "mask_sample": reward is None or not trains},
        "rolltap": {"trial_id": trial["trial_id"], "branches": len(trial["rows"]) + trial["prepared"]["left_out"], "rewards": trial["rewards"]},
    }
    if reward is None:
        cause = trial["failure_cause"] or "nothing_sampled"
        result["failure_kind"] = verified.get("failure_kind") or _CAUSES.get(cause, AGENT_RUN_ERROR)
        result["failure_reason"] = verified.get("failure_reason") or cause
    return result


def _response(trial_id: str, model: str, output: list[Any]) -> dict[str, Any]:
    return {
        "id": f"resp_{trial_id}",
        "object": "response",
        "created_at": time.time(),
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _words(answer: Any) -> list[Any]:
    """Returns the agent's answer as output items. Text becomes one message."""
    if isinstance(answer, str):
        return [_message("msg_answer", answer)]
    return [] if answer is None else list(answer)


def _message(name: str, text: str, **tokens: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": name, "type": "message", "role": "assistant", "status": "completed", "content": content, **tokens}


def _tokens(trial: Trial) -> tuple[list[dict[str, Any]], bool]:
    """Returns an output item without text for each run of trained tokens, and whether there is any trained token.

    NeMo-RL trains the generated tokens of an item, and its step fails if a result has none. If no token is trained, the
    items are therefore the runs of sampled tokens, and the caller masks the sample. Their first prompt determines the
    group of the sample.
    """
    rows = prepared_rows(trial)
    if not rows:
        prompt_ids, ids, _, logprobs = stand_in()
        return [_piece(prompt_ids + ids, [0.0, *logprobs], 1, 2)], False
    row = rows[0]
    trains = any(row["loss_mask"])
    mask = row["loss_mask"] if trains else row["sampled_mask"]
    return [_piece(row["token_ids"], row["logprobs"], start, end) for start, end in _runs(mask)], trains


def _piece(ids: Sequence[int], logprobs: Sequence[float], start: int, end: int) -> dict[str, Any]:
    return _message(
        f"msg_{start}",
        "",
        prompt_token_ids=ids[:start],
        generation_token_ids=ids[start:end],
        generation_log_probs=logprobs[start:end],
    )


def _runs(mask: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields the start and the exclusive end of each run of 1 in the mask."""
    place = 0
    for marked, run in groupby(mask):
        end = place + len(list(run))
        if marked:
            yield place, end
        place = end
