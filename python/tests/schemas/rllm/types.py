"""Has the fields and types of `rllm.types`, and its only check (rLLM 9beb6e0, which is in no package index)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class ModelOutput(BaseModel, extra="forbid"):
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    prompt_length: int
    completion_length: int
    weight_version: int | None = None


class Step(BaseModel):
    prompt_ids: list[int] = Field(default_factory=list)
    response_ids: list[int] = Field(default_factory=list)
    logprobs: list[float] = Field(default_factory=list)
    model_output: ModelOutput | None = None
    reward: float = 0.0
    done: bool = False
    advantage: list[float] | float | None = None
    weight_version: int | None = None

    def model_post_init(self, _: Any) -> None:
        """Fills empty fields from the output of the model, and then checks that the lengths agree."""
        told = self.model_output
        if told is not None:
            self.prompt_ids = self.prompt_ids or told.prompt_ids
            self.response_ids = self.response_ids or told.completion_ids
            self.logprobs = self.logprobs or told.logprobs
            if self.weight_version is None:
                self.weight_version = told.weight_version
        assert len(self.response_ids) == len(self.logprobs)


class Trajectory(BaseModel):
    uid: str
    name: str
    task: Any
    steps: list[Step]
    reward: float | None = None


class Episode(BaseModel):
    id: str
    task: Any
    is_correct: bool
    trajectories: list[Trajectory]

    @property
    def task_id(self) -> str:
        return self.id.split(":")[0]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Episode:
        return cls.model_validate(data)
