"""Tests the agent server with NeMo Gym's own servers, collection and metrics, and its samples by NeMo-RL's rules."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from aiohttp import ClientResponseError
from conftest import Capture, OneTrial, chat, export, masked_end, two_turns
from environment_servers.legacy_agent.app import LegacyAgentEnvironmentServer, LegacyAgentEnvironmentServerConfig
from nemo_gym.base_resources_server import BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import (
    NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_global_config_dict,
)
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseOutputMessageForTraining
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import ServerClient, get_global_aiohttp_client
from omegaconf import OmegaConf
from resources_servers.equivalence_rule.app import EquivalenceRuleResourcesServer, EquivalenceRuleResourcesServerConfig
from resources_servers.example_session_state_mgmt.app import (
    StatefulCounterResourcesServer,
    StatefulCounterResourcesServerConfig,
)

from rolltap import Client, Prepare, read_lines
from rolltap.trainers.nemo_gym import RolltapAgent, RolltapAgentConfig, RolltapVerifyResponse, _result
from rolltap.trainers.nemo_rl import result


async def forks(trial, task):
    await asyncio.to_thread(two_turns, trial, "Open it.", task["last"])
    return {"reward": 0.5, "style": 1.0}


async def times_out(trial, task):
    await asyncio.to_thread(two_turns, trial, "Open it.")
    raise TimeoutError


async def says_nothing_of_it(trial, task):
    await asyncio.to_thread(two_turns, trial, "Open it.")


async def asks_nothing(trial, task):
    return 1.0


async def constrained(trial, task):
    asked = [{"role": "user", "content": "List it."}]
    await asyncio.to_thread(chat, trial, asked, response_format={"type": "json_object"})
    return 1.0


async def answers(trial, task):
    await asyncio.to_thread(two_turns, trial, "Open it.")
    return task["says"]


async def counts(trial, task):
    """Works with the resources server's tools, in the sample's session."""
    await asyncio.to_thread(two_turns, trial, "Open it.")
    tools = task["resources"]
    async with httpx.AsyncClient(base_url=tools["url"], cookies=tools["cookies"]) as http:
        for _ in range(2):
            (await http.post("/increment_counter", json={"count": 1})).raise_for_status()


class CannotSay(SimpleResourcesServer):
    """Is a resources server whose judge is not available."""

    ray_enabled = False

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        failed = {"mask_sample": True, "failure_kind": "judge_failed", "failure_reason": "503"}
        return BaseVerifyResponse(**body.model_dump(), reward=0.0, **failed)


RESOURCES = {
    "equivalence": (EquivalenceRuleResourcesServer, EquivalenceRuleResourcesServerConfig),
    "counter": (StatefulCounterResourcesServer, StatefulCounterResourcesServerConfig),
    "cannot_say": (CannotSay, BaseResourcesServerConfig),
}

RELAY = (LegacyAgentEnvironmentServer, LegacyAgentEnvironmentServerConfig)

JUDGES = {"answers": "equivalence", "unverified": "equivalence", "counts": "counter", "unjudged": "cannot_say"}
"""Maps agents to the resources servers that judge them. The other agents judge themselves."""

HEAD = BaseServerConfig(host="127.0.0.1", port=1)
"""Is the address of Gym's head server. With the configuration given, no request goes there."""

AGENTS = [forks, times_out, says_nothing_of_it, asks_nothing, constrained, answers, counts]


