"""Plans of hsdp and fsdp1 against PyTorch: the real fully_shard on two-dimensional meshes, and the
real FullyShardedDataParallel with flat parameters, on 1 to 4 processes over Gloo."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from tests.topologies.dump import dump, error
from tests.topologies.spawned_ranks import run_ranks

WORLD_SIZES = [1, 2, 3, 4]
# Replicas x shards: every one that has at most four ranks.
MESHES = [(1, 1), (2, 1), (1, 2), (3, 1), (1, 3), (4, 1), (2, 2), (1, 4)]
TIMEOUT_S = 240

Shape = tuple[int, ...]
# Module -> its parameters; "" is the root. Shapes around the size of a block and of 8-bit's
# threshold, fewer elements than ranks, without elements, rows that no world size divides.
MODULES: dict[str, dict[str, Shape]] = {
    "": {"scale": (16,)},
    "a": {"weight": (257,), "bias": (3,)},
    "b": {"weight": (3, 1400), "bias": (5, 0), "extra": (5, 1000)},
    "c": {"weight": (18, 64)},
    "d": {"weight": (1,)},
    "e": {"weight": (2, 7), "bias": (7, 3, 5)},
    "f": {"weight": (1601, 12), "bias": (1601,)},
    "g": {"weight": (1, 64)},
    "h": {"weight": (4096,), "bias": (256,)},
}
PER_MODULE = {f"{m}.{p}".lstrip("."): s for m, ps in MODULES.items() for p, s in ps.items()}
PER_PARAMETER = {f"{name.replace('.', '_')}.w": shape for name, shape in PER_MODULE.items()}
# Units without any element are left out: PyTorch makes no FlatParameter that could be compared.
PER_PARAMETER = {n: s for n, s in PER_PARAMETER.items() if torch.Size(s).numel()}
# Units as a user lists them: a module with the modules below it, a module inside another, and what
# is left of three modules.
LISTED = {
    "scale": (16,),
    "x.a.weight": (257,),
    "x.a.bias": (4,),
    "x.b.weight": (3, 1400),
    "y.bias": (601,),
    "y.c.weight": (18, 64),
    "y.c.inner.weight": (5, 1000),
    "d.weight": (1,),
}
UNITS = [["scale", "y.bias", "d"], ["x"], ["y.c"]]
FSDP1 = {
    "per-module": PER_MODULE,
    "per-parameter": PER_PARAMETER,
    "whole-model": PER_MODULE,
    "list": LISTED,
}


class Holder(torch.nn.Module):
    """Parameters and nothing else; `used` enter the sum that forward returns."""

    def forward(self, used: list[str]) -> torch.Tensor:
        return torch.stack([getattr(self, name).sum() for name in used]).sum()


class ListedHolder(Holder):
    """A module that is a unit of UNITS."""


def values_of(shapes: dict[str, Shape]) -> dict[str, np.ndarray]:
    """For every parameter its elements, all different over the whole model and none of them 0."""
    values = {}
    start = 1
    for name, shape in shapes.items():
        numel = torch.Size(shape).numel()
        values[name] = np.arange(start, start + numel, dtype=np.float32)
        start += numel
    assert start < 1 << 24, "exact in float32"
    return values


def module_of(shapes: dict[str, Shape]) -> torch.nn.Module:
    root = Holder()
    values = values_of(shapes)
    for name, shape in shapes.items():
        *path, leaf = name.split(".")
        owner = root
        for depth, step in enumerate(path, start=1):
            if not hasattr(owner, step):
                listed = [".".join(path[:depth])] in UNITS
                owner.add_module(step, ListedHolder() if listed else Holder())
            owner = getattr(owner, step)
        whole = torch.from_numpy(values[name]).reshape(shape)
        owner.register_parameter(leaf, torch.nn.Parameter(whole))
    return root


def fsdp1(module: torch.nn.Module, group: dist.ProcessGroup, wrap: str) -> torch.nn.Module:
    wrapped = {"whole-model": set(), "list": {ListedHolder}}.get(wrap, {Holder})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # W = 1 becomes NO_SHARD, and a CPU is no GPU
        return FullyShardedDataParallel(
            module,
            process_group=group,
            use_orig_params=False,
            device_id=torch.device("cpu"),
            auto_wrap_policy=ModuleWrapPolicy(wrapped) if wrapped else None,
        )


def flat_parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The names in a unit, joined by blanks -> its FlatParameter."""
    flat = {}
    prefixes = {m: n for n, m in module.named_modules()}
    for unit in FullyShardedDataParallel.fsdp_modules(module):
        if unit._handle is None:
            continue
        prefix = prefixes[unit].replace("_fsdp_wrapped_module", "").strip(".")
        names = [f"{prefix}.{fqn}".strip(".") for fqn in unit._handle.flat_param._fqns]
        flat[" ".join(names).replace("..", ".")] = unit._handle.flat_param
    return flat


