"""Makes one step of importance-sampling policy gradient, with the loss that Tinker and many other trainers use.

    loss = sum over trained tokens of  -exp(logprob now - logprob captured) * advantage of the trial
                                       + penalty * (exp(d) - 1 - d),   d = logprob at the start - logprob now

There is no critic, and the ratio is not clipped. The penalty is GRPO's estimate of the divergence from the policy at
the start. With a few dozen trials per step, noise alone would soon destroy the taught behaviour.

Tokens that the current weights sampled have a ratio of 1 up to rounding. The ratios before the update therefore show
whether the captured tokens, masks and logprobs are right.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rollouts import Sample
from transformers import PreTrainedModel

MICRO_BATCH = 4
CLIP = 1.0


class NotFinite(Exception):
    """The gradient's length is not finite. The weights are unchanged."""


def logprobs(model: PreTrainedModel, samples: Sequence[Sample]) -> list[torch.Tensor]:
    """Returns the logprobs of each sample's trained tokens, given all tokens before them."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(one.ids) for one in samples], batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.tensor(one.mask) for one in samples], batch_first=True).bool()
    # Padding follows the last token, so causal attention ignores it. Logits are computed only before trained tokens.
    before = mask[:, 1:]
    logits = model.lm_head(model.model(input_ids=ids[:, :-1]).last_hidden_state[before])
    made = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:][before][:, None])[:, 0]
    return list(made.split(before.sum(dim=1).tolist()))


def captured(sample: Sample) -> torch.Tensor:
    """Returns the logprobs of the sample's trained tokens as vLLM returned them."""
    # The first token has no context, so it is never trained.
    return torch.tensor([lp for lp, trained in zip(sample.logprobs[1:], sample.mask[1:]) if trained])


def chunks(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Returns micro-batches of samples with similar lengths, so that little is padded."""
    by_length = sorted(samples, key=lambda one: len(one.ids))
    return [by_length[at : at + MICRO_BATCH] for at in range(0, len(by_length), MICRO_BATCH)]


def improve(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    start: Sequence[torch.Tensor],
    penalty: float,
) -> list[torch.Tensor]:
    """Makes one update. Returns the logprobs of the trained tokens before it, in the order of the samples.

    `start` has the logprobs of the policy at the start, and the penalty limits the distance from them. Raises
    `NotFinite` if the gradient's length is not finite.
    """
    optimizer.zero_grad()
    before: dict[int, torch.Tensor] = {}
    of_start = {id(one): known for one, known in zip(samples, start)}
    for chunk in chunks(samples):
        now = logprobs(model, chunk)
        terms = []
        for new, one in zip(now, chunk):
            apart = of_start[id(one)] - new
            gain = (new - captured(one)).exp() * one.advantage
            terms.append((penalty * (apart.exp() - 1 - apart) - gain).sum())
        torch.stack(terms).sum().div(len(samples)).backward()
        before |= {id(one): new.detach() for new, one in zip(now, chunk)}
    length = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    if not torch.isfinite(length):
        optimizer.zero_grad()
        raise NotFinite(f"the gradient's length is {length.item()}")
    optimizer.step()
    return [before[id(one)] for one in samples]
