"""Has the fields of `pipelinerl.rollouts`, and the preprocessor's rules (PipelineRL 58d3934, in no package index).

- `TrainingText`: pipelinerl/rollouts.py:13; `BaseMetrics`: :6; `RolloutResult`: :60
- `trainer_fields`: pipelinerl/finetune/rl/__init__.py:573 (`prepare_rl_fields`)
- `check_group_sizes`: pipelinerl/preprocess.py:70; the metadata that it and `preprocess_dataset` read: :75, :171-173
- `advantages`: pipelinerl/finetune/rl/__init__.py:453 (`populate_rl_data`)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import stdev
from typing import Any

from pydantic import BaseModel, Field

NO_LABEL = -100


class BaseMetrics(BaseModel):
    reward: float
    success: bool
    no_error: bool
    no_answer: bool


class TrainingText(BaseModel, extra="forbid"):
    text: str
    n_predicted: int
    reward: float = 0.0
    logprobs: list[float] = Field(default_factory=list)
    ref_logprobs: list[float] = Field(default_factory=list)
    input_ids: list[int] = Field(default_factory=list)
    labels: list[int] = Field(default_factory=list)
    group_id: str | None = None
    finished: bool = False
    prompt_tokens: int = 0
    output_tokens: int = 0
    visual_features: dict[str, Any] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    def trainer_fields(self) -> tuple[list[int], list[float]]:
        """Returns the trained mask and the old logprobs, both per token, as the preprocessor makes them."""
        assert len(self.labels) == len(self.input_ids)
        mask = [int(label != NO_LABEL) for label in self.labels]
        assert sum(mask) == len(self.logprobs), "as many logprobs as labels"
        # The logprobs are aligned with the end of the text, wherever the labels are.
        return mask, [0.0] * (len(self.labels) - len(self.logprobs)) + self.logprobs


class RolloutResult(BaseModel):
    training_texts: list[TrainingText]
    metrics: BaseMetrics
    latency: float
    model_version: int | None = None
    dataset_name: str | None = None
    group_id: str | None = None
    domain: str | None = None


def check_group_sizes(texts: Sequence[TrainingText], attempts: int) -> None:
    rollouts: dict[Any, set[int]] = defaultdict(set)
    for text in texts:
        rollouts[text.group_id].add(text.metadata["rollout_index"])
    assert all(len(indices) == attempts for indices in rollouts.values()), rollouts


def advantages(texts: Sequence[TrainingText], by_std: bool = False) -> list[float]:
    """Returns each text's reward less the mean of the other trials' texts with the same group and step."""
    steps: dict[Any, list[float]] = defaultdict(list)
    for text in texts:
        steps[text.group_id, text.metadata["step_index"]].append(text.reward)
    made = []
    for text in texts:
        rewards = steps[text.group_id, text.metadata["step_index"]]
        others = len(rewards) - 1
        mean = (sum(rewards) - text.reward) / others if others else text.reward
        divisor = (stdev(rewards) if others else 0.0) + 1e-4 if by_std else 1.0
        made.append((text.reward - mean) / divisor)
    return made
