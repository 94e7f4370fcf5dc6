"""What the layout of sharded parameters and the exchange for cut blocks refuse, planted on the real
FSDP where it can happen there. The adapters' own refusals: pytorch_adapters_test.py."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.topologies.pytorch_ranks import on_ranks  # first: it sets what PyTorch reads when loaded

# isort: split
import bitsandbytes as bnb
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

from topologies.pytorch.adapters import local_shards, original_parameters
from topologies.pytorch.shard_layout import fsdp1_layout, fsdp2_layout, record_parameters
from topologies.pytorch.unsupported import Unsupported

WORLD_SIZE = 2


class Network(torch.nn.Module):
    """Two ranks share a block of `first.weight` (8-bit state) under every wrapping."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(101, 67, bias=False)
        self.second = torch.nn.Linear(67, 3, bias=False)


def fsdp1(module: torch.nn.Module, **given: Any) -> FullyShardedDataParallel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a CPU is no GPU
        return FullyShardedDataParallel(module, device_id=torch.device("cpu"), **given)


def fsdp2() -> torch.nn.Module:
    module = Network()
    fully_shard(module)
    return module


def with_tensor_parallelism(dimensions: tuple[int, int]) -> torch.nn.Module:
    """FSDP2 over what is sharded by columns already: strided shards."""
    mesh = init_device_mesh("cpu", dimensions, mesh_dim_names=("data", "tensor"))
    module = Network()
    parallelize_module(module, mesh["tensor"], {"first": ColwiseParallel()})
    fully_shard(module, mesh=mesh["data"])
    return module


def holding(tensor: DTensor) -> torch.nn.Module:
    module = torch.nn.Module()
    module.register_parameter("weight", torch.nn.Parameter(tensor))
    return module


def strided() -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    placement = _StridedShard(0, split_factor=2)
    return holding(DTensor.from_local(torch.zeros(4, 3), mesh, [placement], run_check=False))


def uneven_in_its_own_way() -> torch.nn.Module:
    """1 and 5 of 6 rows: not as torch.chunk cuts them."""
    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    rows = torch.zeros(5 if dist.get_rank() else 1, 3)
    tensor = DTensor.from_local(
        rows, mesh, [Shard(0)], run_check=False, shape=torch.Size((6, 3)), stride=(3, 1)
    )
    return holding(tensor)


def partly_sharded() -> torch.nn.Module:
    module = Network()
    fully_shard(module.second)
    return module


def partly_wrapped() -> None:
    module = Network()
    recorded = record_parameters(module)
    module.second = fsdp1(module.second)
    fsdp1_layout(module, recorded)


def hybrid() -> None:
    module = Network()
    recorded = record_parameters(module)
    mesh = init_device_mesh("cpu", (1, WORLD_SIZE), mesh_dim_names=("replicate", "shard"))
    strategy = ShardingStrategy.HYBRID_SHARD
    fsdp1_layout(fsdp1(module, sharding_strategy=strategy, device_mesh=mesh), recorded)


def another_record(use_orig_params: bool, **changed: Any) -> None:
    """The layout of a record whose first parameter is not the module's."""
    module = Network()
    first, *others = record_parameters(module)
    wrapped = fsdp1(module, use_orig_params=use_orig_params)
    fsdp1_layout(wrapped, [replace(first, **changed), *others])


def strided_for(module: torch.nn.Module, *wanted: str) -> None:
    """local_shards of the named parameters alone, all strided."""
    named = [(name, p) for name, p in module.named_parameters() if name in wanted]
    local_shards(bnb.optim.AdamW8bit)(named)


def misplaced_gradient() -> None:
    module = fsdp2()
    optimizer = original_parameters(bnb.optim.AdamW8bit)(
        module.named_parameters(), layout=fsdp2_layout(module)
    )
    weight = module.first.weight
    weight.grad = distribute_tensor(torch.zeros(67, 101), weight.device_mesh, [Replicate()])
    before = weight.to_local().detach().clone()
    try:
        optimizer.step()
    finally:
        assert len(optimizer.state) == 0
        assert torch.equal(weight.to_local(), before)


def one_sided_gradient(module: torch.nn.Module, layout: Any) -> None:
    """Only the last rank has one."""
    optimizer = original_parameters(bnb.optim.AdamW8bit)(module.named_parameters(), layout=layout)
    if dist.get_rank() == WORLD_SIZE - 1:
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter)
    before = [p.detach().clone() for p in module.parameters()]
    try:
        optimizer.step()
    finally:
        for parameter, old in zip(module.parameters(), before, strict=True):
            assert torch.equal(_local(parameter), _local(old)), "no element has moved"


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def one_sided_fsdp1(use_orig_params: bool) -> None:
    module = Network()
    recorded = record_parameters(module)
    wrapped = fsdp1(module, use_orig_params=use_orig_params)
    one_sided_gradient(wrapped, fsdp1_layout(wrapped, recorded))