def refusal(build) -> str:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            build()
    except (ValueError, AssertionError) as error:
        return str(error)
    return "accepted"


def gradients(group: dist.ProcessGroup) -> dict[str, list | None]:
    """What a step's gradients are where parts of a unit, or all of it, get none."""
    shapes = {"a.weight": (6,), "a.bias": (5,), "c.weight": (8,)}
    module = fsdp1(module_of(shapes), group, "per-module")

    module.a(["weight"]).backward()
    flat = flat_parameters(module)
    return {n: None if p.grad is None else p.grad.tolist() for n, p in flat.items()}


def refusals(group: dist.ProcessGroup) -> dict[str, str]:
    def mixed_frozen() -> None:
        module = module_of({"a.weight": (4,), "a.bias": (4,)})
        module.a.bias.requires_grad = False
        fsdp1(module, group, "per-module")

    def mixed_dtypes() -> None:
        module = module_of({"a.weight": (4,), "a.bias": (4,)})
        module.a.bias.data = module.a.bias.data.to(torch.bfloat16)
        fsdp1(module, group, "per-module")

    return {
        "frozen": refusal(mixed_frozen),
        "dtype": refusal(mixed_dtypes),
        "empty": refusal(lambda: fsdp1(module_of({"a.weight": (0, 4)}), group, "per-module")),
        "scalar": refusal(lambda: fsdp1(module_of({"a.weight": ()}), group, "per-module")),
    }


def tied(group: dist.ProcessGroup, wrap: str) -> dict[str, int]:
    """Names in each unit -> its local elements."""
    module = module_of({"embed.weight": (5, 8), "head.weight": (5, 8)})
    module.head.weight = module.embed.weight
    return {n: p.numel() for n, p in flat_parameters(fsdp1(module, group, wrap)).items()}


