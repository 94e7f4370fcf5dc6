"""Which elements of which original parameter a rank's sharded tensors hold.

Usage:

    recorded = record_parameters(module)             # before wrapping
    fully_shard(module)                              # or FullyShardedDataParallel(module, ...)
    layout = fsdp2_layout(module) / fsdp1_layout(wrapped, recorded)
    for shard in layout.ranges(parameter, rank): ...

FSDP2 says all of it itself (a DTensor knows its placement). FSDP1 does not: what a flat parameter
holds is recorded before wrapping and laid out as FSDP documents it (parameters in the order of
named_parameters, cut into equal parts), then compared with every size that the wrapped module
shows. A layout that does not fit is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.tensor import DTensor, Shard

from topologies.pytorch.unsupported import Unsupported

# FSDP1 with use_orig_params=True starts every parameter at a multiple of this many bytes.
ALIGNMENT_BYTES = 16
WRAPPED = "_fsdp_wrapped_module"
FLAT = "_flat_param"


@dataclass(frozen=True)
class Range:
    """Contiguous elements of an original parameter, and where a local tensor holds them."""

    name: str
    original_numel: int
    offset: int  # of the first one, within the original parameter
    numel: int
    position: int  # of the first one, within the flattened local tensor

    @property
    def end(self) -> int:
        return self.offset + self.numel


@dataclass(frozen=True)
class Recorded:
    """A parameter as it was before wrapping."""

    name: str
    numel: int
    dtype: torch.dtype


@dataclass
class ShardLayout:
    """The ranges of every sharded tensor on every rank of `group`.

    `by_parameter` is keyed by the tensor itself, as optimizers' state is; the lists are by rank.
    `order` numbers the original parameters, the same on all ranks.
    """

    group: dist.ProcessGroup | None
    by_parameter: dict[torch.Tensor, list[list[Range]]] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        return dist.get_rank(self.group)

    @property
    def world_size(self) -> int:
        return dist.get_world_size(self.group)

    def ranges(self, parameter: torch.Tensor, rank: int) -> list[Range]:
        return self.by_parameter[parameter][rank]

    def owners(self) -> dict[str, list[tuple[int, Range]]]:
        """Original parameter -> who owns which part of it, as (rank, range)."""
        owners: dict[str, list[tuple[int, Range]]] = {name: [] for name in self.order}
        for by_rank in self.by_parameter.values():
            for rank, ranges in enumerate(by_rank):
                for one in ranges:
                    owners[one.name].append((rank, one))
        return owners


def record_parameters(module: torch.nn.Module) -> list[Recorded]:
    """The parameters of a module that is not wrapped yet; a tied one counts once, as in FSDP."""
    return [Recorded(n, p.numel(), p.dtype) for n, p in module.named_parameters()]


def fsdp2_layout(module: torch.nn.Module) -> ShardLayout:
    """The layout of a module after fully_shard. Raises Unsupported for placements other than an
    ordinary Shard(0) over one mesh dimension."""
    layout = ShardLayout(None)
    for name, parameter in module.named_parameters():
        if not isinstance(parameter, DTensor):
            raise Unsupported(name, "it is not sharded; wrap the whole module with fully_shard")
        require_shard_0(name, parameter)
        mesh = parameter.device_mesh
        layout.group = mesh.get_group()
        layout.order[name] = len(layout.order)
        rows, row = parameter.shape[0], parameter.shape[1:].numel()
        chunk = -(-rows // mesh.size())  # torch.chunk's
        by_rank = []
        for rank in range(mesh.size()):
            first, last = min(rank * chunk, rows), min((rank + 1) * chunk, rows)
            one = Range(name, parameter.numel(), first * row, (last - first) * row, 0)
            by_rank.append([one] if one.numel else [])
        _require_numel(name, by_rank[layout.rank], parameter.to_local().numel())
        layout.by_parameter[parameter] = by_rank
    return layout


def fsdp1_layout(wrapped: torch.nn.Module, recorded: Iterable[Recorded]) -> ShardLayout:
    """The layout of a module wrapped with FullyShardedDataParallel, either way of
    use_orig_params. Raises Unsupported where it cannot be told, or does not fit."""
    names = {module: clean(name) for name, module in wrapped.named_modules()}
    units = FullyShardedDataParallel.fsdp_modules(wrapped)
    paths = sorted((names[unit] for unit in units), key=len, reverse=True)
    originals: dict[str, list[Recorded]] = {path: [] for path in paths}
    layout = ShardLayout(None)
    for one in recorded:
        path = next((p for p in paths if p == "" or one.name.startswith(p + ".")), None)
        if path is None:
            raise Unsupported(one.name, "it is in no FullyShardedDataParallel unit")
        originals[path].append(one)
        layout.order[one.name] = len(layout.order)
    sharded = {clean(name): p for name, p in wrapped.named_parameters()}
    for unit in units:
        mine = originals[names[unit]]
        if not mine:
            continue
        if unit.sharding_strategy not in (
            ShardingStrategy.FULL_SHARD,
            ShardingStrategy.SHARD_GRAD_OP,
            ShardingStrategy.NO_SHARD,
        ):
            raise Unsupported(mine[0].name, f"its unit is sharded by {unit.sharding_strategy.name}")
        layout.group = unit.process_group
        flat = sharded.get(f"{names[unit]}.{FLAT}".lstrip("."))
        _add_unit(layout, mine, flat, sharded, unit.sharding_strategy)
    return layout


def _add_unit(
    layout: ShardLayout,
    originals: list[Recorded],
    flat: torch.Tensor | None,
    sharded: dict[str, torch.Tensor],
    strategy: ShardingStrategy,
) -> None:
    """One unit; `flat` is None with use_orig_params=True, where every original is visible."""
    align = 1 if flat is not None else ALIGNMENT_BYTES // originals[0].dtype.itemsize
    starts, total = [], 0
    for one in originals:
        total = -(-total // align) * align
        starts.append(total)
        total += one.numel
    shards = 1 if strategy is ShardingStrategy.NO_SHARD else layout.world_size
    shard = -(-total // shards)
    by_name: dict[str, list[list[Range]]] = {
        one.name: [[] for _ in range(layout.world_size)] for one in originals
    }
    for rank in range(layout.world_size):
        begin = rank * shard if shards > 1 else 0
        for one, start in zip(originals, starts, strict=True):
            first, last = max(begin, start), min(begin + shard, start + one.numel)
            if first >= last:
                continue
            position = first - begin if flat is not None else 0
            found = Range(one.name, one.numel, first - start, last - first, position)
            by_name[one.name][rank].append(found)
    if flat is None:
        for one in originals:
            if one.name not in sharded:
                raise Unsupported(one.name, "the wrapped module has no parameter of this name")
            parameter = sharded[one.name]
            _require_numel(one.name, by_name[one.name][layout.rank], parameter.numel())
            layout.by_parameter[parameter] = by_name[one.name]
        return
    if flat.numel() != shard:
        raise Unsupported(
            originals[0].name,
            f"its unit's flat shard holds {flat.numel()} elements, {shard} were expected from the"
            " recorded parameters",
        )
    layout.by_parameter[flat] = [
        [one for name in by_name for one in by_name[name][rank]]
        for rank in range(layout.world_size)
    ]


def require_shard_0(name: str, parameter: DTensor) -> None:
    """Raises Unsupported unless the DTensor is an ordinary Shard(0) over one mesh dimension."""
    # Only the very type has torch.chunk's layout; in older versions _StridedShard inherits from it.
    placements = parameter.placements
    if len(placements) != 1 or type(placements[0]) is not Shard or placements[0].dim != 0:
        raise Unsupported(name, f"its placement is {tuple(placements)}, not (Shard(dim=0),)")


def clean(name: str) -> str:
    """A wrapped module's name for what it holds, without FSDP1's own levels."""
    return ".".join(part for part in name.split(".") if part != WRAPPED)


def _require_numel(name: str, ranges: list[Range], numel: int) -> None:
    expected = sum(one.numel for one in ranges)
    if expected != numel:
        raise Unsupported(name, f"its shard holds {numel} elements, {expected} were expected")
