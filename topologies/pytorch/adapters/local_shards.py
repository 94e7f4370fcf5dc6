"""Adapter `local-shards`: the narrow fix of upstream issue #1633.

    optimizer = local_shards(bitsandbytes.optim.AdamW8bit)(module.named_parameters(), lr=1e-3)

bitsandbytes was written for plain tensors. Under fully_shard a parameter is a DTensor: its size is
the global one, and its kernels cannot take it. Here the DTensor stays what it is to the user, the
key of param group and state dict, and 8-bit or FP32 state is decided by its global size. At the
boundary to the kernels each DTensor stands for its local tensor: a view that aliases the storage,
plain local state, ceil(local / 256) absmax. A rank without rows of a parameter has no state of it.
bitsandbytes' own code does everything else; a plain tensor goes to it untouched.

Ordinary contiguous Shard(0), AdamW8bit and Lion8bit, not paged, max_unorm 0. Everything else raises
Unsupported with the parameter's name, before any state exists.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from topologies.pytorch.shard_layout import require_shard_0
from topologies.pytorch.unsupported import (
    Unsupported,
    parameter_name,
    require_class,
    require_contiguous,
    require_gradients,
    require_settings,
)


def local_shards(optimizer_class: type) -> type:
    """The class that steps DTensors by their local shards; its arguments are the given class'."""
    require_class(optimizer_class)
    return type(f"LocalShards{optimizer_class.__name__}", (LocalShards, optimizer_class), {})


class LocalShards:
    """Goes before a class of bitsandbytes in the order of inheritance."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        for group_index in range(len(self.param_groups)):
            self._require_group(group_index)
        self.register_step_pre_hook(lambda optimizer, *_: require_gradients(optimizer))

    def add_param_group(self, group: dict[str, Any]) -> None:
        super().add_param_group(group)
        if hasattr(self, "optimizer_name"):  # else the constructor looks when it is done
            try:
                self._require_group(len(self.param_groups) - 1)
            except Unsupported:
                self.param_groups.pop()  # the others can be stepped still
                raise

    def get_config(self, gindex: int, pindex: int, group: dict[str, Any]) -> dict[str, Any]:
        config = super().get_config(gindex, pindex, group)
        parameter = self.param_groups[gindex]["params"][pindex]
        if isinstance(parameter, DTensor) and parameter.numel() >= config["min_8bit_size"]:
            config["min_8bit_size"] = 0  # whatever the shard's size
        return config

    def init_state(self, group: dict[str, Any], p: torch.Tensor, gindex: int, pindex: int) -> None:
        if not isinstance(p, DTensor):
            super().init_state(group, p, gindex, pindex)
            return
        local = _local(p)
        if local.numel() > 0:
            super().init_state(group, local, gindex, pindex)
            self.state[p] = self.state.pop(local)

    def update_step(self, group: dict[str, Any], p: torch.Tensor, gindex: int, pindex: int) -> None:
        if not isinstance(p, DTensor):
            super().update_step(group, p, gindex, pindex)
            return
        local = _local(p)
        if local.numel() == 0:
            return
        address = local.data_ptr()
        local.grad = _local(p.grad)
        self.state[local] = self.state[p]
        try:
            super().update_step(group, local, gindex, pindex)
        finally:
            del self.state[local]
            # The local tensor lives as long as the parameter: it must not keep the gradient alive.
            local.grad = None
        if local.data_ptr() != address:
            raise RuntimeError(
                f"{parameter_name(self, gindex, pindex)}: the update went to a copy of the shard"
            )

    def _require_group(self, group_index: int) -> None:
        for index, parameter in enumerate(self.param_groups[group_index]["params"]):
            if not isinstance(parameter, DTensor):
                continue
            name = parameter_name(self, group_index, index)
            require_shard_0(name, parameter)
            require_settings(self, group_index, index)
            local = _local(parameter)
            require_contiguous(name, local)
            if local.data_ptr() != parameter.to_local().data_ptr():
                raise Unsupported(name, "its local tensor is not the storage that FSDP holds")


def _local(tensor: DTensor) -> torch.Tensor:
    """The local tensor itself. to_local() of a parameter makes a view of it, even without
    gradients (PyTorch 2.13): an operator more in every step."""
    return tensor._local_tensor
