"""Reads the advantages of trials from a trainer's tensors."""

from __future__ import annotations

from collections.abc import Iterable

import torch

Trial = tuple[str, int]
"""The id of a trial's group, and the index of the trial in its group."""


def of_tokens(values: torch.Tensor, mask: torch.Tensor) -> float | None:
    """Returns the one advantage that all tokens in the mask have, or None if the mask is empty.

    `values` and `mask` have one value for each position of a row.
    """
    kept = values[mask.bool()]
    assert torch.isfinite(values).all(), "an advantage is no number"
    assert not len(kept) or torch.allclose(kept, kept[0]), kept
    return kept[0].item() if len(kept) else None


def known(pairs: Iterable[tuple[Trial, float | None]]) -> dict[Trial, float]:
    """Returns the advantages by trial, without the trials that train no token."""
    return {trial: advantage for trial, advantage in pairs if advantage is not None}
