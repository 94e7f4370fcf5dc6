"""A model by its list of parameters, wrapped with the real FSDP and filled with values.

    model = sharded_model(description, Sharding("fsdp2"), torch.float32, device)
    set_gradients(model)
    optimizer = AdamW8bit(model.named_parameters())

`description` is what build/bin/describe_run prints under "model". The module computes nothing: it
holds parameters, so that any model can be measured that has names and shapes.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor

from topologies.pytorch.ranks import CannotRun, Job
from topologies.pytorch.shard_layout import (
    Range,
    ShardLayout,
    clean,
    fsdp1_layout,
    fsdp2_layout,
    record_parameters,
)
from topologies.pytorch.synthetic_values import fill_gradient, fill_parameter

WRAPPINGS = ("per-parameter", "per-module", "whole-model")
# With per-parameter wrapping every parameter has a module of its own, and this name in it.
ALONE = "value"


@dataclass(frozen=True)
class Sharding:
    """How the model is wrapped; `wrapping` and `use_orig_params` are FSDP1's."""

    topology: str  # fsdp2 or fsdp1
    wrapping: str = "per-module"
    use_orig_params: bool = False


class Holder(torch.nn.Module):
    """Parameters, and nothing to compute."""


@dataclass
class ShardedModel:
    module: torch.nn.Module
    layout: ShardLayout
    index: dict[str, int]  # a parameter's name in the module -> its place in the description
    without_gradient: frozenset[str]

    def named_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        """What goes to the optimizer, under the description's names."""
        return [(readable(n), p) for n, p in self.module.named_parameters() if p.requires_grad]

    def ranges(self, parameter: torch.Tensor) -> list[Range]:
        """What this rank holds of it."""
        return self.layout.ranges(parameter, self.layout.rank)


def readable(name: str) -> str:
    return clean(name).removesuffix("." + ALONE)


@torch.no_grad()
def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's elements of a parameter or gradient."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()


def sharded_model(
    description: dict[str, Any], sharding: Sharding, dtype: torch.dtype, job: Job
) -> ShardedModel:
    """The wrapped model with its values. Collective. Raises CannotRun for a model that cannot be
    built, and whatever PyTorch raises for one that it does not shard."""
    parameters = description["parameters"]
    fsdp2 = sharding.topology == "fsdp2"
    alone = not fsdp2 and sharding.wrapping == "per-parameter"
    root = Holder()
    index: dict[str, int] = {}
    # FSDP2 shards a module that has no memory yet; FSDP1 cuts its flat parameters from a whole one.
    place = torch.device("meta") if fsdp2 else job.device
    for number, one in enumerate(parameters):
        if not one["tied_to"]:  # else its storage is its owner's, which is stepped once
            name = f"{one['name']}.{ALONE}" if alone else one["name"]
            value = torch.empty(one["shape"], dtype=dtype, device=place)
            if not fsdp2:
                fill_parameter(value.view(-1), number, 0)
            _register(root, name, torch.nn.Parameter(value, requires_grad=one["requires_grad"]))
            index[name] = number
    if fsdp2:
        fully_shard(root, mesh=init_device_mesh(job.device.type, (job.world_size,)))
        root.to_empty(device=job.device)
        layout = fsdp2_layout(root)
        for parameter, ranges in layout.by_parameter.items():
            for one in ranges[layout.rank]:
                fill_parameter(local(parameter).view(-1), index[one.name], one.offset)
        module: torch.nn.Module = root
    else:
        recorded = record_parameters(root)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # W = 1 becomes NO_SHARD, and a CPU is no GPU
            module = FullyShardedDataParallel(
                root,
                use_orig_params=sharding.use_orig_params,
                device_id=job.device,
                auto_wrap_policy=None
                if sharding.wrapping == "whole-model"
                else ModuleWrapPolicy({Holder}),
            )
        layout = fsdp1_layout(module, recorded)
    without = frozenset(name for name, i in index.items() if not parameters[i]["has_gradient"])
    return ShardedModel(module, layout, index, without)


def set_gradients(model: ShardedModel) -> None:
    """Synthetic gradients, as they are after the reduction; padding gets none."""
    for parameter in model.module.parameters():
        if not parameter.requires_grad:
            continue
        ranges = model.ranges(parameter)
        values = torch.zeros_like(local(parameter))
        flat = values.view(-1)
        given = [one for one in ranges if one.name not in model.without_gradient]
        for one in given:
            part = flat[one.position : one.position + one.numel]
            fill_gradient(part, model.index[one.name], one.offset)
        # FSDP1 takes the gradient from a view that has no part in this rank's shard; an empty
        # DTensor keeps its own.
        is_absent = not isinstance(parameter, DTensor) and parameter.numel() == 0
        if is_absent or (ranges and not given):
            continue
        if isinstance(parameter, DTensor):
            parameter.grad = DTensor.from_local(
                values,
                parameter.device_mesh,
                parameter.placements,
                run_check=False,
                shape=parameter.shape,
                stride=parameter.stride(),
            )
        else:
            parameter.grad = values


def _register(root: torch.nn.Module, name: str, parameter: torch.nn.Parameter) -> None:
    module = root
    *path, leaf = name.split(".")
    for part in path:
        if part not in module._modules:
            if hasattr(module, part):
                raise CannotRun(f"parameter {name}: {part} is a parameter, too, or no module name")
            module.add_module(part, Holder())
        module = module._modules[part]
    if not leaf or hasattr(module, leaf):
        raise CannotRun(f"parameter {name}: PyTorch modules have no place for this name")
    module.register_parameter(leaf, parameter)