def work(rank: int, folder: str) -> None:
    """Writes what PyTorch makes of the models wherever this rank takes part."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=max(WORLD_SIZES),
        timeout=datetime.timedelta(seconds=TIMEOUT_S),
    )
    arrays: dict[str, np.ndarray] = {}
    facts: dict[str, dict] = {}
    for replicas, shards in MESHES:
        world_size = replicas * shards
        ranks = torch.arange(world_size).reshape(replicas, shards)
        mesh = DeviceMesh("cpu", ranks, mesh_dim_names=("replicate", "shard"))
        if rank >= world_size:
            continue
        module = module_of(PER_MODULE)
        fully_shard(module, mesh=mesh)
        for name, parameter in module.named_parameters():
            key = f"hsdp/{replicas}x{shards}/{name}"
            arrays[key] = parameter.to_local().detach().flatten().numpy()
    for world_size in WORLD_SIZES:
        group = dist.new_group(list(range(world_size)))
        if rank >= world_size:
            continue
        for wrap, shapes in FSDP1.items():
            for names, flat in flat_parameters(fsdp1(module_of(shapes), group, wrap)).items():
                arrays[f"fsdp1/{wrap}/{world_size}/{names}"] = flat.detach().numpy().copy()
        facts[str(world_size)] = {
            "gradients": gradients(group),
            "refusals": refusals(group),
            "tied": tied(group, "whole-model"),
            "tied_apart": tied(group, "per-module"),
        }
    np.savez(Path(folder, f"{rank}.npz"), **arrays)
    Path(folder, f"{rank}.json").write_text(json.dumps(facts))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # a thread of PyTorch may outlive the interpreter, and abort it


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[dict, dict]]:
    """Rank -> local tensors by key, and facts by world size."""
    folder = tmp_path_factory.mktemp("fsdp")
    run_ranks(work, folder, max(WORLD_SIZES), TIMEOUT_S)
    return {
        rank: (
            dict(np.load(folder / f"{rank}.npz")),
            json.loads((folder / f"{rank}.json").read_text()),
        )
        for rank in range(max(WORLD_SIZES))
    }


def write_model(tmp_path: Path, shapes: dict[str, Shape]) -> Path:
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps([{"name": n, "shape": s} for n, s in shapes.items()]))
    return path


def planned_values(tensor: dict, values: dict[str, np.ndarray]) -> np.ndarray:
    """What the plan says the tensor holds; padding is 0."""
    local = np.zeros(tensor["numel"], dtype=np.float32)
    for part in tensor["ranges"]:
        piece = values[part["parameter"]][part["offset"] : part["offset"] + part["numel"]]
        local[part["position"] : part["position"] + part["numel"]] = piece
    return local


@pytest.mark.parametrize(("replicas", "shards"), MESHES)
def test_hsdp_shards_are_those_of_fully_shard(
    tmp_path: Path, real: dict, replicas: int, shards: int
) -> None:
    values = values_of(PER_MODULE)
    world_size = replicas * shards
    plan = dump(write_model(tmp_path, PER_MODULE), "hsdp", world_size, replicas)
    for rank, tensors in enumerate(plan["tensors"]):
        assert [t["unit"] for t in tensors] == [[name] for name in PER_MODULE]
        for tensor in tensors:
            (name,) = tensor["unit"]
            local = real[rank][0][f"hsdp/{replicas}x{shards}/{name}"]
            assert np.array_equal(local, planned_values(tensor, values)), (rank, name)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("wrap", FSDP1)
def test_fsdp1_shards_are_those_of_flat_parameters(
    tmp_path: Path, real: dict, wrap: str, world_size: int
) -> None:
    shapes = FSDP1[wrap]
    values = values_of(shapes)
    units = tmp_path / "units.json"
    units.write_text(json.dumps(UNITS))
    wrapping = units if wrap == "list" else wrap
    plan = dump(write_model(tmp_path, shapes), "fsdp1", world_size, 1, wrapping)
    padding = 0
    for rank, tensors in enumerate(plan["tensors"]):
        start = f"fsdp1/{wrap}/{world_size}/"
        found = {k.removeprefix(start): v for k, v in real[rank][0].items() if k.startswith(start)}
        assert [" ".join(t["unit"]) for t in tensors] == list(found)
        for tensor in tensors:
            local = found[" ".join(tensor["unit"])]
            assert np.array_equal(local, planned_values(tensor, values)), (rank, tensor["unit"])
            padding += int((local == 0).sum())
    assert (padding > 0) == (world_size > 1), "the shapes leave padding to compare"


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_a_unit_is_stepped_with_zeros_where_one_of_its_parameters_has_no_gradient(
    tmp_path: Path, real: dict, world_size: int
) -> None:
    model = tmp_path / "model.json"
    model.write_text(
        json.dumps(
            [
                {"name": "a.weight", "shape": [6]},
                {"name": "a.bias", "shape": [5], "has_gradient": False},
                {"name": "c.weight", "shape": [8], "has_gradient": False},
            ]
        )
    )
    plan = dump(model, "fsdp1", world_size, 1, "per-module")
    for rank, (a, c) in enumerate(plan["tensors"]):
        found = real[rank][1][str(world_size)]["gradients"]
        assert found["c.weight"] is None and not c["stepped"]
        assert a["stepped"]
        expected = planned_values(a, {"a.weight": np.ones(6), "a.bias": np.zeros(5)})
        assert found["a.weight a.bias"] == expected.tolist()


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_a_tied_parameter_is_in_the_flat_parameter_once(real: dict, world_size: int) -> None:
    data = Path(__file__).parent.parent / "data/models/tied.json"
    plan = dump(data, "fsdp1", world_size, 1, "whole-model")
    for rank, (tensor,) in enumerate(plan["tensors"]):
        found = real[rank][1][str(world_size)]["tied"]
        assert found == {"embed.weight": tensor["numel"]}
        # Where its members are wrapped apart PyTorch doubles the storage. The plan never does.
        twice = real[rank][1][str(world_size)]["tied_apart"]
        assert twice == {"embed.weight": tensor["numel"], "head.weight": tensor["numel"]}
        (once,) = dump(data, "fsdp1", world_size, 1, "per-module")["tensors"][rank]
        assert once == tensor


def test_what_pytorch_does_not_flatten_is_refused_by_name(tmp_path: Path, real: dict) -> None:
    for rank in range(2):
        found = real[rank][1]["2"]["refusals"]
        assert "use_orig_params=False" in found["frozen"] and "['a.bias']" in found["frozen"]
        assert "uniform dtype" in found["dtype"]
        assert "unsharded_end_idx: -1" in found["empty"]
        assert "doesn't support scalar parameters" in found["scalar"]
    frozen = [{"name": "a.weight", "shape": [4]}]
    frozen += [{"name": "a.bias", "shape": [4], "requires_grad": False}]
    mixed = [{"name": "a.weight", "shape": [4], "dtype": "fp32"}]
    mixed += [{"name": "a.bias", "shape": [4], "dtype": "bf16"}]
    scalar = [{"name": "a.bias", "shape": []}]
    empty = [{"name": "a.bias", "shape": [0, 4]}]
    for parameters, reason in (
        (frozen, "it is frozen"),
        (mixed, "it is bf16"),
        (scalar, "it is a "),
        (empty, "its fsdp1 unit has no elements"),
    ):
        model = tmp_path / "model.json"
        model.write_text(json.dumps(parameters))
        assert error(model, "fsdp1", 2).startswith(f"parameter a.bias: {reason}")
