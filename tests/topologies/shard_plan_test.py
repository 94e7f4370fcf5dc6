"""The shard plan against PyTorch: torch.chunk, and the real fully_shard on 1 to 4 processes."""

import datetime
import json
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from tests.topologies.dump import dump, error
from tests.topologies.spawned_ranks import run_ranks

SHAPES = [
    (257,),
    (1,),
    (3, 1400),
    (5, 1000),
    (18, 64),
    (1601, 1280),
    (1, 64),
    (2, 7),
    (50257, 8),
    (6, 1024),
    (7, 3, 5),
    (5, 0),
    (0, 4),
]
WORLD_SIZES = [1, 2, 3, 4]
TIMEOUT_S = 240
DATA = Path(__file__).parent.parent / "data/models"


def name_of(shape: tuple[int, ...]) -> str:
    return "w_" + "x".join(map(str, shape))


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps([{"name": name_of(s), "shape": s} for s in SHAPES]))
    return path


def plan_by_rank(model_file: Path, world_size: int) -> list[dict[str, dict]]:
    """For every rank: parameter -> its shard."""
    ranks = dump(model_file, "fsdp2", world_size)["ranks"]
    assert len(ranks) == world_size
    return [{shard["parameter"]: shard for shard in shards} for shards in ranks]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 7, 8, 16, 61])
def test_rows_are_those_of_torch_chunk(model_file: Path, world_size: int) -> None:
    ranks = plan_by_rank(model_file, world_size)
    for shape in SHAPES:
        whole = torch.empty(shape, device="meta")
        chunks = list(torch.chunk(whole, world_size, dim=0))
        for rank in range(world_size):
            shard = ranks[rank][name_of(shape)]
            rows = chunks[rank].shape[0] if rank < len(chunks) else 0
            assert shard["rows"] == rows, (shape, rank)
            assert shard["row_offset"] == sum(c.shape[0] for c in chunks[:rank]), (shape, rank)
            assert shard["numel"] == rows * whole[:1].numel() if rows else shard["numel"] == 0
            assert shard["padded_numel"] == chunks[0].numel(), (shape, rank)


class Model(torch.nn.Module):
    """One parameter a shape; every element holds its index in the parameter."""

    def __init__(self) -> None:
        super().__init__()
        for shape in SHAPES:
            values = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
            self.register_parameter(name_of(shape), torch.nn.Parameter(values))


class Scalar(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.logit_scale = torch.nn.Parameter(torch.tensor(1.0))


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 8)
        self.head = torch.nn.Linear(8, 5, bias=False)
        self.head.weight = self.embed.weight


def local_shards(module: torch.nn.Module, mesh: DeviceMesh) -> dict[str, dict]:
    fully_shard(module, mesh=mesh)
    shards = {}
    for name, parameter in module.named_parameters():
        local = parameter.to_local()
        shards[name] = {
            "rows": local.shape[0],
            "numel": local.numel(),
            "first_value": float(local.flatten()[0]) if local.numel() else None,
            "padded_numel": local.untyped_storage().nbytes() // local.element_size(),
        }
    return shards


def use_fully_shard(rank: int, folder: str) -> None:
    """Writes what fully_shard makes of the models on every world size that this rank is in."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=max(WORLD_SIZES),
        timeout=datetime.timedelta(seconds=TIMEOUT_S),
    )
    found: dict[str, dict] = {}
    for world_size in WORLD_SIZES:
        mesh = DeviceMesh("cpu", list(range(world_size)))  # collective over all processes
        if rank >= world_size:
            continue
        with pytest.raises(ValueError) as refusal:
            fully_shard(Scalar(), mesh=mesh)
        found[str(world_size)] = {
            "shapes": local_shards(Model(), mesh),
            "tied": local_shards(Tied(), mesh),
            "scalar": str(refusal.value),
        }
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # a thread of PyTorch may outlive the interpreter, and abort it


@pytest.fixture(scope="module")
def fsdp2(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], dict]:
    """(world size, rank) -> what the real fully_shard did there."""
    folder = tmp_path_factory.mktemp("fsdp2")
    run_ranks(use_fully_shard, folder, max(WORLD_SIZES), TIMEOUT_S)
    return {
        (int(world_size), rank): found
        for rank in range(max(WORLD_SIZES))
        for world_size, found in json.loads((folder / f"{rank}.json").read_text()).items()
    }


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_shards_are_those_of_fully_shard(model_file: Path, fsdp2: dict, world_size: int) -> None:
    for rank, planned in enumerate(plan_by_rank(model_file, world_size)):
        real_shards = fsdp2[world_size, rank]["shapes"]
        assert planned.keys() == real_shards.keys()
        for name, real in real_shards.items():
            where = (name, rank)
            assert planned[name]["numel"] == real["numel"], where
            assert planned[name]["padded_numel"] == real["padded_numel"], where
            if real["numel"]:  # else fully_shard drops the rows, and there is no value to look at
                assert planned[name]["rows"] == real["rows"], where
                assert planned[name]["offset"] == real["first_value"], where


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_a_tied_parameter_has_one_shard_a_rank(fsdp2: dict, world_size: int) -> None:
    for rank, planned in enumerate(dump(DATA / "tied.json", "fsdp2", world_size)["ranks"]):
        real = fsdp2[world_size, rank]["tied"]
        assert list(real) == ["embed.weight"]
        assert [shard["parameter"] for shard in planned] == ["embed.weight"]
        assert planned[0]["numel"] == real["embed.weight"]["numel"]


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_a_scalar_is_refused_by_name(fsdp2: dict, world_size: int) -> None:
    assert "logit_scale" in fsdp2[world_size, 0]["scalar"]
    assert error(DATA / "scalar.json", "fsdp2", world_size) == (
        "parameter logit_scale: it is a scalar (shape ()), which fsdp2 cannot shard; "
        "give it shape (1,), or use topology single or ddp"
    )