def one_sided_fsdp2() -> None:
    module = fsdp2()
    one_sided_gradient(module, fsdp2_layout(module))


def refused_group() -> None:
    """The group that was refused is not there, and the others are stepped as before."""
    module = fsdp2()
    optimizer = local_shards(bnb.optim.AdamW8bit)(module.named_parameters(), lr=0.1)
    whole = torch.zeros(6, 4)
    other = distribute_tensor(whole, module.first.weight.device_mesh, [Shard(1)])
    try:
        optimizer.add_param_group({"params": [("other", torch.nn.Parameter(other))]})
    finally:
        assert len(optimizer.param_groups) == 1
        for parameter in module.parameters():
            parameter.grad = torch.ones_like(parameter)
        before = module.first.weight.to_local().detach().clone()
        optimizer.step()
        assert not torch.equal(module.first.weight.to_local(), before)


ONE_SIDED = "first.weight: rank {other} and this rank share a block, and only one of them has a"
# What is planted, and how the error begins.
PLANTED: dict[str, tuple[Callable[[], Any], str]] = {
    "a strided shard, to local-shards": (
        lambda: local_shards(bnb.optim.AdamW8bit)(strided().named_parameters()),
        "weight: its placement is (_StridedShard(dim=0, sf=2),)",
    ),
    "a strided shard, to original-parameters": (
        lambda: fsdp2_layout(strided()),
        "weight: its placement is (_StridedShard(dim=0, sf=2),)",
    ),
    "tensor parallelism, to local-shards": (
        lambda: strided_for(with_tensor_parallelism((1, WORLD_SIZE)), "first.weight"),
        "first.weight: its placement is (_StridedShard(dim=0, sf=2), Shard(dim=0))",
    ),
    "tensor parallelism, to original-parameters": (
        lambda: fsdp2_layout(with_tensor_parallelism((1, WORLD_SIZE))),
        "first.weight: its placement is (_StridedShard(dim=0, sf=2), Shard(dim=0))",
    ),
    "a module that is sharded in part": (
        lambda: fsdp2_layout(partly_sharded()),
        "first.weight: it is not sharded; wrap the whole module with fully_shard",
    ),
    "a module that is wrapped in part": (
        partly_wrapped,
        "first.weight: it is in no FullyShardedDataParallel unit",
    ),
    "hybrid sharding": (hybrid, "first.weight: its unit is sharded by HYBRID_SHARD"),
    "shards of other sizes": (
        lambda: fsdp2_layout(uneven_in_its_own_way()),
        "weight: its shard holds {held} elements, 9 were expected",
    ),
    "a record of other sizes, flat": (
        lambda: another_record(False, numel=7),
        "first.weight: its unit's flat shard holds 3484 elements, 104 were expected",
    ),
    "a record of other sizes, views": (
        lambda: another_record(True, numel=7),
        "first.weight: its shard holds {view} elements, {expected} were expected",
    ),
    "a record of another module, views": (
        lambda: another_record(True, name="third.weight"),
        "third.weight: the wrapped module has no parameter of this name",
    ),
    "a gradient on every rank": (
        misplaced_gradient,
        "first.weight: its gradient is not sharded as the parameter is",
    ),
    "a gradient on one owner of a block, flat": (lambda: one_sided_fsdp1(False), ONE_SIDED),
    "a gradient on one owner of a block, views": (lambda: one_sided_fsdp1(True), ONE_SIDED),
    "a gradient on one owner of a block, fsdp2": (one_sided_fsdp2, ONE_SIDED),
    "a group that is added later": (refused_group, "other: its placement is (Shard(dim=1),)"),
}


def _run() -> dict[str, str]:
    said = {}
    for what, (plant, _) in PLANTED.items():
        try:
            plant()
            said[what] = "accepted"
        except (Unsupported, RuntimeError) as error:
            said[what] = str(error)
    return said


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, str]]:
    return on_ranks(WORLD_SIZE, _run)


@pytest.mark.parametrize("what", PLANTED)
def test_every_rank_refuses_by_name_and_reason(ranks, what: str) -> None:
    for rank, said in enumerate(ranks):
        values = {"other": 1 - rank, "held": 15 if rank else 3}
        values |= {"view": 3282 if rank else 3485, "expected": 0 if rank else 7}
        assert said[what].startswith(PLANTED[what][1].format(**values)), said[what]
