"""Replaces Tinker's training service with a causal language model on the CPU, as far as the cookbook's loop calls it.

All weights are trained, in float32. Saving weights for sampling hands them over to the vLLM that the agents use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import model as speech
import tinker
import torch
from processes import Stopped
from services import Services
from transformers import AutoModelForCausalLM, AutoTokenizer

Made = TypeVar("Made")


@dataclass(frozen=True)
class Served:
    """Replaces a sampling client. Agents sample through the service from the weights of this version."""

    version: int


class LocalClient:
    """Processes one request after the other, in their order, as the service does."""

    def __init__(self, taught: Path, policy: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(taught, dtype=torch.float32).eval()
        # Each `optim_step` brings the optimizer's parameters.
        self._optimizer = torch.optim.AdamW(self._model.parameters())
        self._folder = policy
        self._steps = 0
        self._apart = 0.0
        self._requests = ThreadPoolExecutor(max_workers=1, thread_name_prefix="policy")
        self.services: Services | None = None
        """The services that receive new weights, or `None` while only the weights in the policy's folder exist."""
        speech.save(self._model, AutoTokenizer.from_pretrained(taught), policy)

    def forward_backward(
        self, data: Sequence[tinker.Datum], loss_fn: str, loss_fn_config: dict[str, Any] | None = None
    ) -> asyncio.Future[tinker.ForwardBackwardOutput]:
        """Adds the gradient of `-sum(exp(logprob - sampled logprob) * advantage)`, and returns the logprobs of all
        targets."""
        if loss_fn != "importance_sampling" or loss_fn_config:
            raise ValueError(f"this client knows the loss importance_sampling alone, not {loss_fn} {loss_fn_config or ''}")
        return self._ask(lambda: self._forward_backward(data))

    def optim_step(self, params: tinker.AdamParams) -> asyncio.Future[tinker.OptimStepResponse]:
        """Makes one step of Adam with the gradients since the last step."""
        return self._ask(lambda: self._optim_step(params))

    async def save_weights_and_get_sampling_client(self, *, record_stability_info: bool = False) -> Served:
        """Hands the weights over, and stamps the following tokens with the number of steps that made the weights."""
        if record_stability_info:
            raise ValueError("vLLM records no information for the loss stable_reinforce")
        return await self._ask(self._hand_over)

    def _ask(self, what: Callable[[], Made]) -> asyncio.Future[Made]:
        return asyncio.wrap_future(self._requests.submit(what))

    def _forward_backward(self, data: Sequence[tinker.Datum]) -> tinker.ForwardBackwardOutput:
        outputs = []
        for datum in data:
            targets, sampled, advantages = (
                datum.loss_fn_inputs[name].to_torch() for name in ("target_tokens", "logprobs", "advantages")
            )
            logits = self._model(input_ids=torch.tensor([datum.model_input.to_ints()])).logits[0]
            logprobs = torch.log_softmax(logits, dim=-1).gather(-1, targets.long()[:, None])[:, 0]
            # Both are 0 where no token was sampled. The service does not get the mask that marks these places.
            known = (sampled != 0) | (advantages != 0)
            (-((logprobs - sampled)[known].exp() * advantages[known]).sum()).backward()
            now = logprobs.detach()
            self._apart = max(self._apart, (now - sampled)[known].abs().max().item() if known.any() else 0.0)
            outputs.append({"logprobs": tinker.TensorData.from_torch(now)})
        return tinker.ForwardBackwardOutput(loss_fn_output_type="TorchLossReturn", loss_fn_outputs=outputs)

    def _optim_step(self, params: tinker.AdamParams) -> tinker.OptimStepResponse:
        self._optimizer.param_groups[0].update(
            lr=params.learning_rate,
            betas=(params.beta1, params.beta2),
            eps=params.eps,
            weight_decay=params.weight_decay,
        )
        length = torch.nn.utils.clip_grad_norm_(self._model.parameters(), params.grad_clip_norm or float("inf"))
        if not torch.isfinite(length):
            raise Stopped(f"the gradient's length is {length.item()}; the weights were left as they are")
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._steps += 1
        apart, self._apart = self._apart, 0.0
        return tinker.OptimStepResponse(metrics={"logprob_diff_max": apart, "gradient_length": length.item()})

    def _hand_over(self) -> Served:
        if self.services is not None and self.services.version != self._steps:
            speech.save_weights(self._model.named_parameters(), self._folder)
            self.services.hand_over(self._steps)
        return Served(self._steps)
