"""Bytes of the optimizer state that exists, read from its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor

# Code tables are no moments and shared; step counters are no moments.
NOT_MOMENTS = ("qmap", "step")


@dataclass(frozen=True)
class StateBytes:
    moment_bytes: int
    state_bytes: int  # tables shared by several parameters count once
    parameters_8bit: int
    parameters_fp32: int


def tensors_of(value: Any, key: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The plain tensors inside a state value with their innermost keys: of a DTensor the local
    part, of another wrapper (such as torchao's 8-bit state) what it is made of."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from tensors_of(one, str(name))
    elif isinstance(value, DTensor):
        yield from tensors_of(value._local_tensor, key)
    elif isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            for name in value.__tensor_flatten__()[0]:
                yield from tensors_of(getattr(value, name), name)
        else:
            yield key, value


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Of all storages, each once; padding that a storage has counts."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(size for address, size in storages.items() if address)


def state_bytes(state: Mapping[torch.Tensor, Any], asks_8bit: bool) -> StateBytes:
    """Of an optimizer's `state`; `asks_8bit` says whether FP32 state counts as a fallback."""
    moments: list[torch.Tensor] = []
    every: list[torch.Tensor] = []
    in_8bit = in_fp32 = 0
    for one in state.values():
        formats = set()
        for key, tensor in tensors_of(one):
            every.append(tensor)
            if not key.startswith(NOT_MOMENTS) and tensor.numel():
                moments.append(tensor)
                if tensor.dtype == torch.uint8:
                    formats.add("8bit")
                elif key.startswith(("state", "exp_avg")):
                    formats.add("fp32")
        in_8bit += "8bit" in formats
        in_fp32 += asks_8bit and "fp32" in formats
    return StateBytes(storage_bytes(moments), storage_bytes(every), in_8bit, in_fp32)
