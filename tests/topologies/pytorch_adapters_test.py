"""The adapters between PyTorch FSDP and bitsandbytes, against the real library on plain tensors.

Every comparison is of bits: parameters, codes, absmax, FP32 moments. The ranks are real processes
over Gloo, W = 1, 2 and 4; each is started once and runs all cases.
"""

from __future__ import annotations

import io
import itertools
import math
import sys
import warnings
from collections import Counter
from typing import Any

import pytest

from tests.topologies.pytorch_ranks import on_ranks  # first: it sets what PyTorch reads when loaded

# isort: split
import bitsandbytes as bnb
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from topologies.pytorch.adapters import builtin, local_shards, none, original_parameters
from topologies.pytorch.shard_layout import (
    ShardLayout,
    fsdp1_layout,
    fsdp2_layout,
    record_parameters,
)
from topologies.pytorch.unsupported import Unsupported

STEPS = 5
OPTIMIZERS = {"AdamW8bit": bnb.optim.AdamW8bit, "Lion8bit": bnb.optim.Lion8bit}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Around a block and around the threshold; rows that no world size divides; fewer rows than ranks.
SHAPES = {
    "a.w255": (255,),
    "a.w256": (256,),
    "a.w257": (257,),
    "b.w4095": (4095,),
    "b.w4096": (4096,),
    "b.w4097": (4097,),
    "c.uneven": (5, 1000),
    "c.few_rows": (3, 1400),
    "c.rows": (18, 301),
    "d.large": (8192,),
}
CASES = list(itertools.product(DTYPES, OPTIMIZERS, (0.0, 0.1)))
WORLD_SIZES = [1, 2, 4]


class Holder(torch.nn.Module):
    """Parameters, and nothing to compute."""


def value(name: str, shape: tuple[int, ...], seed: int, scale: float) -> torch.Tensor:
    """The same numbers on every rank."""
    numel = math.prod(shape)
    key = sum(ord(c) for c in name) + 131 * seed
    x = torch.arange(numel, dtype=torch.float64)
    return (scale * torch.sin(x * 1.7 + key) * torch.cos(x * 0.013 * (1 + key % 7))).reshape(shape)


def original(name: str, dtype: torch.dtype) -> torch.Tensor:
    return value(name, SHAPES[name], 0, 0.05).to(dtype)


def gradient(name: str, step: int, dtype: torch.dtype) -> torch.Tensor:
    return value(name, SHAPES[name], 1 + step, 0.01).to(dtype)


def module_of(dtype: torch.dtype, names: list[str] | None = None) -> torch.nn.Module:
    root = Holder()
    for name in names or SHAPES:
        module, leaf = name.rsplit(".", 1)
        if not hasattr(root, module):
            root.add_module(module, Holder())
        parameter = torch.nn.Parameter(original(name, dtype))
        root.get_submodule(module).register_parameter(leaf, parameter)
    return root


