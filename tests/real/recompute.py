"""Recomputes the logprobs of sampled tokens in rollouts, in one forward pass over each row, and compares them.

usage: recompute.py MODEL ROWS      (needs torch and transformers; ROWS is JSONL of rollout/1)

Prints JSON, for the rows as they are and for each control that must differ. It has the number of sampled tokens, the
number that differ by more than 1e-3, the median and the largest difference. Tokens of constrained calls are context
only: their reported logprobs are not those of the model's own distribution.
"""

from __future__ import annotations

import difflib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

Row = dict[str, Any]
Pairs = list[tuple[torch.Tensor, torch.Tensor]]
APART = 1e-3


class Forward:
    """Computes with the model in float32 the logprob of each token, given the tokens before it."""

    def __init__(self, model: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.float32, attn_implementation="eager"
        ).eval()

    @torch.inference_mode()
    def logprobs(self, ids: list[int]) -> torch.Tensor:
        tokens = torch.tensor([ids])
        logprobs = torch.log_softmax(self.model(tokens).logits[0, :-1].double(), dim=-1)
        of_each = logprobs.gather(1, tokens[0, 1:, None])[:, 0]
        # The first token has no context and so no logprob.
        return torch.cat([torch.zeros(1, dtype=torch.double), of_each])


def free_mask(row: Row) -> torch.Tensor:
    mask = torch.tensor(row["sampled_mask"], dtype=torch.bool)
    for call in row["calls"]:
        if call["constrained"]:
            mask[call["start"] : call["end"]] = False
    return mask


def retokenised(tokenizer: Any, row: Row, forward: Forward, mask: torch.Tensor, captured: torch.Tensor) -> Pairs:
    """Returns captured and recomputed logprobs of the sampled tokens that the re-tokenised text has too.

    The context of the recomputed logprobs is the re-tokenised text. Empty if both have the same ids.
    """
    ids = row["token_ids"]
    again = tokenizer.encode(tokenizer.decode(ids), add_special_tokens=False)
    if again == ids:
        return []
    anew = forward.logprobs(again)
    pairs: Pairs = []
    for old, new, size in difflib.SequenceMatcher(None, ids, again, autojunk=False).get_matching_blocks():
        # Skip the tokens before the first difference: their context is the same in both.
        if old == 0:
            continue
        kept = mask[old : old + size]
        pairs.append((captured[old : old + size][kept], anew[new : new + size][kept]))
    return pairs


def figures(pairs: Pairs) -> dict[str, float]:
    apart = torch.cat([(a - b).abs() for a, b in pairs])
    return {
        "tokens": apart.numel(),
        "apart": int((apart > APART).sum()),
        "median": float(apart.median()),
        "largest": float(apart.max()),
    }


def main(model: str, rows: Path) -> None:
    forward = Forward(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    found: dict[str, Pairs] = {name: [] for name in ("same", "shifted", "mask_early", "retokenised")}
    for line in rows.read_text().splitlines():
        row: Row = json.loads(line)
        mask = free_mask(row)
        captured = torch.tensor(row["logprobs"], dtype=torch.double)
        anew = forward.logprobs(row["token_ids"])
        # The controls: logprobs one token late, a mask one token early, and the text tokenised again.
        early = mask.roll(-1)
        found["same"].append((captured[mask], anew[mask]))
        found["shifted"].append((captured.roll(1)[mask], anew[mask]))
        found["mask_early"].append((captured[early], anew[early]))
        found["retokenised"] += retokenised(tokenizer, row, forward, mask, captured)
    print(json.dumps({name: figures(pairs) for name, pairs in found.items()}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
