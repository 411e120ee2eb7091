"""A platform for verl's own registry of platforms by which verl trains on the CPU.

verl imports the modules that VERL_USE_EXTERNAL_MODULES names, and takes the platform that VERL_PLATFORM names. The
platforms that verl 0.9 itself has are `nvidia`, `amd` and `huawei`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

# verl 0.9 needs TRL 0.27 or none: it patches a class that later versions do not have.
sys.modules["trl"] = None

from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry



@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """Has a CPU as the only device, and gloo between processes."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module: Any = SimpleNamespace(
        **{name: getattr(torch.cpu, name) for name in ("is_available", "synchronize", "set_device", "device_count")},
        current_device=lambda: torch.device("cpu"),
        empty_cache=lambda: None,
        get_device_name=lambda: "CPU",
        max_memory_allocated=lambda: 0,
        max_memory_reserved=lambda: 0,
        memory_allocated=lambda: 0,
        memory_reserved=lambda: 0,
        mem_get_info=lambda: (0, 0),
        manual_seed=torch.manual_seed,
        manual_seed_all=torch.manual_seed,
        get_rng_state=torch.get_rng_state,
        set_rng_state=torch.set_rng_state,
    )

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        """Returns a device, because PyTorch would take a number for one of an accelerator."""
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        """Does nothing, because there is one device."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Does nothing, because a CPU works synchronously."""

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """Does nothing, because the settings are those of CUDA."""

    def empty_cache(self) -> None:
        """Does nothing, because a CPU has no cache of memory."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        """Does nothing, because nothing is profiled."""

    def profiler_stop(self) -> None:
        """Does nothing, because nothing is profiled."""

    def ray_resource_name(self) -> str:
        """Returns the resource that verl counts before it starts. The test gives Ray one, without a device."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None
