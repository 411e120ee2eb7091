"""Makes SkyRL's FSDP worker train on the CPU. SkyRL 0.4 names CUDA as its device in the code, and has no setting for it.

Import this module before SkyRL's workers. The list below is all that stands between the worker and a CPU:
`torch.cuda` functions about the device, device meshes and process groups of CUDA, and two functions of flash-attn that
the worker imports and calls only if it packs its batches.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch
import torch.distributed
from torch.distributed import device_mesh

CPU = torch.device("cpu")


def refuse(*args: Any, **named: Any) -> None:
    """Stands for a function of flash-attn."""
    raise NotImplementedError("flash-attn needs a GPU; set trainer.remove_microbatch_padding=false")


def install() -> None:
    """Replaces what needs CUDA in this process."""
    padding = ModuleType("flash_attn.bert_padding")
    padding.pad_input = padding.unpad_input = refuse
    # There is no module `flash_attn`, so that transformers finds out that flash-attn is not installed.
    sys.modules["flash_attn.bert_padding"] = padding

    torch.cuda.current_device = lambda: CPU
    # PyTorch's compiler refuses one function under two names, so each has its own.
    torch.cuda.set_device = lambda device: None
    torch.cuda.synchronize = lambda device=None: None
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.Tensor.cuda = lambda self, *args, **named: self

    of_a_mesh, of_a_group = device_mesh.init_device_mesh, torch.distributed.init_process_group

    def mesh(device_type: str, *args: Any, **named: Any) -> Any:
        return of_a_mesh("cpu", *args, **named)

    def group(backend: str, *args: Any, **named: Any) -> Any:
        return of_a_group("gloo", *args, **named)

    device_mesh.init_device_mesh = torch.distributed.init_device_mesh = mesh
    torch.distributed.init_process_group = group


install()