class Gym:
    """Runs Gym's servers on loopback as Gym's `run_webserver` sets them up.

    All run in one event loop, since Gym's HTTP client works in only one.
    """

    def __init__(self, admin: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._sockets: dict[str, socket.socket] = {}
        # Gym pins a version of openai, and the testbed has the version that the other trainers accept.
        self._described: dict[str, Any] = {"allow_openai_version_skew": True}
        for name in RESOURCES:
            self._describe(name, "resources_servers", {"domain": "other"})
        agents = {agent.__name__: agent.__name__ for agent in AGENTS} | {"unjudged": "says_nothing_of_it", "unverified": "answers"}
        for name, function in agents.items():
            own: dict[str, Any] = {"agent": f"{__name__}:{function}", "url": admin, "opening": {"seed": 7}}
            if name in JUDGES:
                own["resources_server"] = {"type": "resources_servers", "name": JUDGES[name]}
            if name == "unverified":
                own |= {"skip_verification": True, "skip_verification_reward": 0.25}
            self._describe(name, "responses_api_agents", own)
            # Gym's collection calls an agent through a relay, and adds a relay if the configuration has none.
            relay = {"agent_server": {"type": "responses_api_agents", "name": name}}
            self._describe(f"{name}_relay", "environment_servers", relay)
        asked = GlobalConfigDictParserConfig(
            initial_global_config_dict=OmegaConf.create(self._described),
            skip_load_from_cli=True,
            skip_load_from_dotenv=True,
        )
        # The processes that Gym starts get the configuration in this variable.
        os.environ[NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME] = OmegaConf.to_yaml(GlobalConfigDictParser().parse(asked))
        self.client = ServerClient(head_server_config=HEAD, global_config_dict=get_global_config_dict())
        self._servers = [
            *(self._serve(name, *kinds) for name, kinds in RESOURCES.items()),
            *(self._serve(name, RolltapAgent, RolltapAgentConfig) for name in agents),
            *(self._serve(f"{name}_relay", *RELAY) for name in agents),
        ]
        self._running = [asyncio.run_coroutine_threadsafe(one, self._loop) for _, one in self._servers]
        self.run(self._started())

    def _describe(self, name: str, kind: str, own: dict[str, Any]) -> None:
        bound = self._sockets[name] = socket.create_server(("127.0.0.1", 0))
        place = {"host": "127.0.0.1", "port": bound.getsockname()[1]}
        # Gym takes the name of a server from the keys around its block.
        self._described[name] = {kind: {name: {"entrypoint": "app.py", **place, **own}}}

    def _serve(self, name: str, server: type, config: type) -> tuple[uvicorn.Server, Coroutine[Any, Any, None]]:
        (kind,) = self._described[name].values()
        made = server(config=config(name=name, **kind[name]), server_client=self.client)
        app = made.setup_webserver()
        made.setup_exception_middleware(app)
        made.setup_cancellation_middleware(app)
        running = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        return running, running.serve(sockets=[self._sockets[name]])

    async def _started(self) -> None:
        while not all(server.started for server, _ in self._servers):
            await asyncio.sleep(0.01)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(300)

    def collect(self, agent: str, *lines: dict[str, Any]) -> list[dict[str, Any]]:
        """Collects the samples of these lines with Gym's own collection, and returns them in the order of the lines."""
        asked = [
            {
                "responses_create_params": {"input": [{"role": "user", "content": "What lies in the folder?"}]},
                "agent_ref": {"type": "responses_api_agents", "name": agent},
                "_ng_task_index": index,
                "_ng_rollout_index": 3,
                **line,
            }
            for index, line in enumerate(lines)
        ]

        async def collected() -> list[tuple[dict, dict]]:
            return [await one for one in RolloutCollectionHelper().run_examples(asked, HEAD)]

        made = {line["_ng_task_index"]: sample for line, sample in self.run(collected())}
        return [made[index] for index in range(len(lines))]

    def close(self) -> None:
        for server, _ in self._servers:
            server.should_exit = True
        for one in self._running:
            one.result(10)
        self.run(get_global_aiohttp_client().close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        del os.environ[NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME]


@pytest.fixture(scope="module")
def gym(admin: str) -> Iterator[Gym]:
    gym = Gym(admin)
    yield gym
    gym.close()


def message_log(sample: dict[str, Any]) -> list[tuple[str, list[int], list[float]]]:
    """Converts a sample into a message log as NeMo-RL (7ea279a) does, with its checks."""
    log: list[tuple[str, list[int], list[float]]] = []
    seen: list[int] = []
    for item in sample["response"]["output"]:
        if not item.get("generation_token_ids"):
            continue
        prompt, ids = item["prompt_token_ids"], item["generation_token_ids"]
        assert prompt[: len(seen)] == seen, "each turn has to go on where the one before ended"
        log += [("user", prompt[len(seen) :], []), ("assistant", ids, item["generation_log_probs"])]
        seen = prompt + ids
    assert log, "a result without a generation ends the step"
    return log


def masked(sample: dict[str, Any]) -> tuple[bool, bool]:
    """Returns whether the sample is masked for Gym, and whether for NeMo-RL."""
    return sample["mask_sample"], sample["instance_config"]["mask_sample"]


def exported(line: dict[str, Any]) -> list[tuple[str, list[int], list[float]]]:
    """Returns the message log of an exported line."""
    log = result(line)["message_log"]
    return [(one["role"], one["token_ids"].tolist(), one.get("generation_logprobs", np.zeros(0)).tolist()) for one in log]


def as_float32(log: list[tuple[str, list[int], list[float]]]) -> list[tuple[str, list[int], list[float]]]:
    return [(role, ids, np.asarray(logprobs, np.float32).tolist()) for role, ids, logprobs in log]


def test_a_forked_sample_is_the_exported_branch(gym: Gym, client: Client, capture: Capture, tmp_path: Path) -> None:
    (sample,) = gym.collect("forks", {"last": "Leave it.", "instance_config": {"repository": "r"}})
    assert masked(sample) == (False, False)
    assert sample["reward"] == 0.5 and sample["instance_config"]["repository"] == "r"
    told = sample["rolltap"]
    assert (told["branches"], told["rewards"]) == (2, {"reward": 0.5, "style": 1.0})
    items = NeMoGymResponse.model_validate(sample["response"]).output
    assert {type(item) for item in items} == {NeMoGymResponseOutputMessageForTraining}
    rows = client.rollout(told["trial_id"])
    (tmp_path / "rollouts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (line,) = read_lines(export(capture.program, tmp_path, "nemo-rl", "--on-fork", "longest"))
    made = as_float32(message_log(sample))
    assert made == exported(line)
    assert [role for role, *_ in made].count("assistant") == 2


def test_samples_are_trials_of_their_own(gym: Gym, client: Client) -> None:
    asked = {"responses_create_params": {"input": "Hm?", "temperature": 0.7, "top_p": 0.9, "max_output_tokens": 9}}
    samples = gym.collect("forks", {"last": "Leave it."}, {"last": "Burn it.", "instance_id": "set::task", **asked})
    first, second = ([*client.rollout(sample["rolltap"]["trial_id"])] for sample in samples)
    assert (first[0]["task_id"], second[0]["task_id"]) == ("0", "set::task")
    assert first[0]["group_id"] is second[0]["group_id"] is None
    call = second[0]["calls"][0]
    assert (call["temperature"], call["top_p"], json.loads(call["sampling"])["max_tokens"]) == (0.7, 0.9, 12)
    status = client.trial(samples[1]["rolltap"]["trial_id"])
    assert status["metadata"] == {"nemo_gym": "1-3"}


@pytest.mark.parametrize(
    ("agent", "kind", "reason"),
    [("times_out", "agent_timeout", "TimeoutError"), ("says_nothing_of_it", "verifier_error", "no_reward")],
)
def test_a_failed_sample_is_masked_with_its_tokens(gym: Gym, client: Client, agent: str, kind: str, reason: str) -> None:
    (sample,) = gym.collect(agent, {})
    assert masked(sample) == (True, True)
    assert (sample["reward"], sample["failure_kind"], sample["failure_reason"]) == (0.0, kind, reason)
    (row,) = client.rollout(sample["rolltap"]["trial_id"])
    assert not row["reward_valid"]
    log = message_log(sample)
    assert sum((ids for _, ids, _ in log), []) == row["token_ids"]
    # NeMo-RL groups samples by their prompt, so a masked sample must have the real prompt.
    assert log[0][1] == row["token_ids"][: row["prompt_len"]]


def test_a_sample_without_a_token_has_two_in_its_place(gym: Gym) -> None:
    (sample,) = gym.collect("asks_nothing", {})
    # It counts with its reward, and trains nothing.
    assert masked(sample) == (False, True)
    assert sample["reward"] == 1.0 and sample.get("failure_reason") is None
    assert message_log(sample) == [("user", [0], []), ("assistant", [0], [0.0])]


def test_a_sample_of_which_nothing_can_be_trained_is_judged_all_the_same(gym: Gym, client: Client) -> None:
    (sample,) = gym.collect("constrained", {})
    assert masked(sample) == (False, True)
    assert sample["reward"] == 1.0 and sample["failure_kind"] is None
    (row,) = client.rollout(sample["rolltap"]["trial_id"])
    assert message_log(sample)[0][1] == row["token_ids"][: row["prompt_len"]]


def test_a_resources_server_judges(gym: Gym, client: Client) -> None:
    items = [
        {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "a"},
        {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "A file", "annotations": []}]},
    ]
    says = ["a file", "two files", items]
    samples = gym.collect("answers", *({"says": one, "expected_answer": "A file"} for one in says))
    assert [sample["reward"] for sample in samples] == [sample["equivalence_score"] for sample in samples] == [1.0, 0.0, 1.0]
    for sample, words in zip(samples, [1, 1, 3], strict=True):
        assert masked(sample) == (False, False)
        output = sample["response"]["output"]
        assert ["generation_token_ids" in item for item in output] == [True] * 2 + [False] * words
        assert output[-1]["content"][0]["text"].lower() in ("a file", "two files")
        assert len(message_log(sample)) == 4
        (row,) = client.rollout(sample["rolltap"]["trial_id"])
        assert (row["reward"], row["reward_valid"]) == (sample["reward"], True)


def test_a_resources_server_that_refuses_fails_the_request(gym: Gym) -> None:
    with pytest.raises(ClientResponseError) as refusal:
        gym.collect("answers", {"says": "A file"})
    assert refusal.value.status == 500 and b"expected_answer" in refusal.value.response_content


def test_an_evaluation_may_skip_the_judge(gym: Gym) -> None:
    (sample,) = gym.collect("unverified", {"says": "A file"})
    assert (sample["reward"], sample["verification_skipped"], masked(sample)) == (0.25, True, (False, False))


def test_the_agent_works_in_the_session_of_its_sample(gym: Gym) -> None:
    samples = gym.collect("counts", *({"initial_count": 3, "expected_count": expected} for expected in (5, 4)))
    assert [sample["reward"] for sample in samples] == [1.0, 0.0]


def test_a_judge_that_cannot_say_masks_the_sample(gym: Gym, client: Client) -> None:
    (sample,) = gym.collect("unjudged", {})
    assert masked(sample) == (True, True)
    assert (sample["failure_kind"], sample["failure_reason"]) == ("judge_failed", "503")
    assert not client.rollout(sample["rolltap"]["trial_id"])[0]["reward_valid"]
    assert message_log(sample)


def test_gyms_metrics_leave_masked_samples_out(gym: Gym) -> None:
    samples = gym.collect("forks", {"last": "a"}) + gym.collect("times_out", {}) + gym.collect("asks_nothing", {})
    body = {"verify_responses": [{**sample, "_ng_task_index": 0, "_ng_rollout_index": at} for at, sample in enumerate(samples)]}

    async def metrics() -> dict[str, Any]:
        return await (await gym.client.post("forks", "/aggregate_metrics", json=body)).json()

    # The rewards are 0.5 and, of the sample without a token, 1.0.
    assert gym.run(metrics())["agent_metrics"]["mean/reward"] == 0.75


def test_a_live_sample_is_the_exported_one(ends_masked: OneTrial) -> None:
    live = _result(ends_masked.prepared(Prepare(on_fork="longest")), {"responses_create_params": {"input": []}}, {})
    RolltapVerifyResponse.model_validate(live)
    assert as_float32(message_log(live)) == exported(ends_masked.line("nemo-rl"))


def test_an_agent_that_is_not_there_ends_the_server(gym: Gym) -> None:
    config = {"name": "x", "host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "agent": f"{__name__}:nobody"}
    with pytest.raises(AttributeError, match="nobody"):
        RolltapAgent(config=RolltapAgentConfig(**config), server_client=gym.client)


def test_a_call_alone_is_refused(gym: Gym) -> None:
    async def asked() -> int:
        return (await gym.client.post("forks", "/v1/responses", json={"input": "Hm?"})).status

    assert gym.run(asked()) == 501
