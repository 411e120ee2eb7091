"""NeMo Gym (package `nemo-gym` 0.7.0): an agent server that runs an agent behind the proxy, and through it NeMo-RL.

Gym starts a server from a folder of its own; app.py in there is two lines (docs/how-to/trainers/nemo-gym.md has the rest):

```python
from rolltap.trainers.nemo_gym import RolltapAgent

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
    """Where the proxy is, which agent runs, and who judges."""

    agent: str
    """`module:function` of an agent."""
    url: str = DEFAULT_URL
    """The proxy's admin plane."""
    token: str | None = None
    opening: dict[str, Any] = Field(default_factory=dict)
    """Further fields of `POST /v1/trials`."""
    resources_server: ResourcesServerRef | None = None
    """Whose `/verify` gives the reward; without it the agent does."""


class RolltapRunRequest(BaseRunRequest):
    """A line of the data set, whatever is in it."""

    model_config = ConfigDict(extra="allow")


class RolltapVerifyResponse(BaseVerifyResponse):
    """The line, and what became of it."""

    model_config = ConfigDict(extra="allow")


class RolltapAgent(SimpleResponsesAPIAgent):
    """Runs the agent once per `/run`, as a trial.

    The agent gets the line of the data set. With a resources server it also gets `resources` (the server's `url`, the
    session's `cookies`, and what `/seed_session` answered as `seeded`), and returns what `/verify` has to judge: its
    answer as text, or output items of the Responses API. Without one it returns the reward.

    Gym and NeMo-RL compare samples themselves, so the proxy is told of no group. NeMo-RL takes one sequence per sample,
    so a forked trial gives the branch that trains the most. Where the reward does not measure the agent the sample is
    masked, in the word that Gym reads (`mask_sample`) and in that which NeMo-RL reads (the same in `instance_config`).
    """

    config: RolltapAgentConfig
    ray_enabled = False
    _work: Any = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Finds the agent: a name that is not there has to end the server, not each of its samples."""
        super().model_post_init(context)
        module, _, name = self.config.agent.partition(":")
        self._work = getattr(importlib.import_module(module), name)

    async def responses(self) -> NeMoGymResponse:
        """Refuses: a call alone has no task and no reward."""
        raise HTTPException(501, "this agent runs whole trials: POST /run")

    async def run(self, request: Request, body: RolltapRunRequest) -> RolltapVerifyResponse:
        """One sample of one line.

        What the proxy or the resources server refuses, and a trial that held images, fails the request: samples that
        are all masked would look like a training that goes on.
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
        """A session at the resources server, as the agent gets it."""
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
        """What `/verify` says of the agent's answer."""
        if self.config.skip_verification:
            return {"reward": self.config.skip_verification_reward, "verification_skipped": True}
        body = {**task, "response": _response(opened.trial_id, "", answer)}
        return await get_response_json(await self._post(server, "/verify", body, cookies))

    async def _post(self, server: str, path: str, body: Mapping[str, Any], cookies: Mapping[str, str]) -> Any:
        answer = await self.server_client.post(server, path, json=body, cookies=cookies)
        await raise_for_status(answer)
        return answer

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """The resources server's own, where one judges."""
        if self.config.resources_server is None or self.config.skip_verification:
            return await super().aggregate_metrics(body)
        answer = await self._post(self.config.resources_server.name, "/aggregate_metrics", body.model_dump(), {})
        return AggregateMetrics.model_validate(await get_response_json(answer))


_CAUSES = {"TimeoutError": AGENT_TIMEOUT, "no_reward": VERIFIER_ERROR}
"""Gym's names of failures, by ours; any other exception is one of the agent."""


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
    """What an agent says, as output items."""
    if isinstance(answer, str):
        return [_message("msg_answer", answer)]
    return [] if answer is None else list(answer)


def _message(name: str, text: str, **tokens: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": name, "type": "message", "role": "assistant", "status": "completed", "content": content, **tokens}


def _tokens(trial: Trial) -> tuple[list[dict[str, Any]], bool]:
    """An item without words for each piece that is trained, and whether any is.

    NeMo-RL trains what an item generated, and ends its step over a result that generated nothing. So where nothing is
    trained the items are what was sampled, for a sample that is masked: what it begins with says of which group it is.
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
    """Where the mask is 1: from, and up to."""
    place = 0
    for marked, run in groupby(mask):
        end = place + len(list(run))
        if marked:
            yield place, end
        place = end
