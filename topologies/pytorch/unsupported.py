"""What an adapter does not take, said before any optimizer state exists."""

from __future__ import annotations

import torch
from bitsandbytes.optim.optimizer import Optimizer8bit
from torch.distributed.tensor import DTensor

# bitsandbytes' names of AdamW8bit and Lion8bit; the others read norms of whole tensors (LAMB, LARS)
# or keep state of another shape (AdEMAMix).
OPTIMIZERS = ("adam", "lion")


class Unsupported(Exception):
    """`parameter` cannot be stepped, and why."""

    def __init__(self, parameter: str, reason: str) -> None:
        super().__init__(f"{parameter}: {reason}")
        self.parameter = parameter
        self.reason = reason


def require_class(optimizer_class: type) -> None:
    """Raises Unsupported unless the class is one of bitsandbytes' optimizers."""
    if not issubclass(optimizer_class, Optimizer8bit):
        raise Unsupported(
            f"{optimizer_class.__module__}:{optimizer_class.__qualname__}",
            "this adapter takes bitsandbytes' optimizers; use the adapter none",
        )


def require_settings(optimizer: Optimizer8bit, group_index: int, index: int) -> None:
    """Raises Unsupported unless the optimizer's settings for a sharded parameter are AdamW8bit's or
    Lion8bit's, non-paged and with max_unorm 0."""
    name = parameter_name(optimizer, group_index, index)
    config = optimizer.get_config(group_index, index, optimizer.param_groups[group_index])
    if optimizer.optimizer_name not in OPTIMIZERS:
        raise Unsupported(name, f"{optimizer.optimizer_name} is not AdamW8bit or Lion8bit")
    if optimizer.is_paged:
        raise Unsupported(name, "paged state is not supported; use the class without Paged")
    if config["max_unorm"] > 0:
        raise Unsupported(
            name, f"max_unorm is {config['max_unorm']}: it needs the norm of the whole parameter"
        )


def require_contiguous(name: str, tensor: torch.Tensor) -> None:
    """Raises Unsupported for a tensor that bitsandbytes would copy, so that its update were lost"""
    if not tensor.is_contiguous():
        raise Unsupported(name, f"its local tensor is not contiguous (strides {tensor.stride()})")


def require_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Before a step changes anything: raises Unsupported for a gradient that does not lie as its
    parameter does."""
    for group_index, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            gradient = parameter.grad
            if not isinstance(parameter, DTensor) or gradient is None:
                continue
            if not isinstance(gradient, DTensor) or gradient.placements != parameter.placements:
                raise Unsupported(
                    parameter_name(optimizer, group_index, index),
                    "its gradient is not sharded as the parameter is",
                )


def parameter_name(optimizer: torch.optim.Optimizer, group_index: int, index: int) -> str:
    """The name where the optimizer was given named parameters, else the place."""
    group = optimizer.param_groups[group_index]
    if "param_names" in group:
        return group["param_names"][index]
    shape = tuple(group["params"][index].shape)
    return f"parameter {index} of group {group_index} (shape {shape})"