def settings(optimizer: str, weight_decay: float) -> dict[str, Any]:
    return {"lr": 0.01 if optimizer == "AdamW8bit" else 0.003, "weight_decay": weight_decay}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def different(a: torch.Tensor, b: torch.Tensor) -> int:
    """Bytes that differ; all of them where dtype or shape does."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return max(a.numel() * a.itemsize, b.numel() * b.itemsize, 1)
    return int((bits(a) != bits(b)).sum())


def state_difference(mine: dict[str, Any], reference: dict[str, Any]) -> int:
    if mine.keys() != reference.keys():
        return 10**6
    total = 0
    for key, one in reference.items():
        if isinstance(one, torch.Tensor):
            total += different(mine[key], one)
        else:
            total += int(mine[key] != one)
    return total


# --- local-shards --------------------------------------------------------------------------------


def set_dtensor_gradients(module: torch.nn.Module, step: int, dtype: torch.dtype) -> None:
    for name, parameter in module.named_parameters():
        parameter.grad = distribute_tensor(
            gradient(name, step, dtype), parameter.device_mesh, parameter.placements
        )


def reload(optimizer: torch.optim.Optimizer, fresh: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """`fresh` with the state of `optimizer`, by way of a file."""
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


def run_local_shards(dtype_name: str, optimizer_name: str, weight_decay: float, save: bool) -> dict:
    dtype = DTYPES[dtype_name]
    given = settings(optimizer_name, weight_decay)
    module = module_of(dtype)
    fully_shard(module)
    adapted = local_shards(OPTIMIZERS[optimizer_name])
    optimizer = adapted(module.named_parameters(), **given)
    references = {}
    for name, parameter in module.named_parameters():
        local = torch.nn.Parameter(parameter.to_local().detach().clone())
        threshold = 0 if math.prod(SHAPES[name]) >= 4096 else 1 << 30
        plain = OPTIMIZERS[optimizer_name]([local], **given, min_8bit_size=threshold)
        references[name] = (local, plain)
    for step in range(STEPS):
        set_dtensor_gradients(module, step, dtype)
        if save and step == 2:
            optimizer = reload(optimizer, adapted(module.named_parameters(), **given))
        optimizer.step()
        for name, parameter in module.named_parameters():
            local, plain = references[name]
            if local.numel():
                local.grad = parameter.grad.to_local().clone()
                plain.step()
    found = {"parameter": 0, "state": 0, "8bit": 0, "fp32": 0, "empty": 0}
    for name, parameter in module.named_parameters():
        local, plain = references[name]
        state = optimizer.state[parameter]
        with torch.no_grad():
            found["parameter"] += different(parameter.to_local(), local)
        if not local.numel():
            found["empty"] += 1
            found["state"] += len(state)
            continue
        found["state"] += state_difference(state, plain.state[local])
        found["8bit" if state["state1"].dtype == torch.uint8 else "fp32"] += 1
        if state["state1"].dtype == torch.uint8:
            blocks = -(-local.numel() // 256)
            found["state"] += int(state["absmax1"].numel() != blocks)
            found["state"] += int(state["state1"].numel() != local.numel())
    return found


# --- original-parameters -------------------------------------------------------------------------

# FSDP, use_orig_params, wrapping
WRAPPINGS = [("fsdp2", None, "whole-model")] + [
    ("fsdp1", use_orig_params, wrapping)
    for use_orig_params in (False, True)
    for wrapping in ("per-module", "whole-model")
]


def wrap(
    module: torch.nn.Module, fsdp: str, use_orig_params: bool | None, wrapping: str
) -> tuple[torch.nn.Module, ShardLayout]:
    if fsdp == "fsdp2":
        fully_shard(module)
        return module, fsdp2_layout(module)
    recorded = record_parameters(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # W = 1 becomes NO_SHARD, and a CPU is no GPU
        wrapped = FullyShardedDataParallel(
            module,
            use_orig_params=use_orig_params,
            device_id=torch.device("cpu"),
            auto_wrap_policy=None if wrapping == "whole-model" else ModuleWrapPolicy({Holder}),
        )
    return wrapped, fsdp1_layout(wrapped, recorded)


@torch.no_grad()
def local_of(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach().reshape(-1)


def set_gradients(
    wrapped: torch.nn.Module, layout: ShardLayout, step: int, dtype: torch.dtype
) -> None:
    """Every element the gradient of its place in the original, padding none."""
    for parameter in wrapped.parameters():
        ranges = layout.ranges(parameter, layout.rank)
        local = torch.zeros_like(local_of(parameter))
        for one in ranges:
            whole = gradient(one.name, step, dtype).reshape(-1)
            local[one.position : one.position + one.numel] = whole[one.offset : one.end]
        if isinstance(parameter, DTensor):
            parameter.grad = DTensor.from_local(
                local.reshape(parameter.to_local().shape),
                parameter.device_mesh,
                parameter.placements,
                run_check=False,
                shape=parameter.shape,
                stride=parameter.stride(),
            )
        elif parameter.numel() or ranges:
            parameter.grad = local.reshape(parameter.shape)


def run_original(
    dtype_name: str, optimizer_name: str, weight_decay: float, how: list, save: bool = False
) -> dict:
    dtype = DTYPES[dtype_name]
    given = settings(optimizer_name, weight_decay)
    plain = module_of(dtype)
    reference = OPTIMIZERS[optimizer_name](plain.parameters(), **given)
    wrapped, layout = wrap(module_of(dtype), *how)
    adapted = original_parameters(OPTIMIZERS[optimizer_name])
    optimizer = adapted(wrapped.named_parameters(), **given, layout=layout)
    originals = dict(plain.named_parameters())
    for step in range(STEPS):
        for name, parameter in originals.items():
            parameter.grad = gradient(name, step, dtype)
        reference.step()
        set_gradients(wrapped, layout, step, dtype)
        if save and step == 2:
            fresh = adapted(wrapped.named_parameters(), **given, layout=layout)
            optimizer = reload(optimizer, fresh)
        with Operators() as seen:
            optimizer.step()
    found = {"parameter": 0, "state": 0, "elements": 0, "cut_blocks": 0}
    found["collectives"] = seen.collectives()
    for parameter in wrapped.parameters():
        state = optimizer.state[parameter]
        ranges = layout.ranges(parameter, layout.rank)
        found["state"] += int(len(state) != len(ranges))
        for one, (key, mine) in zip(ranges, state.items(), strict=True):
            whole = originals[one.name]
            expected = dict(reference.state[whole])
            first, end = (int(n) for n in key[key.rindex("[") + 1 : -1].split(":"))
            if expected["state1"].dtype == torch.uint8:
                found["cut_blocks"] += int(first != one.offset) + int(end != one.end)
            else:
                found["state"] += int((first, end) != (one.offset, one.end))
            for part in ("state1", "state2"):
                if part in expected:
                    expected[part] = expected[part].reshape(-1)[first:end]
            for part in ("absmax1", "absmax2"):
                if part in expected:
                    expected[part] = expected[part][first // 256 : -(-end // 256)]
            found["state"] += state_difference(mine, expected)
            place = slice(one.position, one.position + one.numel)
            found["parameter"] += different(
                local_of(parameter)[place], whole.reshape(-1)[one.offset : one.end]
            )
            found["elements"] += one.numel
    return found


# --- operators of a step -------------------------------------------------------------------------


class OperatorCalls(TorchDispatchMode):
    """Every operator that runs, in order, with the arguments that it is handed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        if not name.startswith("profiler."):  # its argument is the name of the class
            self.calls.append((name, [_plain(one) for one in args], _plain(kwargs)))
        return function(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    """Counts the operators that run, and the sizes of what bitsandbytes' updates are handed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.update_sizes: list[int] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        if not name.startswith("profiler."):  # one a call of step(), whatever it holds
            self.names[name] += 1
        if "bitsandbytes" in name and "optimizer_update" in name:
            self.update_sizes.append(args[1].numel())
        return function(*args, **(kwargs or {}))

    def collectives(self) -> dict[str, int]:
        return {n: c for n, c in self.names.items() if n.startswith(("c10d", "_c10d"))}


def run_operators() -> dict:
    """One warm step of local-shards, and of bitsandbytes on the plain local tensors."""
    module = module_of(torch.float32)
    fully_shard(module)
    optimizer = local_shards(bnb.optim.AdamW8bit)(module.named_parameters())
    plain = []
    for parameter in module.parameters():
        local = torch.nn.Parameter(parameter.to_local().detach().clone())
        if local.numel():
            threshold = 0 if parameter.numel() >= 4096 else 1 << 30
            stock = bnb.optim.AdamW8bit([local], min_8bit_size=threshold)
            plain.append((parameter, local, stock))
    for step in range(2):
        set_dtensor_gradients(module, step, torch.float32)
        for parameter, local, _ in plain:
            local.grad = parameter.grad.to_local().clone()
        with Operators() as adapter:
            optimizer.step()
        with Operators() as stock_operators:
            for _, _, stock in plain:
                stock.step()
    sizes = [p.to_local().numel() for p in module.parameters() if p.to_local().numel()]
    return {
        "adapter": dict(adapter.names),
        "plain": dict(stock_operators.names),
        "collectives": adapter.collectives(),
        "sizes": adapter.update_sizes,
        "local sizes": sizes,
        "kept gradients": sum(p.to_local().grad is not None for p in module.parameters()),
    }


def run_after_reduction() -> dict:
    """A real backward in fp16, whose reduction rounds: the step takes what came out of it."""
    module = Linear()
    fully_shard(module)
    optimizer = local_shards(bnb.optim.AdamW8bit)(module.named_parameters(), lr=0.01)
    local = torch.nn.Parameter(module.weight.to_local().detach().clone())
    plain = bnb.optim.AdamW8bit([local], lr=0.01, min_8bit_size=0)
    for step in range(3):
        module(1e-4 * (1 + dist.get_rank() + step)).backward()
        local.grad = module.weight.grad.to_local().clone()
        optimizer.step()
        plain.step()
        module.zero_grad()
    with torch.no_grad():
        return {
            "parameter": different(module.weight.to_local(), local),
            "state": state_difference(optimizer.state[module.weight], plain.state[local]),
        }


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(value("w", (65, 100), 3, 0.1).half())

    def forward(self, scale: float) -> torch.Tensor:
        return (self.weight * value("x", (65, 100), 4, 1.0).half()).sum() * scale


# --- refusals and failures -----------------------------------------------------------------------


def run_refusals() -> dict[str, list]:
    """What -> the error's text and the number of states that existed by then."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    mesh_2d = init_device_mesh("cpu", (1, dist.get_world_size()))
    whole = value("w", (64, 128), 0, 0.1).float()

    def parameter(placements: list, mesh=mesh) -> list[tuple[str, torch.nn.Parameter]]:
        return [("layer.weight", torch.nn.Parameter(distribute_tensor(whole, mesh, placements)))]

    def transposed() -> list[tuple[str, torch.nn.Parameter]]:
        local = whole.t().contiguous().t()
        one = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
        return [("layer.weight", torch.nn.Parameter(one))]

    module, layout = wrap(Linear(), "fsdp2", None, "whole-model")

    def original(optimizer_class: type, **given: Any) -> None:
        original_parameters(optimizer_class)(module.named_parameters(), layout=layout, **given)

    def holding(named: list[tuple[str, torch.nn.Parameter]]) -> torch.nn.Module:
        module = torch.nn.Module()
        module.register_parameter("weight", named[0][1])
        return module

    def original_of(module: torch.nn.Module) -> torch.optim.Optimizer:
        return original_parameters(bnb.optim.AdamW8bit)(
            module.named_parameters(), layout=fsdp2_layout(module)
        )

    sharded = [Shard(0)]
    optim = bnb.optim
    cases = {
        "Shard(1)": lambda: local_shards(optim.AdamW8bit)(parameter([Shard(1)])),
        "Replicate": lambda: local_shards(optim.AdamW8bit)(parameter([Replicate()])),
        "two dimensions": lambda: local_shards(optim.AdamW8bit)(
            parameter([Replicate(), Shard(0)], mesh_2d)
        ),
        "two dimensions, the first sharded": lambda: local_shards(optim.AdamW8bit)(
            parameter([Shard(0), Replicate()], mesh_2d)
        ),
        "paged": lambda: local_shards(optim.PagedAdamW8bit)(parameter(sharded)),
        "LAMB": lambda: local_shards(optim.LAMB8bit)(parameter(sharded)),
        "LARS": lambda: local_shards(optim.LARS8bit)(parameter(sharded), lr=0.1, momentum=0.9),
        "AdEMAMix": lambda: local_shards(optim.AdEMAMix8bit)(parameter(sharded)),
        "max_unorm": lambda: local_shards(optim.Adam8bit)(
            parameter(sharded), args=Settings(max_unorm=1.0)
        ),
        "non-contiguous": lambda: local_shards(optim.AdamW8bit)(transposed()),
        "added later": lambda: local_shards(optim.AdamW8bit)(
            [("plain", torch.nn.Parameter(whole.clone()))]
        ).add_param_group({"params": parameter([Shard(1)])}),
        "not bitsandbytes": lambda: local_shards(torch.optim.AdamW),
        "builtin not bitsandbytes": lambda: builtin(torch.optim.AdamW),
        "gradient": lambda: misplaced_gradient(mesh),
        "copied": lambda: stepped(local_shards(Copies)(parameter(sharded))),
        "no alias": lambda: without_alias(parameter(sharded)),
        "original, copied": lambda: stepped(
            original_parameters(Copies)(module.named_parameters(), layout=layout)
        ),
        "original, added later": lambda: original_of(holding(parameter(sharded))).add_param_group(
            {"params": parameter(sharded)}
        ),
        "original, unknown": lambda: original_parameters(optim.AdamW8bit)(
            parameter(sharded), layout=ShardLayout(None)
        ),
        "original, Shard(1)": lambda: fsdp2_layout(holding(parameter([Shard(1)]))),
        "original, Replicate": lambda: fsdp2_layout(holding(parameter([Replicate()]))),
        "original, non-contiguous": lambda: original_of(holding(transposed())),
        "original, paged": lambda: original(optim.PagedAdamW8bit),
        "original, LAMB": lambda: original(optim.LAMB8bit),
        "original, LARS": lambda: original(optim.LARS8bit, lr=0.1, momentum=0.9),
        "original, AdEMAMix": lambda: original(optim.AdEMAMix8bit),
        "original, max_unorm": lambda: original(optim.Adam8bit, args=Settings(max_unorm=1.0)),
    }
    texts = {}
    for what, build in cases.items():
        try:
            build()
            texts[what] = "accepted"
        except (Unsupported, RuntimeError) as error:
            texts[what] = str(error)
    return texts


class Copies(bnb.optim.AdamW8bit):
    """A library that steps a copy of what it is handed."""

    def update_step(self, group: dict, p: torch.Tensor, gindex: int, pindex: int) -> None:
        p.data = p.data.clone()


def stepped(optimizer: torch.optim.Optimizer) -> None:
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()


def without_alias(named: list[tuple[str, torch.nn.Parameter]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # By its full name: the package has the function of that name in the module's place.
        module = sys.modules["topologies.pytorch.adapters.local_shards"]
        patch.setattr(module, "_local", lambda one: one.to_local().clone())
        local_shards(bnb.optim.AdamW8bit)(named)


class Settings:
    """bitsandbytes takes its settings as an object."""

    def __init__(self, **changed: Any) -> None:
        given = {"optim_bits": 8, "min_8bit_size": 4096, "max_unorm": 0.0, "skip_zeros": False}
        self.__dict__.update({**given, **changed})


def misplaced_gradient(mesh: Any) -> None:
    whole = value("w", (64, 128), 0, 0.1).float()
    parameter = torch.nn.Parameter(distribute_tensor(whole, mesh, [Shard(0)]))
    parameter.grad = distribute_tensor(whole, mesh, [Replicate()])
    optimizer = local_shards(bnb.optim.AdamW8bit)([("layer.weight", parameter)])
    try:
        optimizer.step()
    finally:
        assert len(optimizer.state) == 0


def run_all(world_size: int) -> dict:
    results: dict[str, Any] = {"local": {}, "original": {}}
    for case in CASES:
        results["local"]["/".join(map(str, case))] = run_local_shards(*case, save=False)
    for optimizer in OPTIMIZERS:
        results["local"][f"{optimizer}/saved"] = run_local_shards("bf16", optimizer, 0.1, save=True)
    results["operators"] = run_operators()
    results["after reduction"] = run_after_reduction()
    results["refusals"] = run_refusals()
    for how in WRAPPINGS:
        # All data types and decays where wrapping is hardest, one of each elsewhere.
        cases = CASES if how[2] == "whole-model" and how[1] is not True else CASES[2:5]
        for case in cases:
            name = "/".join(map(str, (*how, *case)))
            results["original"][name] = run_original(*case, how)
    for how, optimizer in itertools.product(WRAPPINGS, OPTIMIZERS):
        name = "/".join(map(str, (*how, optimizer, "saved")))
        results["original"][name] = run_original("fp32", optimizer, 0.1, how, save=True)
    return results


@pytest.fixture(scope="module", params=WORLD_SIZES)
def ranks(request: pytest.FixtureRequest) -> list[dict]:
    return on_ranks(request.param, run_all, request.param)


def test_local_shards_equal_bitsandbytes_on_the_plain_local_tensor_bit_for_bit(ranks):
    empty = 0
    for rank in ranks:
        assert len(rank["local"]) == len(CASES) + 2
        for case, found in rank["local"].items():
            assert (found["parameter"], found["state"]) == (0, 0), case
            assert found["8bit"] > 0, case
            assert found["fp32"] > 0, case
            empty += found["empty"]
    assert (empty > 0) == (len(ranks) == 4), "few_rows leaves the last of four ranks without a row"


def test_original_parameters_equal_the_unsharded_optimizer_bit_for_bit(ranks):
    for case in ranks[0]["original"]:
        found = [rank["original"][case] for rank in ranks]
        for rank, one in enumerate(found):
            assert (one["parameter"], one["state"]) == (0, 0), (case, rank)
        assert sum(one["elements"] for one in found) >= sum(map(math.prod, SHAPES.values())), case
        if len(ranks) > 1:
            assert sum(one["cut_blocks"] for one in found) > 0, case


def test_original_parameters_need_one_collective_a_step_where_blocks_are_cut(ranks):
    for rank in ranks:
        for case, found in rank["original"].items():
            count = sum(found["collectives"].values())
            assert count == (0 if len(ranks) == 1 else 1), (case, found["collectives"])


def test_local_shards_add_no_operator_and_no_collective_and_update_the_local_sizes(ranks):
    for rank in ranks:
        found = rank["operators"]
        assert found["adapter"] == found["plain"]
        assert found["collectives"] == {}
        assert found["sizes"] == found["local sizes"]
        assert found["kept gradients"] == 0


def test_local_shards_step_with_the_gradient_that_the_reduction_left(ranks):
    for rank in ranks:
        assert rank["after reduction"] == {"parameter": 0, "state": 0}


def test_what_an_adapter_does_not_take_is_refused_by_name_before_any_state_exists(ranks):
    expected = {
        "Shard(1)": "layer.weight: its placement is (Shard(dim=1),)",
        "Replicate": "layer.weight: its placement is (Replicate(),)",
        "two dimensions": "layer.weight: its placement is (Replicate(), Shard(dim=0))",
        "two dimensions, the first sharded": "layer.weight: its placement is (Shard(dim=0), Repl",
        "paged": "layer.weight: paged state is not supported",
        "LAMB": "layer.weight: lamb is not AdamW8bit or Lion8bit",
        "LARS": "layer.weight: lars is not AdamW8bit or Lion8bit",
        "AdEMAMix": "layer.weight: ademamix is not AdamW8bit or Lion8bit",
        "max_unorm": "layer.weight: max_unorm is 1.0",
        "non-contiguous": "layer.weight: its local tensor is not contiguous",
        "added later": "layer.weight: its placement is (Shard(dim=1),)",
        "not bitsandbytes": "torch.optim.adamw:AdamW: this adapter takes bitsandbytes' optimizers",
        "builtin not bitsandbytes": "torch.optim.adamw:AdamW: this adapter takes",
        "gradient": "layer.weight: its gradient is not sharded as the parameter is",
        "copied": "layer.weight: the update went to a copy of the shard",
        "no alias": "layer.weight: its local tensor is not the storage that FSDP holds",
        "original, copied": "weight: the update went to a copy of the shard",
        "original, added later": "add_param_group: the layout is fixed",
        "original, unknown": "layer.weight: the layout does not know it",
        "original, Shard(1)": "weight: its placement is (Shard(dim=1),)",
        "original, Replicate": "weight: its placement is (Replicate(),)",
        "original, non-contiguous": "weight: its local tensor is not contiguous",
        "original, paged": "weight: paged state is not supported",
        "original, LAMB": "weight: lamb is not AdamW8bit or Lion8bit",
        "original, LARS": "weight: lars is not AdamW8bit or Lion8bit",
        "original, AdEMAMix": "weight: ademamix is not AdamW8bit or Lion8bit",
        "original, max_unorm": "weight: max_unorm is 1.0",
    }
    for rank in ranks:
        assert rank["refusals"].keys() == expected.keys()
        for what, text in expected.items():
            assert rank["refusals"][what].startswith(text), rank["refusals"][what]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_plain_tensors_take_the_same_calls_through_the_adapters_class(
    optimizer, dtype, monkeypatch
):
    """Of bitsandbytes' Python functions and of every operator below them, in order, with the bits
    of every argument."""
    functions: list[list] = []
    operators: list[list] = []
    parameters = []
    for adapted in (none(OPTIMIZERS[optimizer]), local_shards(OPTIMIZERS[optimizer])):
        seen: list = []
        functions.append(seen)

        def record(name, real, seen=seen):
            def recorded(*args, **kwargs):
                seen.append((name, [_plain(a) for a in args], kwargs))
                return real(*args, **kwargs)

            return recorded

        with monkeypatch.context() as patch, OperatorCalls() as called:
            for name in ("optimizer_update_8bit_blockwise", "optimizer_update_32bit"):
                patch.setattr(bnb.functional, name, record(name, getattr(bnb.functional, name)))
            module = module_of(DTYPES[dtype])
            stepped = adapted(module.named_parameters(), **settings(optimizer, 0.1))
            for step in range(2):
                for name, parameter in module.named_parameters():
                    parameter.grad = gradient(name, step, DTYPES[dtype])
                stepped.step()
        operators.append(called.calls)
        parameters.append([bits(p).tolist() for p in module.parameters()])
    assert len(functions[0]) == 2 * len(SHAPES)
    assert functions[0] == functions[1]
    updates = [name for name, *_ in operators[0] if "optimizer_update" in name]
    assert len(updates) == 2 * len(SHAPES)
    assert operators[0] == operators[1]
    assert parameters[0] == parameters[1]


def _plain(argument: Any) -> Any:
    """What can be compared: of a tensor dtype, shape, strides and bits."""
    if isinstance(argument, torch.Tensor):
        with torch.no_grad():
            data = bits(argument).numpy().tobytes()
        return (str(argument.dtype), tuple(argument.shape), argument.stride(), data)
    if isinstance(argument, (list, tuple)):
        return [_plain(one) for one in argument]
    if isinstance(argument, dict):
        return {key: _plain(one) for key, one in argument.items()}
    return argument
