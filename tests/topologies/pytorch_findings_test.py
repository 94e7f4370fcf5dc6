"""What the stock bitsandbytes does under FSDP, and what the adapters change: the findings on
upstream issues #1633 and #2080 that docs/upstream.md states. Real ranks, real FSDP, real library.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.topologies.pytorch_ranks import on_ranks  # first: it sets what PyTorch reads when loaded

# isort: split
import torch
import torch.distributed as dist

from topologies.pytorch.case import CLASSES, Case
from topologies.pytorch.guarded_step import GuardedStep
from topologies.pytorch.measure import Settings, first_steps, make_optimizer, measure
from topologies.pytorch.ranks import Job
from topologies.pytorch.sharded_model import Sharding, local, set_gradients, sharded_model
from topologies.pytorch.turns import Turns
from topologies.pytorch.wrapping_fixture import largest_difference, updates

SETTINGS = Settings(steps=5, warmup_steps=0, seconds=5.0, threads=1)
# name -> rows, columns; 4,096 elements and more are to have 8-bit state.
LARGE, SMALL, LAST = ("large", 64, 65), ("small", 17, 64), ("last", 64, 64)


def job() -> Job:
    return Job(dist.get_rank(), dist.get_world_size(), torch.device("cpu"), 60.0)


def description(*shapes: tuple[str, int, int]) -> dict[str, Any]:
    kind = {"dtype": "fp32", "requires_grad": True, "has_gradient": True, "tied_to": ""}
    parameters = [
        {"name": f"{name}.weight", "shape": [rows, columns], **kind}
        for name, rows, columns in shapes
    ]
    numel = sum(rows * columns for _, rows, columns in shapes)
    return {"name": "pieces", "numel": numel, "parameters": parameters}


def case(optimizer: str, adapter: str, topology: str, **sharding: Any) -> Case:
    optimizer_class, arguments = CLASSES[optimizer]
    given = {**arguments, "lr": 1e-3}
    return Case(optimizer_class, given, adapter, Sharding(topology, **sharding), "fp32")


def stock_on_dtensors(optimizer: str, shapes: list[tuple[str, int, int]]) -> dict[str, Any]:
    """The first step, as the driver does it, and what it left behind."""
    asked = case(optimizer, "none", "fsdp2")
    model = sharded_model(description(*shapes), asked.sharding, torch.float32, job())
    before = {name: local(p).clone() for name, p in model.named_parameters()}
    stepper = make_optimizer(model, asked)
    set_gradients(model)
    step = GuardedStep(stepper, model.named_parameters(), limit_s=60)
    failure = first_steps(step)
    step.close()
    named = model.named_parameters()
    return {
        "failure": failure,
        "moved": [name for name, p in named if not torch.equal(local(p), before[name])],
        "with state": [name for name, p in named if stepper.state.get(p)],
        "moments": {
            key: float(local(value).float().abs().sum())
            for key, value in stepper.state[named[0][1]].items()
            if key in ("state1", "state2")
        },
    }


MIXED = (
    "RuntimeError: bitsandbytes.optimizer_update_8bit_blockwise.default got mixed torch.Tensor and"
    " DTensor"
)
UNREGISTERED = (
    "NotImplementedError: Operator bitsandbytes.optimizer_update_32bit.default does not have a"
    " sharding strategy registered"
)


@pytest.fixture(scope="module", params=[1, 2])
def stock(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return on_ranks(request.param, _stock)


def _stock() -> dict[str, Any]:
    orders = {"large first": [LARGE, SMALL, LAST], "small first": [SMALL, LARGE, LAST]}
    return {
        f"{optimizer}, {order}": stock_on_dtensors(optimizer, shapes)
        for optimizer in ("AdamW8bit", "Lion8bit")
        for order, shapes in orders.items()
    }


@pytest.mark.parametrize("optimizer", ["AdamW8bit", "Lion8bit"])
@pytest.mark.parametrize(
    ("order", "first", "numel", "dtype", "error"),
    [
        ("large first", "large.weight", 4160, "uint8", MIXED),
        ("small first", "small.weight", 1088, "float32", UNREGISTERED),
    ],
)
def test_the_stock_step_on_dtensors_fails_at_the_first_parameter_with_its_state_already_made(
    stock, optimizer: str, order: str, first: str, numel: int, dtype: str, error: str
) -> None:
    for rank in stock:
        found = rank[f"{optimizer}, {order}"]
        said, by_then = found["failure"].split("; by then ")
        assert said.startswith(f"step 1, parameter {first}: {error}")
        assert by_then.startswith(f"{first} had step 1, state1 DTensor of {numel} {dtype}")
        assert ("state2 DTensor" in by_then) == (optimizer == "AdamW8bit")
        if dtype == "uint8":  # whatever the rank owns, absmax has the size of the whole
            assert f"absmax1 tensor of {-(-numel // 256)} float32" in by_then
        assert by_then.endswith("0 parameters before it had done this step")
        assert found["with state"] == [first]
        assert found["moved"] == []
        assert set(found["moments"].values()) == {0}


def measured(asked: Case, shapes: list[tuple[str, int, int]]) -> dict[str, Any]:
    here = job()
    result = measure(here, description(*shapes), asked, SETTINGS, Turns(here, None))
    return {
        "failure": result.failure,
        "finding": result.is_finding,
        "checked": result.checked,
        "steps": len(result.samples.step_ns),
        "8bit": [one.get("parameters_8bit") for one in result.ranks],
        "fp32": [one.get("parameters_fp32") for one in result.ranks],
    }


def _fsdp1_and_builtin() -> dict[str, Any]:
    shapes = [LARGE, SMALL, LAST]
    found: dict[str, Any] = {}
    for wrapping in ("per-module", "whole-model"):
        for adapter in ("none", "builtin"):
            asked = case("AdamW8bit", adapter, "fsdp1", wrapping=wrapping)
            found[f"{wrapping} {adapter}"] = measured(asked, shapes)
    found["original parameters visible"] = measured(
        case("Lion8bit", "none", "fsdp1", wrapping="per-module", use_orig_params=True), shapes
    )
    for adapter in ("none", "builtin"):
        found[f"fsdp2 {adapter}"] = measured(case("AdamW8bit", adapter, "fsdp2"), shapes)
    return found


@pytest.fixture(scope="module")
def measured_cases() -> dict[str, Any]:
    ranks = on_ranks(2, _fsdp1_and_builtin)
    assert ranks[0].keys() == ranks[1].keys()
    return ranks[0]


@pytest.mark.parametrize("adapter", ["none", "builtin"])
def test_fsdp1_works_without_help_and_its_wrapping_decides_the_precision(
    measured_cases, adapter: str
) -> None:
    apart = measured_cases[f"per-module {adapter}"]
    together = measured_cases[f"whole-model {adapter}"]
    for found in (apart, together):
        assert (found["failure"], found["steps"]) == ("", 5)
        assert found["checked"] == "bitsandbytes on plain local tensors: all elements, 2 steps"
    # Apart every shard has less than 4,096 elements, together (4160 + 1088 + 4096) / 2 = 4,672.
    assert (apart["8bit"], apart["fp32"]) == ([0, 0], [3, 3])
    assert (together["8bit"], together["fp32"]) == ([1, 1], [0, 0])


def test_fsdp1_that_shows_the_original_parameters_works_without_help(measured_cases) -> None:
    found = measured_cases["original parameters visible"]
    assert (found["failure"], found["steps"]) == ("", 5)


def test_under_fsdp2_the_same_failure_is_a_finding_of_none_and_an_error_of_builtin(
    measured_cases,
) -> None:
    none, builtin = (measured_cases[f"fsdp2 {adapter}"] for adapter in ("none", "builtin"))
    assert none["failure"] == builtin["failure"]
    assert none["failure"].startswith(f"step 1, parameter large.weight: {MIXED}")
    assert (none["finding"], builtin["finding"]) == (True, False)
    assert (none["steps"], builtin["steps"]) == (0, 0)


def _wrapping_fixture() -> dict[str, Any]:
    found = {}
    for adapter in ("none", "original-parameters"):
        fine, coarse = (updates(one, adapter, job()) for one in ("fine", "coarse"))
        found[adapter] = {
            "bits": [
                [one.bits["large.weight"], *{n for k, n in one.bits.items() if "small" in k}]
                for one in (fine, coarse)
            ],
            "small": largest_difference(fine, coarse, large=False),
            "large": largest_difference(fine, coarse, large=True),
            "moved": min(float(one.abs().max()) for one in coarse.added.values()),
        }
    return found


def test_wrapping_changes_the_update_of_the_stock_class_and_none_of_the_adapter_for_originals():
    for found in on_ranks(2, _wrapping_fixture):
        none, original = found["none"], found["original-parameters"]
        assert none["bits"] == [[8, 32], [8, 8]]
        assert original["bits"] == [[8, 32], [8, 32]]
        # Issue #2080 gives 6.15e-05. The last bits of PyTorch's sums differ between processors.
        assert none["small"] == pytest.approx(6.1498e-5, rel=1e-3)
        assert none["large"] == 0
        assert (original["small"], original["large"]) == (0, 0)
        assert original["moved"] > 1e-3
