"""The same step without FSDP: every tensor that a rank steps, plain and alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from topologies.pytorch.case import DTYPES, Case

NEVER_8BIT = 1 << 62


@dataclass(frozen=True)
class PlainTensor:
    n: int  # elements
    deciding_numel: int  # the size that decides on 8-bit state


def plain_step(tensors: list[PlainTensor], case: Case, device: torch.device) -> Callable[[], None]:
    """Steps `tensors` with the case's stock class; the state exists already."""
    arguments = dict(case.arguments)
    if case.package != "bitsandbytes":
        return _stepper([[one.n for one in tensors]], [arguments], case, device)
    minimum = arguments.pop("min_8bit_size", 4096)
    large = [one.n for one in tensors if one.deciding_numel >= minimum]
    small = [one.n for one in tensors if one.deciding_numel < minimum]
    thresholds = [{"min_8bit_size": 0}, {"min_8bit_size": NEVER_8BIT}]
    return _stepper([large, small], [{**arguments, **one} for one in thresholds], case, device)


def _stepper(
    sizes: list[list[int]], arguments: list[dict[str, Any]], case: Case, device: torch.device
) -> Callable[[], None]:
    optimizers = []
    for numels, given in zip(sizes, arguments, strict=True):
        parameters = []
        for n in numels:
            if n == 0:
                continue
            parameter = torch.nn.Parameter(torch.zeros(n, dtype=DTYPES[case.dtype], device=device))
            parameter.grad = torch.zeros_like(parameter)
            parameters.append(parameter)
        if parameters:
            optimizers.append(case.stock_class()(parameters, **given))

    def step() -> None:
        for optimizer in optimizers:
            optimizer.step()

    step()
    return step
