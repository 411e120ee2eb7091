"""Has a policy that samples and learns on the CPU instead of Tinker's service, for experiments and small models.

Tinker's loop needs two things from a model: a token completer, and a step of the loss `importance_sampling` on the
cookbook's own data. The policy has both. It trains all weights, in float32.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import tinker
import torch
from tinker_cookbook.completers import StopCondition, TokenCompleter, TokensWithLogprobs
from transformers import AutoModelForCausalLM


class LocalPolicy(TokenCompleter):
    """Samples from and trains a causal language model of transformers, given by its name or directory."""

    def __init__(
        self, model_name: str, *, max_tokens: int, temperature: float, learning_rate: float, seed: int = 0
    ) -> None:
        torch.manual_seed(seed)
        self.model = AutoModelForCausalLM.from_pretrained(model_name, dtype=torch.float32).eval()
        self.max_tokens = max_tokens
        self.temperature = temperature
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate, weight_decay=0.0)
        self._one_at_a_time = asyncio.Lock()

    async def __call__(
        self, model_input: tinker.ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        """Samples until one of the stop tokens, or until the smaller limit of tokens.

        Raises `ValueError` if the renderer stops at a text instead of a token.
        """
        if any(not isinstance(one, int) for one in stop):
            raise ValueError("a local policy stops at tokens: choose a renderer that does")
        limit = min(self.max_tokens, max_tokens or self.max_tokens)
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._sample, model_input.to_ints(), set(stop), limit)

    @torch.no_grad()
    def _sample(self, prompt: list[int], stop: set[int], limit: int) -> TokensWithLogprobs:
        tokens: list[int] = []
        logprobs: list[float] = []
        step, cache = torch.tensor([prompt]), None
        while len(tokens) < limit:
            output = self.model(input_ids=step, past_key_values=cache, use_cache=True, logits_to_keep=1)
            distribution = self._log_softmax(output.logits[0, -1])
            token = int(torch.multinomial(distribution.exp(), 1))
            tokens.append(token)
            logprobs.append(float(distribution[token]))
            if token in stop:
                return TokensWithLogprobs(tokens, logprobs, stop_reason="stop")
            step, cache = torch.tensor([[token]]), output.past_key_values
        return TokensWithLogprobs(tokens, logprobs, stop_reason="length")

    def update(self, data: Sequence[tinker.Datum]) -> dict[str, float]:
        """Makes one optimizer step with Tinker's loss, -sum(exp(logprob - sampled logprob) * advantage), over `data`.

        `largest_ratio_error` is the largest distance of exp(logprob - sampled logprob) from 1 before the step. Tokens
        that these weights sampled have a ratio of 1, up to rounding.
        """
        if not data:
            return {"loss": 0.0, "tokens": 0.0, "largest_ratio_error": 0.0}
        self._optimizer.zero_grad()
        total, tokens, furthest = 0.0, 0, 0.0
        for datum in data:
            trained = _tensor(datum, "mask").nonzero()[:, 0]
            sampled, advantages, targets = (
                _tensor(datum, name)[trained] for name in ("logprobs", "advantages", "target_tokens")
            )
            logprobs = self._logprobs(datum.model_input.to_ints(), trained, targets.long())
            ratio = (logprobs - sampled).exp()
            loss = -(ratio * advantages).sum()
            loss.backward()
            total += loss.item()
            tokens += len(trained)
            furthest = max(furthest, (ratio - 1).abs().max().item())
        self._optimizer.step()
        return {"loss": total, "tokens": float(tokens), "largest_ratio_error": furthest}

    def imitate(
        self, pairs: Sequence[tuple[list[int], list[int]]], *, steps: int, learning_rate: float
    ) -> float:
        """Trains the model on these pairs of prompt and answer, and returns the last mean loss per token, in nats."""
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate, weight_decay=0.0)
        mean = 0.0
        for _ in range(steps):
            optimizer.zero_grad()
            losses = [-self._answered(prompt, answer).mean() for prompt, answer in pairs]
            loss = torch.stack(losses).mean()
            loss.backward()
            optimizer.step()
            mean = loss.item()
        return mean

    def save(self, folder: Path) -> None:
        """Writes the weights to `folder` in the format of transformers."""
        self.model.save_pretrained(folder)

    def _answered(self, prompt: list[int], answer: list[int]) -> torch.Tensor:
        # The logits at a position are those of the next token, so the first is at the last token of the prompt.
        places = torch.arange(len(prompt) - 1, len(prompt) + len(answer) - 1)
        return self._logprobs([*prompt, *answer[:-1]], places, torch.tensor(answer))

    def _logprobs(self, inputs: list[int], places: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Returns the logprob of each of `targets`, the tokens that follow the positions `places`.

        No logits are computed for other positions.
        """
        logits = self.model(input_ids=torch.tensor([inputs]), logits_to_keep=places).logits[0]
        return self._log_softmax(logits).gather(-1, targets[:, None])[:, 0]

    def _log_softmax(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(logits.float() / self.temperature, dim=-1)


def _tensor(datum: tinker.Datum, name: str) -> torch.Tensor:
    return datum.loss_fn_inputs[name].to_torch()
