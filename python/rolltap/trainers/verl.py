"""Outputs of an agent loop for verl (package `verl` 0.9.1), from an export or from agents that run live.

A line of `rolltap export --format verl` is the result of one `run` of an agent loop: an output per branch. Only verl's
trainer with a TransferQueue (`verl.trainer.ppo.v1`) accepts several outputs at once. For the other trainer, export with
`--on-fork longest`, and pass `several=False` to `AgentLoop`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from rolltap.client import DEFAULT_URL, AsyncClient
from rolltap.prepare import Prepare, earned, prepared_rows
from rolltap.row import PreparedRow, Response, Trial, response, stand_in
from rolltap.sampling import of_a_trial
from rolltap.trial import run_trial


def outputs(line: Mapping[str, Any]) -> list[AgentLoopOutput]:
    """Returns the outputs of an exported line."""
    return [AgentLoopOutput.model_validate(output) for output in line["outputs"]]


class AgentLoop(AgentLoopBase):
    """Runs an agent once per sample, as a trial. Name it in verl's configuration of agent loops:

    ```yaml
    - name: rolltap
      _target_: rolltap.trainers.verl.AgentLoop
      agent: my_module:my_agent   # an async function of (trial, task) that gives a reward
      url: http://127.0.0.1:7071
    ```

    The task of the agent is the sample's line of the data set. If the trial has no valid reward, `run` raises, and verl
    drops the whole prompt: without this sample a single other one could remain, whose advantage would be its raw reward.
    A trial with a reward and without a trained token gives one output that trains nothing, because it counts in the
    baseline.

    A branch whose prompt is longer than verl's `prompt_length` is left out, because a shorter prompt has other logprobs.
    A response is cut at `response_length`. `rolltap_cut_tokens` and `rolltap_left_out_branches` of `extra_fields` have
    the numbers.

    verl requires that all samples of a batch have the same names in `reward_extra_info`. If the names differ between
    tasks, give all of them as `reward_names`: a name that a trial lacks has the value None.
    """

    def __init__(
        self,
        *args: Any,
        agent: str,
        url: str = DEFAULT_URL,
        token: str | None = None,
        several: bool = True,
        reward_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        module, _, name = agent.partition(":")
        self._agent = getattr(importlib.import_module(module), name)
        self._url = url
        self._token = token
        self._several = several
        self._reward_names = reward_names

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput] | AgentLoopOutput:
        """Runs one sample of one prompt. Raises RuntimeError if it has no valid reward."""
        async with AsyncClient(self._url, token=self._token) as client:
            trial = await run_trial(
                client,
                self._agent,
                kwargs,
                task_id=str(kwargs.get("uid", "verl")),
                sampling=of_a_trial(sampling_params),
                prepare=Prepare(on_fork="all" if self._several else "longest"),
            )
        lengths = self.rollout_config.prompt_length, self.rollout_config.response_length
        made = outputs(_line(trial, lengths, self._reward_names, int(kwargs.get("global_steps", -1))))
        return made if self._several else made[0]


def _line(
    trial: Trial, lengths: tuple[int, int] | None = None, names: Sequence[str] | None = None, step: int = -1
) -> dict[str, Any]:
    reward = earned(trial)
    if reward is None:
        raise RuntimeError(f"trial {trial['trial_id']} has no valid reward: {trial['failure_cause'] or 'no_reward'}")
    # verl reads the trial's advantage at a trained token of the last output, so each output needs one.
    trained = [row for row in prepared_rows(trial) if any(row["loss_mask"])]
    fitting = [made for row in trained if (made := _fitted(row, lengths)) is not None]
    rewards = dict(trial["rewards"]) if names is None else {name: trial["rewards"].get(name) for name in names}
    shared = {"reward_extra_info": rewards, "rolltap_left_out_branches": len(trained) - len(fitting)}
    lines = [_output(part, reward, {**shared, **extra}, turns) for part, extra, turns in fitting]
    # verl requires an output of each sample. Two untrained tokens have a reward and no gradient.
    nothing = {"min_global_steps": step, "max_global_steps": step, "rolltap_cut_tokens": 0}
    return {"outputs": lines or [_output(stand_in(), reward, {**shared, **nothing}, 0)]}


def _fitted(row: PreparedRow, lengths: tuple[int, int] | None) -> tuple[Response, dict[str, Any], int] | None:
    """Returns the row within verl's lengths, its extra fields and its turns. None if nothing trained is within them."""
    whole = response(row)
    prompt_length, response_length = lengths or (len(whole.prompt_ids), len(whole.ids))
    trained = [place for place, mask in enumerate(whole.mask[:response_length]) if mask]
    if len(whole.prompt_ids) > prompt_length or not trained:
        return None
    # Like an export, the response ends with its last trained token, where verl puts the reward.
    end = trained[-1] + 1
    cut = Response(whole.prompt_ids, whole.ids[:end], whole.mask[:end], whole.logprobs[:end])
    extra = {
        "min_global_steps": row["oldest_policy"],
        "max_global_steps": row["newest_policy"],
        "rolltap_cut_tokens": len(whole.ids) - end,
    }
    # verl counts a prompt and an answer as two turns.
    return cut, extra, 2 * len(row["calls"])


def _output(part: Response, reward: float, extra_fields: Mapping[str, Any], turns: int) -> dict[str, Any]:
    return {
        "prompt_ids": part.prompt_ids,
        "response_ids": part.ids,
        "response_mask": part.mask,
        "response_logprobs": part.logprobs,
        "reward_score": reward,
        "num_turns": turns,
        "metrics": {},
        "extra_fields": extra_fields,
    }
