"""Samples for miles (commit 31f1ca9), from an export or from agents that run live.

miles is a fork of slime. A line of `rolltap export --format miles` is a `Sample`. For live agents, write a module and
name its functions in miles' arguments, as in `rolltap.trainers.slime`. miles adapts a function of
`(args, sample, sampling_params)` to its newer signature by itself.
"""

from __future__ import annotations

from miles.utils.types import Sample

from rolltap.trainers._slime_family import Family, post_process_rewards

__all__ = ["generate_with", "post_process_rewards", "sample", "save_debug_data"]

_miles = Family(Sample, "miles", aborted_has_tokens=True)

sample = _miles.sample
save_debug_data = _miles.save_debug_data
generate_with = _miles.generate_with
