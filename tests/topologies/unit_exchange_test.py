"""Gathers and gradient reductions of UnitExchange against PyTorch over Gloo: the real fully_shard
on one- and two-dimensional meshes, the real FullyShardedDataParallel and the real
DistributedDataParallel. Every reduced element has the same bits, and every collective of a step
with a forward and a backward pass the same size."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from tests.bench.ranks import run
from tests.topologies.pytorch_ranks import on_ranks

# Module -> its parameters; "" is the root. Rows that no world size divides, fewer rows than ranks.
UNITS: dict[str, dict[str, tuple[int, ...]]] = {
    "": {"scale": (19,), "table": (21, 33)},
    "a": {"x": (33, 257), "y": (7, 5)},
    "b": {"x": (3,), "y": (1, 50), "z": (6, 70)},
}
SHAPES = {f"{m}.{p}".lstrip("."): s for m, ps in UNITS.items() for p, s in ps.items()}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
OPERATORS = {
    "c10d::_allgather_base_": "all_gather",
    "c10d::allgather_": "all_gather",  # FSDP1 on a CPU
    "c10d::_reduce_scatter_base_": "reduce_scatter",
    "c10d::allreduce_": "all_reduce",
}


def gradient(parameter: int, shape: tuple[int, ...], rank: int, dtype: torch.dtype) -> torch.Tensor:
    """As in unit_exchange_dump.cc."""
    i = np.arange(torch.Size(shape).numel(), dtype=np.int64)
    mixed = (i * 7919 + parameter * 104729 + rank * 1299709 + 1) % 65521
    values = ((mixed - 32760) / 8192).astype(np.float32)
    return torch.from_numpy(values).reshape(shape).to(dtype)


class Unit(torch.nn.Module):
    """Its loss is linear in its parameters, with the gradients as factors."""

    def forward(self) -> torch.Tensor:
        total = sum((p * self.factors[n]).sum() for n, p in self.named_parameters(recurse=False))
        return total + sum(child() for child in self.children())


class FlatUnit(Unit):
    """For FSDP1, which shows the parameters as views of the flat one, and not as parameters."""

    def forward(self) -> torch.Tensor:
        total = sum((getattr(self, n) * f).sum() for n, f in self.factors.items())
        return total + sum(child() for child in self.children())


def network(kind: type[Unit], rank: int, dtype: torch.dtype) -> Unit:
    root = kind()
    for number, (name, shape) in enumerate(SHAPES.items()):
        module, _, leaf = name.rpartition(".")
        if module and not hasattr(root, module):
            root.add_module(module, kind())
        owner = root.get_submodule(module)
        owner.register_parameter(leaf, torch.nn.Parameter(torch.zeros(shape, dtype=dtype)))
        if not hasattr(owner, "factors"):
            owner.factors = {}
        owner.factors[leaf] = gradient(number, shape, rank, dtype)
    return root


class Recorder(TorchDispatchMode):
    """The collectives with the elements that this rank hands in."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[list] = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        name = function.name().split(".")[0]
        if name in OPERATORS:
            # What is handed in is the second argument, but of an operator that works in place.
            given = arguments[0 if name == "c10d::allreduce_" else 1]
            given = given if isinstance(given, torch.Tensor) else given[0]
            self.records.append([OPERATORS[name], given.numel()])
        else:
            assert not name.startswith("c10d::") or "wait" in name, name
        return function(*arguments, **(named or {}))


def bits(tensor: torch.Tensor) -> list[int]:
    flat = tensor.detach().reshape(-1)
    if flat.dtype == torch.float32:
        return flat.numpy().view(np.uint32).tolist()
    return flat.view(torch.int16).numpy().view(np.uint16).tolist()


def pytorch(topology: str, replicas: int, dtype_name: str) -> dict:
    """The same as unit_exchange_dump prints."""
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    dtype = DTYPES[dtype_name]
    if topology in ("fsdp2", "hsdp"):
        model = network(Unit, rank, dtype)
        grid = torch.arange(ranks).reshape((ranks,) if topology == "fsdp2" else (replicas, -1))
        mesh = DeviceMesh("cpu", grid, mesh_dim_names=("copies", "shards")[-grid.dim() :])
        for child in model.children():
            fully_shard(child, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif topology == "ddp":
        model = DistributedDataParallel(network(Unit, rank, dtype))
    else:
        model = network(FlatUnit, rank, dtype)
        for name in list(dict(model.named_children())):
            setattr(
                model,
                name,
                FullyShardedDataParallel(getattr(model, name), device_id=torch.device("cpu")),
            )
        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    with Recorder() as recorder:
        model().backward()
    return {"collectives": recorder.records, "gradients": gradients_of(model, topology)}


def gradients_of(model: torch.nn.Module, topology: str) -> dict[str, list[int]]:
    if topology != "fsdp1":
        found = {}
        for name, parameter in model.named_parameters():
            grad = parameter.grad
            local = grad.to_local() if topology != "ddp" else grad
            found[name.removeprefix("module.")] = bits(local)
        return found
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, FullyShardedDataParallel):
            unit = name.replace("_fsdp_wrapped_module", "").strip(".")
            handle = module._handle
            grad = bits(handle.flat_param.grad)
            numel = sum(torch.Size(s).numel() for s in UNITS[unit].values())
            # Padding is at the end of the last rank's.
            owned = max(0, min(len(grad), numel - len(grad) * torch.distributed.get_rank()))
            found[" ".join(f"{unit}.{p}".lstrip(".") for p in UNITS[unit])] = grad[:owned]
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("exchange")
    model, units = folder / "model.json", folder / "units.json"
    model.write_text(json.dumps([{"name": n, "shape": s} for n, s in SHAPES.items()]))
    lists = [[f"{m}.{p}".lstrip(".") for p in ps] for m, ps in UNITS.items()]
    units.write_text(json.dumps(lists))
    return model, units


CASES = [
    (topology, ranks, replicas, dtype)
    for topology, ranks, replicas in [
        ("fsdp2", 2, 1),
        ("fsdp1", 2, 1),
        ("ddp", 2, 1),
        ("hsdp", 4, 2),
    ]
    for dtype in DTYPES
]


@pytest.mark.parametrize(("topology", "ranks", "replicas", "dtype"), CASES)
def test_reduced_gradients_have_pytorchs_bits_and_collectives_its_sizes(
    topology: str, ranks: int, replicas: int, dtype: str, files: tuple[Path, Path]
) -> None:
    words = [str(files[0]), str(files[1]), topology, str(replicas), dtype]
    ended = run(words, ranks, program="unit_exchange_dump")
    assert [e.code for e in ended] == [0] * ranks, ended[0].err
    ours = [json.loads(e.out) for e in ended]
    theirs = on_ranks(ranks, pytorch, topology, replicas, dtype)
    for rank in range(ranks):
        assert sorted(ours[rank]["collectives"]) == sorted(theirs[rank]["collectives"])
        assert ours[rank]["gradients"].keys() == theirs[rank]["gradients"].keys()
        for name, expected in theirs[rank]["gradients"].items():
            assert ours[rank]["gradients"][name] == expected, (rank, name)
    if topology != "ddp":
        gathers = sum(kind == "all_gather" for kind, _ in ours[0]["collectives"])
        assert gathers == 1 + 2 * (len(UNITS) - 1), "the root once, every block twice"
