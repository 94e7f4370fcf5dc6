"""Compares the first steps of a case with the same optimizer class on plain tensors, bit for bit.

Each parameter is stepped alone, so that the reference needs memory for one parameter at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from topologies.pytorch.case import Case
from topologies.pytorch.plain_step import NEVER_8BIT
from topologies.pytorch.ranks import CannotRun
from topologies.pytorch.shard_layout import Range
from topologies.pytorch.sharded_model import ShardedModel, local
from topologies.pytorch.state_bytes import tensors_of
from topologies.pytorch.synthetic_values import fill_gradient, fill_parameter

STEPS = 2


def check_against_plain_tensors(
    model: ShardedModel, case: Case, optimizer: torch.optim.Optimizer
) -> str:
    """After STEPS steps of `optimizer`: what was compared. Raises CannotRun naming the first
    parameter that differs."""
    whole = case.adapter == "original-parameters"
    compare = _compare_ranges if whole else _compare_shard
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and parameter.numel():
            compare(name, parameter, model, case, optimizer)
    what = "unsharded parameters" if whole else "plain local tensors"
    return f"{case.subject} on {what}: all elements, {STEPS} steps"


def _compare_shard(
    name: str,
    parameter: torch.Tensor,
    model: ShardedModel,
    case: Case,
    optimizer: torch.optim.Optimizer,
) -> None:
    shard = local(parameter)
    if not shard.numel():
        return
    values, gradient = torch.zeros_like(shard), torch.zeros_like(shard)
    if not isinstance(parameter, DTensor):
        _copy_padding(shard, values, model.ranges(parameter))
    for one in model.ranges(parameter):
        place = slice(one.position, one.position + one.numel)
        fill_parameter(values.view(-1)[place], model.index[one.name], one.offset)
        if one.name not in model.without_gradient:
            fill_gradient(gradient.view(-1)[place], model.index[one.name], one.offset)
    given = dict(case.arguments)
    if isinstance(parameter, DTensor) and case.asks_8bit and case.package == "bitsandbytes":
        # The size that decides is the whole parameter's.
        minimum = given.get("min_8bit_size", 4096)
        given["min_8bit_size"] = 0 if parameter.numel() >= minimum else NEVER_8BIT
    reference = _step(values, gradient, case, given)
    _require_equal(name, "the parameter", shard, values)
    mine = dict(tensors_of(optimizer.state[parameter]))
    for key, expected in tensors_of(reference.state[reference.param_groups[0]["params"][0]]):
        _require_equal(name, key, mine.get(key), expected)


def _compare_ranges(
    name: str,
    parameter: torch.Tensor,
    model: ShardedModel,
    case: Case,
    optimizer: torch.optim.Optimizer,
) -> None:
    shard = local(parameter).view(-1)
    for one, values in _whole(parameter, model, shard):
        gradient = torch.empty_like(values)
        fill_gradient(gradient, model.index[one.name], 0)
        if one.name in model.without_gradient:
            gradient.zero_()
        _step(values, gradient, case, case.arguments)
        mine = shard[one.position : one.position + one.numel]
        _require_equal(name, "the parameter", mine, values[one.offset : one.end])


def _whole(
    parameter: torch.Tensor, model: ShardedModel, shard: torch.Tensor
) -> Iterator[tuple[Range, torch.Tensor]]:
    for one in model.ranges(parameter):
        values = shard.new_empty(one.original_numel)
        fill_parameter(values, model.index[one.name], 0)
        yield one, values


def _copy_padding(shard: torch.Tensor, values: torch.Tensor, ranges: list[Range]) -> None:
    """A flat parameter's padding has a value of PyTorch's own, and takes part in the step."""
    end = max((one.position + one.numel for one in ranges), default=0)
    values.view(-1)[end:] = shard.view(-1)[end:]


def _step(
    values: torch.Tensor, gradient: torch.Tensor, case: Case, arguments: dict[str, Any]
) -> torch.optim.Optimizer:
    """STEPS steps of the stock class on `values`."""
    parameter = torch.nn.Parameter(values)
    parameter.grad = gradient
    optimizer = case.stock_class()([parameter], **arguments)
    for _ in range(STEPS):
        optimizer.step()
    return optimizer


def _require_equal(name: str, what: str, mine: torch.Tensor | None, expected: torch.Tensor) -> None:
    if mine is None or mine.dtype != expected.dtype or mine.numel() != expected.numel():
        raise CannotRun(f"{name}: {what} is not of the plain tensor's type and size")
    a, b = mine.detach().reshape(-1), expected.detach().reshape(-1)
    different = int((a.view(torch.uint8) != b.view(torch.uint8)).sum())
    if different:
        raise CannotRun(f"{name}: {what} differs from the plain tensor's in {different} bytes")
