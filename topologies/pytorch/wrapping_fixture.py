"""The fixture of upstream issue #2080: one model, two ways to wrap it with FSDP1, two updates.

    fine = updates("fine", "none", job)          # original parameter -> what two steps added to it
    coarse = updates("coarse", "none", job)

Four parameters of 2,048 elements lie in units of their own ("fine") or in one unit ("coarse"); a
fifth of 8,192 has its own unit in both. Values, losses and hyperparameters are those that the issue
and pull request #2081 describe. On two ranks a shard of a fine unit has 1,024 elements and one of
the coarse unit 4,096, which is bitsandbytes' threshold for 8-bit state.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass

import bitsandbytes
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

from topologies.pytorch.adapters import ADAPTERS
from topologies.pytorch.ranks import Job
from topologies.pytorch.shard_layout import ShardLayout, fsdp1_layout, record_parameters
from topologies.pytorch.state_bytes import tensors_of

WRAPPINGS = ("fine", "coarse")
SMALL, LARGE = (2048, 2048, 2048, 2048), 8192
SEED = 19
STEPS = 2
ARGUMENTS = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0}
MIN_8BIT_SIZE = 4096


@dataclass(frozen=True)
class Updates:
    """Of one wrapping, for the original parameters by name; the same on all ranks."""

    added: dict[str, torch.Tensor]  # value after the steps minus value before them
    bits: dict[str, int]  # 8 or 32: its optimizer state on some rank


class Wave(torch.nn.Module):
    """The mean of a parameter, weighted by a wave that moves with the step."""

    def __init__(self, name: str, numel: int, angle: float) -> None:
        super().__init__()
        digest = hashlib.sha256(f"{name}.weight".encode()).digest()
        phase = int.from_bytes(digest[:4], "big") % 997
        place = torch.arange(numel, dtype=torch.float32)
        self.weight = torch.nn.Parameter(0.025 * torch.sin(place * 0.017 + SEED * 0.001 + phase))
        self.angle = angle

    def forward(self, step: int) -> torch.Tensor:
        k = torch.arange(1, self.weight.numel() + 1, dtype=torch.float32)
        return (self.weight * torch.sin(k * self.angle + step * 0.03125)).mean()


class Group(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.leaves = torch.nn.ModuleList(
            Wave(f"small.leaves.{i}", numel, (i + 1) / 128) for i, numel in enumerate(SMALL)
        )

    def forward(self, step: int) -> torch.Tensor:
        return torch.stack([leaf(step) for leaf in self.leaves]).sum()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = Group()
        self.large = Wave("large", LARGE, 1 / 256)

    def forward(self, step: int) -> torch.Tensor:
        return self.small(step) + self.large(step)


def updates(wrapping: str, adapter: str, job: Job) -> Updates:
    """Trains the wrapped model for two steps of AdamW8bit through `adapter`. Collective."""
    model = Model()
    recorded = record_parameters(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a CPU is no GPU
        if wrapping == "fine":
            leaves = model.small.leaves
            model.small.leaves = torch.nn.ModuleList(_unit(leaf, job) for leaf in leaves)
        else:
            model.small = _unit(model.small, job)
        model.large = _unit(model.large, job)
        wrapped = _unit(model, job)
    layout = fsdp1_layout(wrapped, recorded)
    arguments = dict(ARGUMENTS, min_8bit_size=MIN_8BIT_SIZE)
    if adapter == "original-parameters":
        arguments["layout"] = layout
    optimizer = ADAPTERS[adapter](bitsandbytes.optim.AdamW8bit)(
        wrapped.named_parameters(), **arguments
    )
    before = _whole(wrapped, layout)
    for step in range(STEPS):
        optimizer.zero_grad()
        (0.5 * (wrapped(step) - 0.1).square()).backward()
        optimizer.step()
    after = _whole(wrapped, layout)
    added = {name: after[name] - before[name] for name in after}
    return Updates(added, _bits(wrapped, layout, optimizer))


def largest_difference(fine: Updates, coarse: Updates, large: bool) -> float:
    """Of one element of the large parameter, or of any of the small ones."""
    names = [name for name in fine.added if name.startswith("large") == large]
    return max(float((fine.added[name] - coarse.added[name]).abs().max()) for name in names)


def relative_distance(fine: Updates, coarse: Updates) -> float:
    """L2 norm of the difference of all updates over that of the fine ones."""
    pairs = [(fine.added[name].double(), coarse.added[name].double()) for name in fine.added]
    difference = torch.cat([a - b for a, b in pairs]).norm()
    return float(difference / torch.cat([a for a, _ in pairs]).norm())


def _unit(module: torch.nn.Module, job: Job) -> torch.nn.Module:
    return FullyShardedDataParallel(module, use_orig_params=False, device_id=job.device)


@torch.no_grad()
def _whole(wrapped: torch.nn.Module, layout: ShardLayout) -> dict[str, torch.Tensor]:
    """The original parameters, put together from all ranks' shards."""
    whole: dict[str, torch.Tensor] = {}
    for parameter in wrapped.parameters():
        shards = [torch.empty_like(parameter) for _ in range(layout.world_size)]
        dist.all_gather(shards, parameter.detach())
        for rank, shard in enumerate(shards):
            for one in layout.ranges(parameter, rank):
                values = whole.setdefault(one.name, shard.new_empty(one.original_numel))
                values[one.offset : one.end] = shard[one.position : one.position + one.numel]
    return whole


def _bits(
    wrapped: torch.nn.Module, layout: ShardLayout, optimizer: torch.optim.Optimizer
) -> dict[str, int]:
    bits = {}
    for parameter in wrapped.parameters():
        state = optimizer.state[parameter]
        for one in layout.ranges(parameter, layout.rank):
            mine = next((state[key] for key in state if key.startswith(f"{one.name}[")), state)
            codes = dict(tensors_of(mine))["state1"]
            bits[one.name] = 8 if codes.dtype == torch.uint8 else 32
    # A rank knows those that it holds a part of.
    merged: dict[str, int] = {}
    found = [None] * layout.world_size
    dist.all_gather_object(found, bits)
    for one in found:
        merged.update(one)
    return merged
