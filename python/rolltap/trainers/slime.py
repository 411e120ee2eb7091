"""Samples for slime (commit 624b824), from an export or from agents that run live.

A line of `rolltap export --format slime` is a `Sample`. For live agents, write a module and name its functions in
slime's arguments:

```python
# my_rollout.py: --custom-generate-function-path my_rollout.generate
#                --custom-reward-post-process-path my_rollout.post_process_rewards
from rolltap.trainers.slime import generate_with, post_process_rewards

generate = generate_with(my_agent)
```
"""

from __future__ import annotations

from slime.utils.types import Sample

from rolltap.trainers._slime_family import Family, post_process_rewards

__all__ = ["generate_with", "post_process_rewards", "sample", "save_debug_data"]

_slime = Family(Sample, "slime", aborted_has_tokens=False)

sample = _slime.sample
save_debug_data = _slime.save_debug_data
generate_with = _slime.generate_with
