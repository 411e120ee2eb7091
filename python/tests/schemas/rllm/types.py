"""Has the fields and types of `rllm.types` that exports fill (contracts/rllm.toml), its conversions and its only check.

rLLM is in no package index. scripts/check-trainer runs the tests on rLLM itself. Like there, keys of `from_dict` are
required unless they are read with a default.
"""

from __future__ import annotations

import uuid
from typing import Any

from pydantic import BaseModel, Field
from rllm.engine.rollout.rollout_engine import ModelOutput


class Step(BaseModel):
    reward: float = 0.0
    done: bool = False
    prompt_ids: list[int] | list[Any] = Field(default_factory=list)
    response_ids: list[int] = Field(default_factory=list)
    logprobs: list[float] = Field(default_factory=list)
    action: Any | None = None
    chat_completions: list[dict[str, Any]] = Field(default_factory=list)
    observation: Any = None
    thought: str = ""
    model_response: str = ""
    model_output: Any = None
    mc_return: float = 0.0
    advantage: list[float] | float | None = None
    weight_version: int | None = None

    def model_post_init(self, _: Any) -> None:
        """Fills empty fields from the output of the model, and then checks that the lengths agree."""
        output = self.model_output
        if output is None:
            return
        self.prompt_ids = self.prompt_ids or output.prompt_ids
        self.response_ids = self.response_ids or output.completion_ids
        self.logprobs = self.logprobs or output.logprobs
        if self.weight_version is None:
            self.weight_version = output.weight_version
        assert not self.logprobs or len(self.response_ids) == len(self.logprobs)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Step:
        required = ("prompt_ids", "response_ids", "logprobs", "chat_completions", "observation", "thought", "action")
        values = {key: data[key] for key in (*required, "model_response", "reward", "done", "mc_return")}
        output = data.get("model_output")
        values["model_output"] = None if output is None else ModelOutput(**output)
        return cls(**values, advantage=data.get("advantage", 0.0), weight_version=data.get("weight_version"))


class Trajectory(BaseModel):
    uid: str = Field(default_factory=lambda: str(uuid.uuid4()))
    name: str = "default_traj_name"
    task: Any = None
    steps: list[Step] = Field(default_factory=list)
    reward: float | None = None
    metadata: dict | None = None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Trajectory:
        steps = [Step.from_dict(step) for step in data.get("steps", [])]
        values = {key: data[key] for key in ("uid", "name", "task", "reward")}
        return cls(**values, steps=steps, metadata=data.get("info", {}))


class Episode(BaseModel):
    id: str = Field(default_factory=lambda: str(uuid.uuid4()))
    task: Any = None
    termination_reason: Any | None = None
    is_correct: bool = False
    trajectories: list[Trajectory] = Field(default_factory=list)
    metrics: dict = Field(default_factory=dict)
    metadata: dict = Field(default_factory=dict)

    @property
    def task_id(self) -> str:
        return self.id.split(":")[0]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Episode:
        trajectories = [Trajectory.from_dict(one) for one in data["trajectories"]]
        values = {key: data[key] for key in ("id", "task", "is_correct")}
        return cls(**values, trajectories=trajectories, metrics=data.get("metrics", {}), metadata=data.get("info", {}))
